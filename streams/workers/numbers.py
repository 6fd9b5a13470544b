"""The statistics of a stage that runs in several workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from operator import itemgetter
from typing import Any, cast

from penstock.streams.base.errors import describe

__all__ = ["of_ended", "successive", "together", "with_keys_in_words"]

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


def successive(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of one stage in workers that replaced each other."""
    return _joined(workers, (*_GREATEST, *_PEAKS))


def together(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
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
