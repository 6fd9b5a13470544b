"""Formats the stages and the marks of a store as two tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.command.output import aligned

__all__ = ["Mark", "Stage", "as_text"]


@dataclass(frozen=True)
class Stage:
    """A stage of which states are kept; `due` is when its next timer, or the next end of a state,
    is due."""

    name: str
    by: str
    version: int
    keys: int
    bytes: int
    due: datetime | float | None


@dataclass(frozen=True)
class Mark:
    """How far a source is done: all before so many lines and bytes, or before the offset `lines` of
    a partition of Kafka, and the lines or offsets `finished` after those, each range from the first
    to the last. None where that is not known. `waits_for` is the oldest line or offset that is not
    done, if later ones are: it is in flight, or the last run has ended before it was done."""

    partition: str
    lines: int | None
    bytes: int | None
    finished: list[tuple[int, int]]
    waits_for: int | None


@dataclass(frozen=True)
class TimeLine:
    """The greatest time of the events of a line that are done, before any that is not."""

    name: str
    time: datetime | float | None


def as_text(name: str, stages: list[Stage], marks: list[Mark], times: list[TimeLine]) -> str:
    """The output of `penstock state show`."""
    lines = [f"{name}:"]
    if stages:
        of_stages = ("stage", "by", "version", "keys", "bytes", "next timer (UTC)")
        lines += aligned([of_stages, *map(_stage, stages)], texts=2)
    if all(one.lines is one.bytes is None for one in marks):
        # As partitions of NATS, of which `penstock status` shows the progress.
        lines += aligned([("done",), *((one.partition,) for one in marks)]) if marks else []
    else:
        of_marks = ("done", "lines", "bytes", "and lines", "waits for")
        lines += aligned([of_marks, *map(_mark, marks)])
    if times:
        of_times = ("event time", "greatest (UTC)")
        lines += aligned([of_times, *((one.name, _shown(one.time)) for one in times)])
    if not (stages or marks):
        lines.append("  nothing is kept in it")
    return "\n".join([*lines, ""])


def _stage(stage: Stage) -> tuple[str, ...]:
    numbers = (f"{number:,}" for number in (stage.version, stage.keys, stage.bytes))
    return stage.name, stage.by, *numbers, _shown(stage.due)


def _shown(time: datetime | float | None) -> str:
    if time is None:
        return "-"
    return f"{time:%Y-%m-%d %H:%M:%S}" if isinstance(time, datetime) else str(time)


def _mark(mark: Mark) -> tuple[str, ...]:
    shown = (
        f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in mark.finished
    )
    numbers = ("-" if number is None else f"{number:,}" for number in (mark.lines, mark.bytes))
    awaited = "-" if mark.waits_for is None else f"{mark.waits_for:,}"
    return mark.partition, *numbers, ", ".join(shown) or "-", awaited
