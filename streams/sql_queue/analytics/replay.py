"""Replays the history of a queue in virtual time, with other numbers of pollers.

Each row says when it came, was claimed for the last time, and ended. From that follow how many
rows each poller claimed and worked on at once, and how long the work on each row took (`observed`).
A discrete-event simulation then lets the same rows come again (`replayed`).

What a row does not say is assumed. Pollers of a replay claim when they have nothing left of their
last claim and a slot is free, and work on rows in the order of their ids. Earlier attempts of a row
that failed took as long as the last one. A row that was delivered again because its poller died had
one attempt, for in a replay none dies. Rows that have not ended take as long as others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, groupby
from operator import itemgetter
from random import Random
from statistics import fmean, pstdev
from typing import Any

from penstock.streams.sql_queue.store import Store

__all__ = ["Numbers", "Past", "Replay", "Visit", "observed", "read_visits", "replayed"]

# Numbers of rows that differ more than this, by their coefficient of variation, vary.
_VARIED = 0.1
# The most slots that are tried, and on how many rows of a poller; coefficients of variation that
# differ by less than this are alike.
_MOST, _SAMPLE, _ALIKE = 100, 2_000, 1.02
# A retry that is due so many seconds after its row came is one; a due time may be rounded.
_LATER = 0.002

_VISITS = """SELECT {id}, {seconds}{enqueued}), {seconds}{run_at}), {seconds}{started}),
    {seconds}{finished}), {attempts}, {status}, {owner}
FROM {rows} AS t
WHERE {status} IN (0, 9) AND {attempts} IS NOT NULL
    OR {status} IN (1, -1) AND {finished} > {now} - :window * {second}
ORDER BY {id}"""


@dataclass(frozen=True, slots=True)
class Visit:
    """A row as the table describes it. Times are seconds since 1970."""

    came: float
    due: float
    started: float | None
    ended: float | None
    attempts: int
    owner: str | None


@dataclass(frozen=True, slots=True)
class Numbers:
    """So many `pollers`: each claims up to `batch` rows and has `limit` slots for work."""

    pollers: int
    batch: int
    limit: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The times of the rows that ended, real or replayed.

    `waited` are the seconds from when a row was due until it was claimed for the last time, sorted,
    and `total` the seconds from when it came until it ended. `most` is the most rows that were
    waiting at once, and `empty_at` the first time after that when none was.
    """

    waited: tuple[float, ...]
    total: tuple[float, ...]
    most: int
    empty_at: float


@dataclass(frozen=True, slots=True)
class _Job:
    """A row to replay: `delays` are the waits before the second and later attempts."""

    due: float
    came: float
    work: float
    delays: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """The past according to the rows: the numbers then, the times, and the work to be done.

    `calls` is true where pollers work on all rows of a claim in one call, which takes `each_call`
    seconds, and `each_row` more for each row; `spread` are the ratios of actual times to these.
    """

    numbers: Numbers
    was: Replay
    calls: bool
    each_call: float
    each_row: float
    spread: tuple[float, ...]
    jobs: tuple[_Job, ...]
    begin: float


async def read_visits(store: Store, window: float) -> list[Visit]:
    """The rows that ended in the last `window` seconds, and all that have not ended, by their ids.

    Memory: a few hundred bytes for each. Raises what `Store.read` raises.
    """
    visits: list[Visit] = []
    for row in await store.read(_VISITS, window=float(window)):
        _, *times, attempts, status, owner = row
        # A time that another program wrote as a text is not known.
        enqueued, run_at, started, finished = (
            None if isinstance(time, str) else time for time in times
        )
        came = _first(enqueued, run_at, started, finished)
        if came is None:
            continue
        due = came if run_at is None else max(came, float(run_at))
        ended = None if finished is None or status not in (1, -1) else float(finished)
        begun = None if started is None or ended is None else min(float(started), ended)
        visits.append(Visit(came, due, begun, ended, attempts or 0, owner))
    return visits


def _first(*times: Any) -> float | None:
    return next((float(time) for time in times if time is not None), None)


