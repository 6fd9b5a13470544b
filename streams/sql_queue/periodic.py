"""Periodic jobs of a queue: rows that its readers enqueue at times of a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any, Literal

from penstock.streams.base.duration import in_seconds
from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import missing_extra
from penstock.streams.base.validation import seconds_in
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.store import Enqueued, PeriodicJob, Store, payload_of

__all__ = ["Periodic", "Scheduler"]

# The most times that are made up for at once; the next look makes up for more.
_MOST = 1_000
# Seconds that a time may be late without being missed: readers look at least so often.
_LATE = 60.0
# Seconds between two looks, at least and at most.
_SOON, _LATEST = 0.01, 60.0


@dataclass(frozen=True, slots=True)
class Periodic:
    """A job of `read_table(periodic=)`: a row with `payload` at each time of a schedule.

    The schedule is either `every` so many seconds, or a timedelta, counted from 1970, or a `cron`
    expression of five fields in the zone `tz` (UTC by default), which needs the extra `cron`.
    `missed` says what becomes of the times at which no reader was running: "last" enqueues one row
    for all of them, "all" one for each, "none" nothing. A time counts as missed a minute later.
    `priority` is that of the rows. Raises BuildError for anything else.
    """

    payload: Mapping[str, Any]
    every: float | timedelta | None = None
    cron: str | None = None
    missed: Literal["last", "all", "none"] = "last"
    priority: int = 0
    tz: tzinfo = UTC

    def __post_init__(self) -> None:
        if (self.every is None) == (self.cron is None):
            raise BuildError("Periodic(...): either every= or cron= is needed")
        if self.every is not None:
            seconds_in("Periodic", 0.1, every=self.every)
        if self.missed not in ("last", "all", "none"):
            raise BuildError(f'Periodic(missed={self.missed!r}): "last", "all" or "none" is needed')
        if not isinstance(self.tz, tzinfo):  # pyright: ignore[reportUnnecessaryIsInstance]
            zone = 'such as ZoneInfo("Europe/Athens")'
            raise BuildError(f"Periodic(tz={self.tz!r}): a zone is needed, {zone}")
        try:
            payload_of(self.payload)
            next(self.times(0.0))
        except (TypeError, StopIteration) as error:
            raise BuildError(f"{self!r}: {error or 'it has no times'}") from error

    @property
    def _every(self) -> float | None:
        return None if self.every is None else in_seconds(self.every)

    @property
    def text(self) -> str:
        """What the schedule is, as the database has it."""
        return f"every {self._every!r}" if self.cron is None else f"cron {self.cron} {self.tz}"

    def times(self, after: float) -> Iterator[float]:
        """The times after one, in seconds since 1970."""
        if (every := self._every) is not None:
            # Rounded, the quotient may be one too few.
            n = int(after // every) - 1
            while True:
                n += 1
                if (time := n * every) > after:
                    yield time
        for moment in self._moments(after):
            yield moment.timestamp()

    def latest(self, until: float) -> float:
        """The last time that is not after this one."""
        if (every := self._every) is not None:
            n = int(until // every) + 1
            while n * every > until:
                n -= 1
            return n * every
        return next(self._moments(until + 1.0, reverse=True)).timestamp()

    def _moments(self, start: float, *, reverse: bool = False) -> Iterator[datetime]:
        """The times after the start, or before it, of a cron expression."""
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise missing_extra(f"Periodic(cron=) needs cronsim ({error})", "cron") from error
        try:
            return CronSim(self.cron or "", datetime.fromtimestamp(start, self.tz), reverse=reverse)
        except CronSimError as error:
            raise BuildError(f"Periodic(cron={self.cron!r}): {error}") from error

    def missed_of(self, planned: float, now: float) -> int:
        """How many times from the `planned` one on have passed unnoticed, of at most a thousand."""
        times = chain([planned], islice(self.times(planned), _MOST - 1))
        return sum(1 for _ in takewhile(lambda time: now - time > _LATE, times))

    def due(self, planned: float, now: float) -> tuple[list[float], float]:
        """The times for which to enqueue rows, and the next one, if the next was `planned`."""
        if planned > now:
            return [], planned
        if self.missed == "all":
            times = [planned, *islice(self.times(planned), _MOST)]
            due = [time for time in times if time <= now]
        else:
            latest = self.latest(now)
            is_missed = self.missed == "none" and now - latest > _LATE
            due = [] if is_missed else [latest]
        return due, next(self.times(due[-1] if due else now))


class Scheduler:
    """Enqueues the rows of periodic jobs, by their names, whenever a time has come.

    The next time of each job is in a table beside the queue. Who moves it from one time to the next
    enqueues the row in the same transaction; so of several schedulers one does.
    """

    def __init__(self, store: Store, insist: Reconnecting, jobs: Mapping[str, Periodic]) -> None:
        self.count = 0
        """How many rows were enqueued here."""
        self.planned: dict[str, PeriodicJob] = {}
        """The jobs, as they were at the last look."""
        self._store = store
        self._insist = insist
        self._jobs = jobs

    async def work(self) -> None:
        """Enqueue rows at their times, for ever."""
        store, insist = self._store, self._insist
        now = await insist(store.now)
        for name, job in self._jobs.items():
            await insist(partial(store.plan, name, job.text, next(job.times(now))))
        while True:
            now = await insist(store.now)
            first = now + _LATEST
            found = await insist(store.planned)
            self.planned = {name: found[name] for name in self._jobs if name in found}
            for name, job in self._jobs.items():
                one = found.get(name)
                if one is None:
                    # Somebody has removed it.
                    one = PeriodicJob(name, job.text, next(job.times(now)))
                    await insist(partial(store.plan, name, job.text, one.next))
                due, after = job.due(one.next, now)
                if due or after != one.next:
                    payload = payload_of(job.payload)
                    rows = [Enqueued(payload, at, job.priority) for at in due]
                    missed = job.missed_of(one.next, now)
                    if await insist(partial(store.move, name, one.next, after, rows, missed)):
                        self.count += len(rows)
                        last = due[-1] if due else one.last
                        one = replace(one, next=after, last=last, missed=one.missed + missed)
                self.planned[name] = one
                first = min(first, after)
            await asyncio.sleep(max(_SOON, min(_LATEST, first - await insist(store.now))))
