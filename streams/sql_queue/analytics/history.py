"""Statistics of a queue over hours and days: per hour, per kind of work, and where they lead.

All of it comes from the rows that are still in the table: rows that were purged are missing in the
counts of rows that came and ended, and in no other number. Hours are in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue.analytics.statistics import (
    CAME,
    WORKING,
    Times,
    measure,
    times_by,
    times_of,
)
from penstock.streams.sql_queue.store import Store

__all__ = ["HOUR", "History", "Hour", "Kind", "Trend", "by_hour", "by_kind"]

HOUR = 3600

# To the millisecond. A cast rounds on PostgreSQL and cuts on SQLite; a division cuts on both.
_HOUR_OF = "CAST({{seconds}}{{{column}}}) * 1000 AS bigint) / 3600000"
_CAME_IN, _ENDED_IN = _HOUR_OF.format(column="enqueued"), _HOUR_OF.format(column="finished")

_CAME = f"""SELECT {_CAME_IN}, count(*) FROM {{rows}} AS t
WHERE {CAME} AND {{seconds}}{{enqueued}}) >= :since GROUP BY 1"""
_ENDED = f"""SELECT {_ENDED_IN},
    count(*) FILTER (WHERE {{status}} = 1), count(*) FILTER (WHERE {{status}} = -1)
FROM {{rows}} AS t
WHERE {{status}} IN (1, -1) AND {{seconds}}{{finished}}) >= :since GROUP BY 1"""
_TIMES_BY_HOUR = times_by(_ENDED_IN)

_SINCE = "{{seconds}}{{{column}}}) >= {{seconds}}{{now}}) - :window"
_CAME_SINCE, _ENDED_SINCE = _SINCE.format(column="enqueued"), _SINCE.format(column="finished")
_KINDS = f"""SELECT {{field}},
    count(*) FILTER (WHERE {{status}} = 0),
    count(*) FILTER (WHERE {{status}} = 9),
    count(*) FILTER (WHERE {{status}} = 1),
    count(*) FILTER (WHERE {{status}} = -1),
    count(*) FILTER (WHERE {CAME} AND {_CAME_SINCE}),
    count(*) FILTER (WHERE {{status}} = 1 AND {_ENDED_SINCE}),
    coalesce(sum({WORKING}) FILTER (WHERE {{status}} = 1 AND {_ENDED_SINCE}), 0)
FROM {{rows}} AS t GROUP BY 1"""
_TIMES_BY_KIND = times_by("{field}")


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour, from `at` (seconds since 1970): rows that came, finished and failed for good.

    `open` is the number of rows that had not ended at its end, delayed ones included. Times are of
    the rows that finished in it, as in `QueueStats`.
    """

    at: int
    came: int
    finished: int
    dead: int
    open: int
    time_waiting: Times | None
    time_in_work: Times | None


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a queue leads to, at `at`.

    In the last hour `came` rows came and `ended` ended, in one way or the other. `due` rows are due
    or in work now: at these rates they have ended after `empty_in` seconds, which is None if as
    many come as end. `growth` is the change of the rows left open, per hour, over all hours: the
    slope of the straight line with the least squares, None for fewer than two hours.
    """

    at: float
    came: int
    ended: int
    due: int
    empty_in: float | None
    growth: float | None


@dataclass(frozen=True, slots=True)
class History:
    """A queue hour by hour. The first hour is whole, the last one is not over."""

    hours: tuple[Hour, ...]
    trend: Trend


@dataclass(frozen=True, slots=True)
class Kind:
    """The rows of one kind; None are rows without one.

    `came` and `done` are the rows that came and finished in the window, `work_seconds` is the time
    that the latter were in work, in all.
    """

    kind: str | None
    waiting: int
    in_work: int
    finished: int
    dead: int
    came: int
    done: int
    work_seconds: float
    time_waiting: Times | None
    time_in_work: Times | None


async def by_hour(store: Store, window: float) -> History:
    """The hours of the last `window` seconds, the one that it began in included.

    Reads the table six times and locks nothing. Raises as `measure` does.
    """
    _check(window)
    recent = await measure(store, float(HOUR))
    first = int((recent.at - window) // HOUR)
    last = int(recent.at // HOUR)
    since = float(first * HOUR)
    came: dict[int, int] = dict(await store.read(_CAME, since=since))
    ended = {hour: counts for hour, *counts in await store.read(_ENDED, since=since)}
    times = await _times(store, _TIMES_BY_HOUR, recent.at - first * HOUR)
    hours: list[Hour] = []
    left = recent.waiting + recent.failed + recent.in_work
    due = left - recent.delayed
    for hour in range(last, first - 1, -1):
        finished, dead = ended.get(hour, (0, 0))
        arrived = came.get(hour, 0)
        hours.append(
            Hour(hour * HOUR, arrived, finished, dead, left, *times.get(hour, (None, None)))
        )
        left += finished + dead - arrived
    hours.reverse()
    came_now = round(recent.arrival_rate * HOUR)
    ended_now = round((recent.service_rate + recent.death_rate) * HOUR)
    growth = _slope([hour.open for hour in hours[:-1]])
    trend = Trend(recent.at, came_now, ended_now, due, recent.empty_in, growth)
    return History(tuple(hours), trend)


async def by_kind(store: Store, window: float, field: str) -> tuple[Kind, ...]:
    """The rows of each kind, those first that took the most work in the last `window` seconds.

    The kind is the value of `field`, which is a column, or a field of the payload. Reads the table
    twice and locks nothing. Memory: an object for each kind. Raises as `measure` does.
    """
    _check(window)
    window = float(window)
    times = await _times(store, _TIMES_BY_KIND, window, field)
    kinds: list[Kind] = []
    for row in await store.read(_KINDS, field=field, window=window):
        name, waiting, in_work, finished, dead, came, done, seconds = row
        counts = (waiting, in_work, finished, dead, came, done)
        kinds.append(Kind(_text(name), *counts, float(seconds), *times.get(name, (None, None))))
    kinds.sort(key=lambda kind: (-kind.work_seconds, -kind.came, kind.kind or ""))
    return tuple(kinds)


async def _times(
    store: Store, text: str, window: float, field: str | None = None
) -> dict[Any, tuple[Times | None, Times]]:
    """Times of waiting and of work, by what the statement groups by."""
    found = await store.read(text, field=field, window=window)
    return {part: times_of(store, numbers) for part, *numbers in found}


def _check(window: float) -> None:
    if not window > 0:
        raise BuildError(f"window={window!r}: positive seconds are needed")


def _text(kind: Any) -> str | None:
    return kind.decode("utf-8", "backslashreplace") if isinstance(kind, bytes) else kind


def _slope(values: list[int]) -> float | None:
    """The slope of the straight line with the least squares through values at 0, 1, 2, ..."""
    n = len(values)
    if n < 2:
        return None
    middle, mean = (n - 1) / 2, sum(values) / n
    rise = sum((at - middle) * (value - mean) for at, value in enumerate(values))
    return rise / sum((at - middle) ** 2 for at in range(n))