# What happened.


def observed(visits: Sequence[Visit]) -> Past | None:
    """The past according to the rows, or None if none of them was worked on to its end."""
    done = [visit for visit in visits if visit.started is not None and visit.ended is not None]
    if not done:
        return None
    pollers = _pollers_of(visits)
    calls = _calls_of(pollers)
    in_calls = _are_calls(calls)
    work: dict[int, float] = {}
    each_call = each_row = 0.0
    spread: tuple[float, ...] = (1.0,)
    if in_calls:
        batch = max(len(call.rows) for of_poller in calls for call in of_poller)
        limit = _limit(calls, lambda units, took: _spread(_cost(units, took)[2]))
        units = [call for of_poller in calls for call in of_poller]
        took = [t for of_poller in calls for t in _worked(of_poller, limit)]
        each_call, each_row, spread = _cost(units, took)
    else:
        batch = max(max(Counter(one.started for one in of).values()) for of in pollers)
        limit = _limit(pollers, lambda _, took: _spread(took))
        units = [row for of_poller in pollers for row in of_poller]
        took = [t for of_poller in pollers for t in _worked(of_poller, limit)]
    for unit, seconds in zip(units, took, strict=True):
        work.update(dict.fromkeys(unit.rows, seconds / len(unit.rows)))
    usual = list(work.values())
    rng = Random(0)
    jobs: list[_Job] = []
    for number, visit in enumerate(visits):
        seconds = work[number] if number in work else rng.choice(usual)
        jobs.append(_job(visit, seconds, visits))
    return Past(
        Numbers(_pollers(pollers), batch, limit),
        _what_was(done, visits),
        in_calls,
        each_call,
        each_row,
        spread,
        tuple(jobs),
        min(job.due for job in jobs),
    )


@dataclass(frozen=True, slots=True)
class _Unit:
    """A row, or the rows of a call, by their numbers: when the last was claimed, and the end."""

    started: float
    rows: tuple[int, ...]
    end: float


_Units = list[_Unit]


def _pollers_of(visits: Sequence[Visit]) -> list[_Units]:
    """The rows of each poller in the order in which it claimed them.

    Rows that failed for good have no poller: if there are no others, it was one.
    """
    by_owner: dict[str | None, _Units] = defaultdict(list)
    for number, visit in enumerate(visits):
        if visit.started is not None and visit.ended is not None:
            by_owner[visit.owner].append(_Unit(visit.started, (number,), visit.ended))
    if len(by_owner) > 1:
        by_owner.pop(None, None)
    return [sorted(rows, key=lambda row: (row.started, row.rows)) for rows in by_owner.values()]


def _calls_of(pollers: list[_Units]) -> list[_Units]:
    """Calls with several rows, made of the units that ended together."""
    found: list[_Units] = []
    for rows in pollers:
        together: dict[float, _Units] = defaultdict(list)
        for row in rows:
            together[row.end].append(row)
        found.append(
            [
                _Unit(max(row.started for row in of), tuple(row.rows[0] for row in of), end)
                for end, of in sorted(together.items())
            ]
        )
    return found


def _are_calls(calls: list[_Units]) -> bool:
    """Whether most rows ended together with others, in numbers that vary.

    As many rows each time are more likely slots that began together with work that takes the same.
    """
    sizes = [len(call.rows) for of_poller in calls for call in of_poller]
    alone = sum(size == 1 for size in sizes)
    return sum(sizes) > 2 * alone and _spread(sizes) > _VARIED


def _limit(pollers: list[_Units], uneven: Callable[[_Units, list[float]], float]) -> int:
    """How many rows, or calls, a poller worked on at once: where the times of work differ least.

    With fewer slots some would have had to begin later than they can have, with more the time that
    they waited within their poller would count as work.
    """
    sample = [of_poller[:_SAMPLE] for of_poller in pollers]
    most = min(_MOST, max(_overlap(of_poller) for of_poller in sample))
    found: list[float] = []
    for limit in range(1, most + 1):
        units = [unit for of_poller in sample for unit in of_poller]
        took = [t for of_poller in sample for t in _worked(of_poller, limit)]
        found.append(uneven(units, took))
    least = min(found)
    return 1 + next(at for at, one in enumerate(found) if one <= least * _ALIKE + 1e-9)


