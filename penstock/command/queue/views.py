"""The views of `penstock queue stats`: a queue at this moment, by the hour, or by kind of work."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from penstock.command.output import write
from penstock.command.queue.text import as_text, hours_as_text, kinds_as_text
from penstock.streams.base.errors import BuildError
from penstock.streams.pictures.steps import Steps, as_svg
from penstock.streams.sql_queue import Store
from penstock.streams.sql_queue.analytics.history import HOUR, History, by_hour, by_kind
from penstock.streams.sql_queue.analytics.statistics import Times, measure

__all__ = ["check", "look"]

_MINUTE, _DAY = 60.0, 86_400.0
_UNKNOWN = Times(*[float("nan")] * 5)


def check(options: Namespace) -> None:
    """Raise BuildError for options that would be ignored, or need others."""
    if (options.kind is None) == (options.by == "kind"):
        raise BuildError(
            "--by kind and --kind FIELD go together: the field of the payload, or the column, that "
            "says the kind"
        )
    if options.plot is None:
        return
    if options.by != "hour":
        raise BuildError("--plot goes with --by hour")
    if not options.plot.endswith(".svg"):
        raise BuildError(f"--plot {options.plot}: the name must end in .svg")


async def look(store: Store, name: str, options: Namespace) -> tuple[object, str]:
    """The numbers that the options ask for, and their text."""
    window: float = options.window or (_MINUTE if options.by is None else _DAY)
    if options.by == "hour":
        history = await by_hour(store, window)
        if options.plot is not None:
            write(_picture(name, history), options.plot)
        return history, hours_as_text(name, history)
    if options.by == "kind":
        kinds = await by_kind(store, window, options.kind)
        if kinds and all(kind.kind is None for kind in kinds):
            raise BuildError(
                f"--kind {options.kind}: no payload has this field, and there is no such column"
            )
        return kinds, kinds_as_text(name, options.kind, window, kinds)
    stats = await measure(store, window)
    return stats, as_text(name, stats)


def _picture(name: str, history: History) -> str:
    """Rows in and out above, and how long rows waited and were in work below."""
    rows: dict[str, Steps] = {"open": [], "came": [], "finished": [], "dead": []}
    seconds: dict[str, Steps] = {"waited p50": [], "waited p95": [], "in work p95": []}
    end = max(history.trend.at, history.hours[-1].at + 1)
    for hour in history.hours:
        span = _time(hour.at), _time(min(hour.at + HOUR, end))
        for what, steps in rows.items():
            steps.append((*span, getattr(hour, what)))
        # The panels have one axis of time, although nothing finished in this hour.
        waiting, in_work = hour.time_waiting or _UNKNOWN, hour.time_in_work or _UNKNOWN
        seconds["waited p50"].append((*span, waiting.p50))
        seconds["waited p95"].append((*span, waiting.p95))
        seconds["in work p95"].append((*span, in_work.p95))
    if not any(hour.dead for hour in history.hours):
        del rows["dead"]
    return as_svg((f"{name}: rows per hour, and rows left open", rows), ("seconds", seconds))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
