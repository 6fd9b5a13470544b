"""Statistics of a running pipeline: snapshots of its numbers, and the report at its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.streams.errors import BuildError, MissingExtra
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run, Statistics
from penstock.streams.runtime.report_text import as_text
from penstock.streams.runtime.sources import Counts

__all__ = ["Outcome", "Report", "State", "numbers_of", "snapshot"]

Outcome = Literal["completed", "drained", "output closed", "stopped", "overrun", "cancelled"]
State = Literal["running", "paused", "draining"]


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """How a pipeline ended; before the end, its present state.

    `statistics` is the last snapshot; `error` is what stopped the pipeline. `str(report)` is the
    text that `penstock run` prints: a few lines, however long the pipeline ran.
    """

    outcome: Outcome | State
    statistics: dict[str, Any]
    error: BaseException | None = None

    @property
    def exit_status(self) -> int:
        """The exit status for a process.

        0 all finished; 1 stopped by an error; 2 an input or output cannot be opened, or the
        pipeline cannot be built after all; 3 completed or drained, but some lines or events
        were bad, skipped or routed; 4 drained on a signal, nothing lost; 5 cancelled, or past
        the deadline with unfinished events, or not ended yet.
        """
        numbers = self.statistics
        if self.outcome == "stopped":
            return 2 if isinstance(self.error, BuildError | MissingExtra) else 1
        if self.outcome in ("overrun", "cancelled", "running", "paused", "draining"):
            return 5
        if numbers["failed"] or numbers["bad_lines"]:
            return 3
        return 4 if self.outcome == "drained" else 0

    def __str__(self) -> str:
        return as_text(self.outcome, self.statistics)

    def __repr__(self) -> str:
        numbers = self.statistics
        counts = f"{numbers['in']:,} in, {numbers['finished']:,} finished"
        why = "" if self.error is None else f" by {type(self.error).__name__}"
        return f"<Report {self.outcome}{why}: {counts}>"


def snapshot(
    run: Run, sinks: Iterable[tuple[StageInfo, Statistics]], state: str, seconds: float
) -> dict[str, Any]:
    """The numbers of a running pipeline as a plain dict; `Running.statistics` lists them."""
    counts = Counts(run.past)
    emitted: list[float | None] = []
    for source in run.sources:
        numbers = source.statistics()
        emitted.append(numbers.get("emitted"))
        counts.add(numbers)
    unfinished = counts.unfinished
    stages = [numbers_of(*stage) for stage in sorted(run.stages, key=lambda stage: stage[0].number)]
    stages += [numbers_of(*sink) for sink in sinks]
    # Several children of one event may be in flight; the event counts once.
    in_flight = min(unfinished, sum(_all("in_flight", stages)))
    groups, latencies = (_all(name, stages) for name in ("groups", "latency"))
    limits = _limits(stages)
    return {
        "state": state,
        "seconds": seconds,
        **counts.totals,
        "dropped": counts.dropped,
        "progress": _progress(emitted, counts),
        "unfinished": unfinished,
        "waiting": unfinished - in_flight,
        "in_flight": in_flight,
        "bad_lines": run.errors.bad_lines,
        "limit": sum(limit for limit, _ in limits) if limits else None,
        "limit_reason": "; ".join(reason for _, reason in limits if reason),
        "groups": sum(groups) if groups else None,
        "closed_early": dict(run.errors.closed_early),
        "errors": dict(run.errors.kinds),
        "latency": latencies[0] if latencies else None,
        "stages": stages,
    }


def _progress(emitted: list[float | None], counts: Counts) -> float | None:
    """The part of the input that is done with, if its events are about equally long."""
    parts = [part for part in emitted if part is not None]
    if not parts or len(parts) < len(emitted):
        return None
    came = counts.totals["in"]
    done = came - counts.unfinished - counts.totals["returned"]
    return min(parts) * (done / came if came else 1.0)


def numbers_of(info: StageInfo, statistics: Statistics) -> dict[str, Any]:
    """The numbers of one stage, an element of `stages` in a snapshot."""
    return {"stage": info.number, "name": info.name, "detail": info.detail, **statistics()}


def _limits(stages: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Each limit with its reason; a limit that several stages share counts once."""
    found: dict[Any, tuple[int, str]] = {}
    for at, stage in enumerate(stages):
        if "limit" in stage:
            shared = stage.get("shared")
            name = ("stage", at) if shared is None else ("shared", shared["number"])
            found[name] = (stage["limit"], stage.get("limit_reason", ""))
    return list(found.values())


def _all(name: str, stages: list[dict[str, Any]]) -> list[Any]:
    return [stage[name] for stage in stages if name in stage]
