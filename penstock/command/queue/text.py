"""Formats the statistics of a queue as a few lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.command.output import aligned
from penstock.streams.base.errors import counted
from penstock.streams.sql_queue.analytics.history import History, Kind, Trend
from penstock.streams.sql_queue.analytics.statistics import Poller, QueueStats, Times
from penstock.streams.sql_queue.store import PeriodicJob

__all__ = ["as_text", "hours_as_text", "kinds_as_text", "span"]


def as_text(name: str, stats: QueueStats) -> str:
    """The output of `penstock queue stats`."""
    oldest = stats.oldest_waiting
    line = "" if oldest is None else f"; row {oldest.id} is first, due for {span(oldest.seconds)}"
    delayed = f"; {stats.delayed:,} of the waiting and failed are not due" if stats.delayed else ""
    snoozed = f"; {stats.snoozed:,} snoozed" if stats.snoozed else ""
    expired = f"; the lease of {stats.expired:,} has run out" if stats.expired else ""
    repeated = f", {_deliveries(stats.repeated)} repeated" if stats.repeated else ""
    dead = f", {_rate(stats.death_rate)} failed for good" if stats.death_rate else ""
    cancelled = f", {stats.cancelled:,} of them cancelled" if stats.cancelled else ""
    empty = f"; empty in {span(stats.empty_in)}" if stats.empty_in else ""
    lines = [
        f"{name}{' (paused)' if stats.paused else ''}:",
        f"  waiting   {stats.waiting:,}{line}{delayed}{snoozed}",
        *_priorities(stats),
        f"  failed    {stats.failed:,}, to be tried again",
        f"  in work   {stats.in_work:,}{expired}",
        f"  finished  {stats.finished:,}",
        f"  dead      {stats.dead:,}{cancelled}",
        f"  rows/s over {stats.window:g} s: {_rate(stats.arrival_rate)} came, "
        f"{_rate(stats.service_rate)} finished{dead}{repeated}{empty}",
    ]
    times = (("waiting", stats.time_waiting), ("in work", stats.time_in_work))
    if rows := [_times(what, found) for what, found in times if found is not None]:
        lines += aligned([("seconds", "mean", "p50", "p95", "p99", "max"), *rows])
    if stats.pollers:
        heading = ("poller", "in work", "expired", "finished", "rows/s", "s a row")
        lines += aligned([heading, *map(_poller, stats.pollers)])
    if stats.periodic:
        jobs = ("periodic", "schedule", "next (UTC)", "last (UTC)", "missed")
        lines += aligned([jobs, *map(_periodic, stats.periodic)])
    return "\n".join([*lines, ""])


def _priorities(stats: QueueStats) -> list[str]:
    counts = ", ".join(f"{count:,} of {rank}" for rank, count in stats.priorities)
    return [f"  priority  {counts}"] if counts else []


def _deliveries(count: int) -> str:
    return counted(count, "delivery", "deliveries")


def hours_as_text(name: str, history: History) -> str:
    """The output of `penstock queue stats --by hour`."""
    rows = [
        (
            f"{_time(hour.at):%Y-%m-%d %H:%M}",
            f"{hour.came:,}",
            f"{hour.finished:,}",
            f"{hour.dead:,}",
            f"{hour.open:,}",
            *_percentiles(hour.time_waiting),
            *_percentiles(hour.time_in_work),
        )
        for hour in history.hours
    ]
    heading = ("hour (UTC)", "came", "finished", "dead", "open", *_SECONDS)
    return "\n".join([f"{name}:", *aligned([heading, *rows]), *_trend(history.trend), ""])


def kinds_as_text(name: str, field: str, window: float, kinds: Sequence[Kind]) -> str:
    """The output of `penstock queue stats --by kind`."""
    total = sum(kind.work_seconds for kind in kinds) or 1.0
    rows = [
        (
            "(none)" if kind.kind is None else kind.kind,
            f"{kind.waiting:,}",
            f"{kind.in_work:,}",
            f"{kind.finished:,}",
            f"{kind.dead:,}",
            f"{kind.came:,}",
            f"{kind.done:,}",
            f"{kind.work_seconds / total:.0%}",
            *_percentiles(kind.time_waiting),
            *_percentiles(kind.time_in_work),
        )
        for kind in kinds
    ]
    heading = (field, "waiting", "in work", "finished", "dead", "came", "done", "work", *_SECONDS)
    lines = [f"{name}; came, done, work and seconds are of the last {span(window)}:"]
    return "\n".join([*lines, *aligned([heading, *rows]), ""])


_SECONDS = ("waited p50", "p95", "in work p50", "p95")


def _percentiles(times: Times | None) -> tuple[str, str]:
    return ("", "") if times is None else (f"{times.p50:,.3f}", f"{times.p95:,.3f}")


def _trend(trend: Trend) -> list[str]:
    lines = [f"  last hour: {trend.came:,} came, {trend.ended:,} ended"]
    if not trend.due:
        lines[0] += "; nothing is due"
    elif trend.empty_in is None:
        lines[0] += "; at these rates it will not be empty"
    else:
        when = f"{_time(trend.at + trend.empty_in):%Y-%m-%d %H:%M}"
        lines[0] += f"; at these rates it is empty in {span(trend.empty_in)}, at {when}"
    if trend.growth is not None:
        lines.append(f"  trend: {trend.growth:+,.1f} rows left open per hour")
    return lines


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _rate(rate: float) -> str:
    """Rows per second with two or more significant digits."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def span(seconds: float) -> str:
    """Seconds with about two digits, in a suitable unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _times(name: str, times: Times) -> tuple[str, ...]:
    numbers = (times.mean, times.p50, times.p95, times.p99, times.max)
    return (name, *(f"{number:,.3f}" for number in numbers))


def _periodic(job: PeriodicJob) -> tuple[str, ...]:
    times = ("" if at is None else f"{_time(at):%Y-%m-%d %H:%M:%S}" for at in (job.next, job.last))
    return (job.name, job.schedule, *times, f"{job.missed:,}")


def _poller(poller: Poller) -> tuple[str, ...]:
    seconds = poller.in_work_seconds
    return (
        poller.owner,
        f"{poller.in_work:,}",
        f"{poller.expired:,}",
        f"{poller.finished:,}",
        _rate(poller.service_rate),
        "" if seconds is None else f"{seconds:,.3f}",
    )