def _overlap(units: _Units) -> int:
    """The most units that were claimed and had not ended at once."""
    ends: list[float] = []
    most = 1
    for unit in units:
        while ends and ends[0] <= unit.started:
            heappop(ends)
        heappush(ends, unit.end)
        most = max(most, len(ends))
    return most


def _worked(units: _Units, limit: int) -> list[float]:
    """The seconds of work on each unit: from when it was claimed and a slot was free."""
    slots = [0.0] * limit
    took: list[float] = []
    for unit in units:
        took.append(max(0.0, unit.end - max(unit.started, slots[0])))
        heapreplace(slots, max(unit.end, slots[0]))
    return took


def _spread(numbers: Sequence[float]) -> float:
    """The coefficient of variation."""
    mean = fmean(numbers)
    return pstdev(numbers, mean) / mean if mean else 0.0


def _cost(units: _Units, took: list[float]) -> tuple[float, float, tuple[float, ...]]:
    """The seconds of a call of n rows as a + b n, by least squares, and the ratios to that."""
    sizes = [len(unit.rows) for unit in units]
    middle, mean = fmean(sizes), fmean(took)
    variance = sum((n - middle) ** 2 for n in sizes)
    each_row = mean / middle
    if variance:
        rise = sum((n - middle) * (t - mean) for n, t in zip(sizes, took, strict=True)) / variance
        # Neither a call nor a row takes less than no time.
        each_row = min(max(0.0, rise), mean / middle)
    each_call = mean - each_row * middle
    expected = [each_call + each_row * n for n in sizes]
    ratios = [t / e if e else 1.0 for t, e in zip(took, expected, strict=True)]
    return each_call, each_row, tuple(ratios)


def _pollers(pollers: list[_Units]) -> int:
    """The most pollers that were there at once, from the first claim of each to its last end."""
    steps: list[tuple[float, int]] = []
    for units in pollers:
        steps += [(units[0].started, 1), (max(unit.end for unit in units), -1)]
    most = there = 0
    for _, step in sorted(steps):
        there += step
        most = max(most, there)
    return max(1, most)


def _job(visit: Visit, work: float, visits: Sequence[Visit]) -> _Job:
    retried = visit.attempts > 1 and visit.due > visit.came + _LATER
    if not retried:
        return _Job(visit.due, visit.came, work, ())
    # Of the time until the last attempt was due, what earlier attempts did not wait or work is
    # delays. How long the first one waited is seen by rows that came at the same time.
    times = visit.attempts - 1
    left = visit.due - visit.came - _wait_around(visit.came, visits) - times * work
    weights = [2.0**n for n in range(times)]
    delays = tuple(max(0.0, left) * weight / sum(weights) for weight in weights)
    return _Job(visit.came, visit.came, work, delays)


def _wait_around(came: float, visits: Sequence[Visit]) -> float:
    """How long the next row waited that was tried once."""
    at = bisect_left(visits, came, key=lambda visit: visit.came)
    for visit in visits[at : at + 50]:
        if visit.attempts == 1 and visit.started is not None:
            return max(0.0, visit.started - visit.due)
    return 0.0


def _what_was(done: Sequence[Visit], visits: Sequence[Visit]) -> Replay:
    waited: list[float] = []
    total: list[float] = []
    spans: list[tuple[float, float | None]] = []
    for visit in done:
        assert visit.started is not None
        assert visit.ended is not None
        waited.append(max(0.0, visit.started - visit.due))
        total.append(visit.ended - visit.came)
    for visit in visits:
        spans.append((visit.due, visit.started))
    return _replay(waited, total, spans)


