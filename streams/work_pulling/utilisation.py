"""How busy the workers of an epic are, and how many of them pay."""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import NamedTuple

__all__ = ["Use", "Utilisation"]

# Seconds to which rates and shares refer, and between two samples of them.
_WINDOW, _PAUSE = 60.0, 1.0
# Jobs for each pair of workers before a rate counts. If jobs end at random (a Poisson process), the
# error of a gain is then about a quarter of a worker's share.
_JOBS = 32
# Workers that are less busy are too many for the epic; so many would be as busy as they should be.
_IDLE, _TARGET = 0.8, 0.9
# Workers that are as busy leave no room, so that another would find work.
_FULL = 0.95
# A gain below this part of a worker's share does not pay.
_PAYS = 0.3


class Use(NamedTuple):
    """What is known about the `workers` now; None for what is not known yet.

    `busy` is the part of their room that had a job in the last minute. `gain` is what the last
    change of their number brought for each worker, as a part of the share that each had before: 1
    if twice as many workers do twice as much. `pays` is the number of workers that pay: one more
    than there are if all are busy, and fewer if they wait for jobs, or if the last ones brought
    little.
    """

    workers: int
    busy: float | None
    gain: float | None
    pays: int | None


class _Sample(NamedTuple):
    """The totals at a time: jobs `done`, and seconds of jobs out and of room."""

    at: float
    done: int
    out: float
    room: float


class Utilisation:
    """Keeps the samples of a minute, whatever the length of the epic."""

    def __init__(self) -> None:
        self._now = _Sample(0.0, 0, 0.0, 0.0)
        self._began = self._now
        self._samples: deque[_Sample] = deque(maxlen=int(_WINDOW / _PAUSE) + 1)
        self._workers = self._out = self._room = 0
        # Another number of workers, and the jobs that they did in a second.
        self._before: tuple[int, float] | None = None
        self._gain: float | None = None

    def observe(self, now: float, workers: int, out: int, capacity: int, done: int) -> None:
        """Record, in constant time, that there are so many workers with room for `capacity` jobs,
        `out` of which they have, and that `done` have ended since the beginning."""
        last = self._now
        seconds = now - last.at
        self._now = current = _Sample(
            now, done, last.out + seconds * self._out, last.room + seconds * self._room
        )
        if workers != self._workers:
            self._end_period(current)
            self._workers = workers
        elif not self._samples or now - self._samples[-1].at >= _PAUSE:
            samples = self._samples
            samples.append(current)
            # Few are made where jobs take long, and each must not count for hours.
            while len(samples) > 1 and samples[1].at <= now - _WINDOW:
                samples.popleft()
            self._compare()
        self._out, self._room = min(out, capacity), capacity

    def _end_period(self, now: _Sample) -> None:
        rate = self._rate()
        if rate is not None:
            self._before = self._workers, rate
        self._gain = None
        self._began = now
        self._samples.clear()
        self._samples.append(now)

    def _rate(self) -> float | None:
        """The jobs a second with this number of workers, if enough are done to tell."""
        enough = _JOBS * self._workers**2
        for since in (self._samples[0] if self._samples else self._began, self._began):
            jobs = self._now.done - since.done
            if self._workers and jobs >= enough and self._now.at > since.at:
                return jobs / (self._now.at - since.at)
        return None

    def _compare(self) -> None:
        """Only the minute after the change tells what it brought: later the jobs may differ."""
        if self._gain is not None and self._now.at - self._began.at > _WINDOW:
            return
        rate = self._rate()
        if rate is None or self._before is None or self._before[0] == self._workers:
            return
        number, before = self._before
        self._gain = (rate - before) / (self._workers - number) / (before / number)

    def use(self) -> Use:
        """The use of the workers, as far as it is known now."""
        since = self._samples[0] if self._samples else self._now
        room = self._now.room - since.room
        busy = (self._now.out - since.out) / room if room > 0 else None
        return Use(self._workers, busy, self._gain, self._pays(busy))

    def _pays(self, busy: float | None) -> int | None:
        workers = self._workers
        if busy is None or not workers:
            return None
        if busy < _IDLE:
            return max(1, ceil(workers * busy / _TARGET))
        if self._gain is not None and self._gain < _PAYS:
            assert self._before is not None
            return min(workers, self._before[0])
        return workers + (busy >= _FULL)
