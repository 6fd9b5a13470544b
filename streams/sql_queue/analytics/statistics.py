"""Statistics of a queue: rows by state, rates of arrival and service, and times.

All of it comes from the columns of the table: `enqueued`, `run_at`, `started`, `finished`, `owner`
and `attempts`. Times are by the database's clock. Percentiles are nearest-rank: the least value
that is not exceeded by that percentage of all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue.claimed import CANCELLED
from penstock.streams.sql_queue.store import PeriodicJob, Store

__all__ = [
    "CAME",
    "WORKING",
    "Oldest",
    "Poller",
    "QueueStats",
    "Times",
    "Unclaimed",
    "measure",
    "times_by",
    "times_of",
    "unclaimed",
]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that rows took: mean, percentiles and maximum."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Oldest:
    """The first waiting row, and for how many seconds it has been due."""

    id: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Poller:
    """One reader: rows that it holds, and what it finished in the window.

    `expired` are those held whose lease has run out; `in_work_seconds` is the mean per row.
    """

    owner: str
    in_work: int
    expired: int
    finished: int
    service_rate: float
    in_work_seconds: float | None


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The rows that nobody holds, of the kinds that this reader claims.

    `due` now, `delayed` until later, and `left`: those that are due or to be tried again later. The
    lowest `priorities`, each with the number of its rows; empty if there are none but 0.
    """

    due: int = 0
    delayed: int = 0
    left: int = 0
    priorities: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at one moment, and over the last `window` seconds.

    Every row is in one of `waiting` (not tried yet), `failed` (to be tried again), `in_work`,
    `finished` or `dead` (failed for good), `cancelled` of these by hand. `delayed` of the waiting
    and failed are not due yet, and the lease of `expired` of the rows in work has run out. Rates
    are rows per second over the window; at these rates the rows that are due or in work have ended
    after `empty_in` seconds, which is None if as many come as end. `repeated` counts the
    redeliveries of rows that ended in it. Times are of rows that finished in it: `time_waiting`
    from when a row was due until it was claimed for the last time, None also where the table does
    not say when rows came; `time_in_work` from then until it was finished. `priorities` are those
    of the rows that wait or are to be tried again, each with their number; empty if there are none
    but 0. `paused` is whether readers claim nothing for now. `snoozed` of the waiting were put off
    by their handler. `periodic` are the jobs of the queue's readers. `at` is seconds since 1970.
    """

    at: float
    window: float
    waiting: int
    delayed: int
    failed: int
    in_work: int
    expired: int
    finished: int
    dead: int
    arrival_rate: float
    service_rate: float
    death_rate: float
    empty_in: float | None
    repeated: int
    oldest_waiting: Oldest | None
    time_waiting: Times | None
    time_in_work: Times | None
    pollers: tuple[Poller, ...]
    priorities: tuple[tuple[int, int], ...] = ()
    paused: bool = False
    cancelled: int = 0
    snoozed: int = 0
    periodic: tuple[PeriodicJob, ...] = ()


# A clock that was set back never makes a time negative. In a user's own table both may be null.
_DUE = (
    "CASE WHEN {run_at} > {enqueued} THEN {run_at} ELSE coalesce({enqueued}, {run_at}, {now}) END"
)
_WAITING = f"{{seconds}}CASE WHEN {{started}} > {_DUE} THEN {{started}} - ({_DUE}) END)"
WORKING = "{seconds}CASE WHEN {finished} > {started} THEN {finished} - {started} END)"
_SINCE = "{now} - :window * {second}"
# Rows of another status are not of the queue. Of those that ended before it knew of them no end is
# known, so they would stay open in what is computed from rows that came and ended.
CAME = "({status} IN (0, 9) OR {status} IN (1, -1) AND {finished} IS NOT NULL)"

# What was claimed and given back has no time at which its work began.
SNOOZED = "{status} = 0 AND {started} IS NOT NULL AND {attempts} = 0 AND {error} IS NULL"

_COUNTS = f"""SELECT {{seconds}}{{now}}),
    count(*) FILTER (WHERE {{status}} = 0 AND {{error}} IS NULL),
    count(*) FILTER (WHERE {{status}} = 0 AND NOT {{is_due}}),
    count(*) FILTER (WHERE {{status}} = 0 AND {{error}} IS NOT NULL),
    count(*) FILTER (WHERE {{status}} = 9),
    count(*) FILTER (WHERE {{status}} = 9 AND {{expires}} <= {{now}}),
    count(*) FILTER (WHERE {{status}} = 1),
    count(*) FILTER (WHERE {{status}} = -1),
    count(*) FILTER (WHERE {{status}} = -1 AND {{error}} = :cancelled),
    count(*) FILTER (WHERE {SNOOZED}),
    count(*) FILTER (WHERE {CAME} AND {{enqueued}} > {_SINCE}),
    count(*) FILTER (WHERE {{status}} = 1 AND {{finished}} > {_SINCE}),
    count(*) FILTER (WHERE {{status}} = -1 AND {{finished}} > {_SINCE}),
    coalesce(sum({{attempts}} - 1) FILTER (
        WHERE {{status}} IN (1, -1) AND {{attempts}} > 1 AND {{finished}} > {_SINCE}), 0)
FROM {{rows}} AS t"""

# A comparison with both bounds uses the index, in which rows that have ended are not.
_WAITS = """SELECT count(*) FILTER (WHERE {is_due}),
    count(*) FILTER (WHERE NOT {is_due}),
    count(*) FILTER (WHERE {is_due} OR {attempts} > 0)
