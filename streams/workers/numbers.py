"""The statistics of a stage that runs in several workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.errors import describe

if TYPE_CHECKING:
    from penstock.streams.execution.results import Results
    from penstock.streams.failures.error_policy import ErrorPolicy
    from penstock.streams.protocol.stage_info import StageInfo
    from penstock.streams.workers.key_owners import Owners
    from penstock.streams.workers.limit import CommonLimit
    from penstock.streams.workers.placement import Section

__all__ = ["of_ended", "stage_statistics", "with_keys_in_words"]

# Numbers that are the same in all workers, or whose greatest says most.
_GREATEST = ("bound", "held_back", "size", "hottest_waiting")

# Peaks: for workers that replaced each other, the greatest counts.
_PEAKS = ("peak", "peak_groups", "peak_in_flight")

# Numbers that describe a moment.
_NOW = {
    *("waiting", "in_flight", "undelivered", "retrying", "stuck", "held_back"),
    *("groups", "ready", "hottest", "hottest_waiting", "hottest_keys"),
}


# How many keys are listed: those in which most events wait.
_HOTTEST = 5
_waiting: Callable[[dict[str, Any]], int] = itemgetter("waiting")


def of_ended(stages: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The counts of a worker that has ended, without the numbers that describe a moment."""
    return {
        stage: {name: value for name, value in numbers.items() if name not in _NOW}
        for stage, numbers in stages.items()
    }


def with_keys_in_words(stages: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The same numbers, with the texts of the keys in place of keys that cannot be sent."""
    return {stage: _keys_in_words(numbers) for stage, numbers in stages.items()}


def _keys_in_words(numbers: dict[str, Any]) -> dict[str, Any]:
    keys = [{**key, "key": describe(key["key"])} for key in numbers.get("hottest_keys", ())]
    return {**numbers, "hottest": keys[0]["key"], "hottest_keys": keys} if keys else numbers


def _successive(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of one stage in workers that replaced each other."""
    return _joined(workers, (*_GREATEST, *_PEAKS))


def _together(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of one stage in all workers: sums, but for bounds and sizes.

    The hottest keys are the keys with the most waiting events in all workers. Other values are the
    first worker's.
    """
    return _joined(workers, _GREATEST)


def _joined(workers: Sequence[dict[str, Any]], greatest: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for numbers in workers:
        for name, value in numbers.items():
            before = found.get(name)
            if before is None or isinstance(value, str | bool):
                found[name] = copy(value)
            elif name in greatest:
                found[name] = max(before, value)
            elif isinstance(value, int | float):
                found[name] = before + value
            elif isinstance(value, dict):
                counts = cast("dict[Any, int]", value)
                for key, count in counts.items():
                    before[key] = before.get(key, 0) + count
    keys: dict[Any, dict[str, Any]] = {}
    for numbers in workers:
        for key in numbers.get("hottest_keys", ()):
            same = keys.setdefault(key["key"], {**key, "waiting": 0})
            same["waiting"] += key["waiting"]
            same["age"] = max(same["age"], key["age"])
    if keys:
        hottest = sorted(keys.values(), key=_waiting, reverse=True)[:_HOTTEST]
        found["hottest_keys"] = hottest
        found["hottest"], found["hottest_waiting"] = hottest[0]["key"], hottest[0]["waiting"]
    return found


def stage_statistics(
    stage: StageInfo,
    section: Section,
    bound: int,
    results: Results,
    limit: CommonLimit,
    silent: list[dict[str, Any]],
    faults: ErrorPolicy,
    now: float,
) -> dict[str, Any]:
    """The numbers of a stage in all `workers` together, and of each by itself."""
    owners, peers = limit.owners, limit.owners.peers
    by_place = [
        [
            numbers[stage.number]
            for numbers in [*peer.before, peer.numbers]
            if stage.number in numbers
        ]
        for peer in peers
    ]
    parts = [_successive(workers) for workers in by_place]
    has_keys = section.by is not None and stage.number == section.infos[0].number
    if has_keys:
        parts.append(_of_keys(owners, bound, now))
    found = _together(parts)
    if has_keys:
        # Workers have no shares.
        found |= owners.overflow.statistics()
        found["routed"] = found.get("routed", 0) + owners.overflow.routed
    if "peak" in found and (each := found["bound"]) is not None:
        # The bound of each worker, and of all of them together.
        found["bound"] = min(len(peers) * each, bound)
        found["peak"] = min(found["peak"], found["bound"])
    if stage.number == section.working.number:
        in_flight = found.get("in_flight", 0)
        if section.work.is_plain:
            # A worker reports between two calls.
            in_flight = max(in_flight, sum(bool(peer.out) for peer in peers))
        found["in_flight"] = min(in_flight, owners.unfinished)
        if "peak_in_flight" in found:
            # The peaks of the workers were at different times.
            found["peak_in_flight"] = min(found["peak_in_flight"], limit.highest)
        found["undelivered"] = found.get("undelivered", 0) + results.waiting
        found["limit"] = limit.limit
        found["limit_reason"] = limit.reason
        found["silent_workers"] = silent
        for name, count in faults.statistics().items():
            found[name] = found.get(name, 0) + count
    found["by_worker"] = [numbers for workers in by_place for numbers in workers]
    return found


def _of_keys(owners: Owners, bound: int, now: float) -> dict[str, Any]:
    """The numbers of `group_by` for events in this process that its workers have not got."""
    hottest = owners.hottest(_HOTTEST, now)
    return {
        "waiting": owners.waiting,
        "peak": owners.peak_waiting,
        "bound": bound,
        "hottest": hottest[0]["key"] if hottest else None,
        "hottest_waiting": hottest[0]["waiting"] if hottest else 0,
        "hottest_keys": hottest,
    }