def _replay(
    waited: list[float], total: list[float], spans: Iterable[tuple[float, float | None]]
) -> Replay:
    steps: list[tuple[float, int]] = []
    for due, claimed in spans:
        if claimed is None:
            steps.append((due, 1))
        elif claimed > due:
            steps += [(due, 1), (claimed, -1)]
    steps.sort()
    most = waiting = 0
    empty_at = steps[0][0] if steps else 0.0
    sought = False
    # What one row leaves and another comes to at the same time is not empty in between.
    for at, together in groupby(steps, itemgetter(0)):
        waiting += sum(step for _, step in together)
        if waiting > most:
            most, sought = waiting, True
        elif sought and not waiting:
            empty_at, sought = at, False
    return Replay(
        tuple(sorted(waited)), tuple(sorted(total)), most, float("inf") if sought else empty_at
    )


# The replay.


def replayed(past: Past, numbers: Numbers) -> Replay:
    """The same rows with other numbers. Takes some ten microseconds for each row."""
    return _Replaying(past, numbers).run()


class _Replaying:
    """A discrete-event simulation: rows become due, and slots become free."""

    def __init__(self, past: Past, numbers: Numbers) -> None:
        self._past = past
        self._numbers = numbers
        self._order = count()
        # Times at which rows are due (their numbers from 0) or slots of pollers free (below 0).
        self._events: list[tuple[float, int, int]] = [
            (job.due, next(self._order), number) for number, job in enumerate(past.jobs)
        ]
        heapify(self._events)
        self._due: list[int] = []
        self._due_at: dict[int, float] = {job: past.jobs[job].due for job in range(len(past.jobs))}
        self._attempts = [0] * len(past.jobs)
        # The slots of each poller that are free, and what it claimed and has not begun.
        self._free = [numbers.limit] * numbers.pollers
        self._claimed: list[deque[int]] = [deque() for _ in range(numbers.pollers)]
        # In rotation, as pollers that wait for work get it.
        self._idle: deque[int] = deque(range(numbers.pollers))
        self._rng = Random(1)
        self._waited: dict[int, float] = {}
        self._total: list[float] = []
        self._spans: list[tuple[float, float | None]] = []

    def run(self) -> Replay:
        while self._events:
            now, _, number = heappop(self._events)
            now = max(now, self._past.begin)
            if number >= 0:
                heappush(self._due, number)
            else:
                self._freed(-1 - number, now)
            # Rows that are due at the same time are claimed together.
            if not self._events or self._events[0][0] > now:
                self._claim(now)
        return _replay(list(self._waited.values()), self._total, self._spans)

    def _freed(self, poller: int, now: float) -> None:
        self._free[poller] += 1
        if self._claimed[poller]:
            self._begin(poller, now)
        elif poller not in self._idle:
            self._idle.append(poller)

    def _claim(self, now: float) -> None:
        while self._due and self._idle:
            poller = self._idle.popleft()
            rows = [heappop(self._due) for _ in range(min(self._numbers.batch, len(self._due)))]
            for row in rows:
                due = self._due_at[row]
                self._waited[row] = now - due
                self._spans.append((due, now))
            self._claimed[poller].extend(rows)
            self._begin(poller, now)
            if self._free[poller] and not self._claimed[poller]:
                self._idle.append(poller)

    def _begin(self, poller: int, now: float) -> None:
        """Use the free slots of a poller for its claimed rows."""
        claimed = self._claimed[poller]
        while claimed and self._free[poller]:
            self._free[poller] -= 1
            if self._past.calls:
                rows = list(claimed)
                claimed.clear()
                took = self._past.each_call + self._past.each_row * len(rows)
                took *= self._rng.choice(self._past.spread)
            else:
                rows = [claimed.popleft()]
                took = self._past.jobs[rows[0]].work
            end = now + took
            heappush(self._events, (end, next(self._order), -1 - poller))
            for row in rows:
                self._ended(row, end)

    def _ended(self, row: int, end: float) -> None:
        job = self._past.jobs[row]
        attempt = self._attempts[row]
        self._attempts[row] += 1
        if attempt < len(job.delays):
            again = end + job.delays[attempt]
            self._due_at[row] = again
            heappush(self._events, (again, next(self._order), row))
        else:
            self._total.append(end - job.came)