FROM {rows} AS t WHERE {status} >= 0 AND {status} <= 0{only}"""

# In the order in which rows are claimed.
_OLDEST = f"""SELECT {{id}}, {{seconds}}{{now}} - ({_DUE})) FROM {{rows}} AS t
WHERE {{waits}} AND {{is_due}} ORDER BY {{by_index}} LIMIT 1"""

_PRIORITIES = """SELECT {rank}, count(*) FROM {table} AS t WHERE {waits}{only}
GROUP BY 1 ORDER BY 1 LIMIT :most"""


def _summary(column: str) -> str:
    ranks = (f"min({column}) FILTER (WHERE {column}_rank * 100 >= {p} * n)" for p in (50, 95, 99))
    return ", ".join([f"avg({column})", *ranks, f"max({column})"])


def times_by(part: str) -> str:
    """A statement for the times of the rows that finished in the window, grouped by `part`.

    Its rows are the part, and mean, p50, p95, p99 and maximum of the seconds that rows waited and
    were in work. The table is called `t`.
    """
    return f"""WITH done AS (
    SELECT {part} AS part, coalesce({_WAITING}, 0) AS waiting, coalesce({WORKING}, 0) AS working
    FROM {{rows}} AS t
    WHERE {{status}} = 1 AND {{finished}} > {_SINCE} AND {{started}} IS NOT NULL
), ranked AS (
    SELECT part, waiting, working, count(*) OVER (PARTITION BY part) AS n,
        row_number() OVER (PARTITION BY part ORDER BY waiting) AS waiting_rank,
        row_number() OVER (PARTITION BY part ORDER BY working) AS working_rank
    FROM done
)
SELECT part, {_summary("waiting")}, {_summary("working")} FROM ranked GROUP BY part"""


def times_of(store: Store, numbers: Sequence[Any]) -> tuple[Times | None, Times]:
    """The times of waiting, where they are known, and of work, of a row of such a statement."""
    waiting = Times(*map(float, numbers[:5])) if store.layout.knows_arrivals else None
    return waiting, Times(*map(float, numbers[5:]))


_TIMES = times_by("1")

_POLLERS = f"""SELECT {{owner}},
    count(*) FILTER (WHERE {{status}} = 9),
    count(*) FILTER (WHERE {{status}} = 9 AND {{expires}} <= {{now}}),
    count(*) FILTER (WHERE {{status}} = 1),
    avg(coalesce({WORKING}, 0)) FILTER (WHERE {{status}} = 1)
FROM {{rows}} AS t
WHERE {{owner}} IS NOT NULL AND ({{status}} = 9 OR {{status}} = 1 AND {{finished}} > {_SINCE})
GROUP BY {{owner}} ORDER BY {{owner}}"""


async def measure(store: Store, window: float) -> QueueStats:
    """The statistics of a queue over the last `window` seconds.

    Reads the table three times and locks nothing; the time grows with the number of rows (`purge`
    deletes finished ones). Raises what `Store.query` raises, and BuildError unless `window` is
    positive.
    """
    if not window > 0:
        raise BuildError(f"window={window!r}: positive seconds are needed")
    window = float(window)
    ((at, *numbers),) = await store.read(_COUNTS, window=window, cancelled=CANCELLED)
    (*states, arrived, done, died, repeated) = map(int, numbers)
    waiting, delayed, failed, in_work, expired, finished, dead, cancelled, snoozed = states
    summary = [times_of(store, row[1:]) for row in await store.read(_TIMES, window=window)]
    time_waiting, time_in_work = summary[0] if summary else (None, None)
    oldest = await store.read(_OLDEST)
    pollers = await store.read(_POLLERS, window=window)
    due = waiting + failed + in_work - delayed
    surplus = done + died - arrived
    return QueueStats(
        at=float(at),
        window=window,
        waiting=waiting,
        delayed=delayed,
        failed=failed,
        in_work=in_work,
        expired=expired,
        finished=finished,
        dead=dead,
        arrival_rate=arrived / window,
        service_rate=done / window,
        death_rate=died / window,
        empty_in=0.0 if not due else due * window / surplus if surplus > 0 else None,
        repeated=repeated,
        oldest_waiting=Oldest(oldest[0][0], max(0.0, float(oldest[0][1]))) if oldest else None,
        time_waiting=time_waiting,
        time_in_work=time_in_work,
        pollers=tuple(_poller(row, window) for row in pollers),
        priorities=await _priorities(store, maxsize),
        paused=await store.is_paused(),
        cancelled=cancelled,
        snoozed=snoozed,
        periodic=tuple((await store.planned()).values()),
    )


async def unclaimed(store: Store, most: int) -> Unclaimed:
    """The rows that nobody holds, with the `most` lowest priorities.

    The time grows with the number of these rows.
    """
    ((due, delayed, left),) = await store.read(_WAITS)
    return Unclaimed(int(due), int(delayed), int(left), await _priorities(store, most))


async def _priorities(store: Store, most: int) -> tuple[tuple[int, int], ...]:
    if not store.is_ranked:
        return ()
    found = [(rank, count) for rank, count in await store.read(_PRIORITIES, most=most)]
    return tuple(found) if any(rank for rank, _ in found) else ()


def _poller(row: tuple[Any, ...], window: float) -> Poller:
    owner, in_work, expired, finished, mean = row
    seconds = None if mean is None else float(mean)
    return Poller(owner, in_work, expired, finished, finished / window, seconds)
