"""Watches a run of the kata from outside and says which of its promises were broken.

A run reports what happens to each delivery; it never judges itself:

    arrived --+--> dropped                 on purpose, as a duplicate
              +--> lost                    given up before the handler saw it
              +--> started --+--> finished
                             +--> failed   the handler raised

Every arrival takes one of these ways, or is still waiting when the run is stopped. Between arrival
and start it may have `waited` for the lock of its client.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.command.kata.load.events import DUPLICATE_WINDOW, Event
from penstock.streams.base import clock
from penstock.streams.diagnostics.histogram import LatencyHistogram, Summary

__all__ = ["Interval", "Measured", "Observer"]


@dataclass(frozen=True, slots=True)
class Interval:
    """The latency of the events that started in a part of a run, and the queue at its end, `at` so
    many seconds after the start."""

    latency: Summary
    queue: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """All numbers of one run. `arrived` = `finished` + `dropped` + `lost` + `unfinished`.

    Times are seconds, `throughput` is events finished a second. `queue` is how many events the
    last arrival found waiting, `peak_queue` the largest number that ever waited. `latency` is
    creation to start of processing. `lost` includes events whose handler raised.

    The broken promises: `duplicates_processed` started although their uuid had already started
    and was created less than ten seconds apart; `overlapped` started while another event of
    their client was being worked on; `overtaken` finished after a later event of their client.
    """

    variant: str
    seconds: float
    arrived: int
    finished: int
    dropped: int
    lost: int
    unfinished: int
    throughput: float
    queue: int
    peak_queue: int
    latency: Summary
    duplicates_processed: int
    overlapped: int
    overtaken: int
    lock_waits: Summary | None = None
    """How long events waited for the lock of their client; None where there are no locks."""
    others: Summary | None = None
    """The latency of all clients but the slow one; None if none is slow."""
    overlaps: Mapping[int, int] = field(default_factory=dict[int, int])
    """The overlapped events of each client that has any."""
    overtakings: Mapping[int, int] = field(default_factory=dict[int, int])
    """The overtaken events of each client that has any."""
    cells: Sequence[tuple[int, int]] = ()
    """The histogram of `latency`: the lowest microsecond of each cell, and its events."""
    intervals: Sequence[Interval] = ()
    """The parts of the run that were asked for, in their order."""


# Latencies that are put into the histograms together.
_TOGETHER = 256


class Observer:
    """Takes the reports of one run; every method may be called from any thread.

    The run starts when its observer is made: `start` is that moment on the time line of `now`,
    which is also the time line of the events' `created`. The latency of all clients but
    `slow_client` is measured on its own, too.
    Memory: the uuids that started, of the last twenty seconds of the events' own time, four numbers
    per client, and the intervals that were asked for.
    """

    def __init__(
        self, now: Callable[[], float] = clock.monotonic, *, slow_client: int | None = None
    ) -> None:
        self.now = now
        self.start = now()
        self._lock = threading.Lock()
        self._latencies = LatencyHistogram()
        self._recent = LatencyHistogram()
        self._lock_waits = LatencyHistogram()
        self._others = LatencyHistogram()
        # Not in the histograms yet: many at once cost little more than one.
        self._new: list[float] = []
        self._new_of_slow: list[float] = []
        self._slow_client = slow_client
        self._counts: Counter[str] = Counter()
        self._queue = 0
        self._peak_queue = 0
        self._last_finish = self.start
        # uuid -> creation of its first start, oldest start first.
        self._first: dict[str, float] = {}
        self._in_flight: Counter[int] = Counter()
        self._last_sequence: dict[int, int] = {}
        self._last_end: dict[int, float] = {}
        self._overlaps: Counter[int] = Counter()
        self._overtakings: Counter[int] = Counter()
        self._intervals: list[Interval] = []

    @property
    def waiting(self) -> int:
        """Arrived, and neither started nor given up."""
        counts = self._counts
        return counts["arrived"] - counts["dropped"] - counts["lost"] - counts["started"]

    def arrived(self, count: int = 1) -> None:
        """So many events became due, whether or not anybody took them."""
        with self._lock:
            self._queue = self.waiting
            self._counts["arrived"] += count
            self._peak_queue = max(self._peak_queue, self.waiting)

    def dropped(self, event: Event) -> None:
        """Recognised as a duplicate."""
        with self._lock:
            self._counts["dropped"] += 1

    def kept(self, event: Event) -> None:
        """Reported as dropped, and worked on all the same."""
        with self._lock:
            self._counts["dropped"] -= 1

    def lost(self, event: Event) -> None:
        """Given up without being worked on."""
        with self._lock:
            self._counts["lost"] += 1

    def waited(self, event: Event, seconds: float) -> None:
        """It has waited so long for the lock of its client, whether or not it got it."""
        with self._lock:
            self._lock_waits.record(seconds)

    def started(self, event: Event) -> None:
        """The handler begins."""
        client = event["client_id"]
        with self._lock:
            self._note(client, self.now() - event["created"])
            self._counts["started"] += 1
            self._counts["duplicates"] += self._is_duplicate(event)
            if self._in_flight[client] > 0:
                self._overlaps[client] += 1
            self._in_flight[client] += 1

    def finished(self, event: Event) -> None:
        """The handler returned."""
        client, sequence = event["client_id"], event["sequence"]
        with self._lock:
            self._counts["finished"] += 1
            self._last_finish = self.now()
            self._in_flight[client] -= 1
            last = self._last_sequence.get(client, -1)
            if sequence < last:
                self._overtakings[client] += 1
            self._last_sequence[client] = max(sequence, last)

    def worked(self, event: Event, started: float, ended: float) -> None:
        """The handler began and ended then, perhaps in another process.

        To be called instead of `started` and `finished`, for a client's events in their order.
        """
        client, sequence = event["client_id"], event["sequence"]
        with self._lock:
            self._note(client, started - event["created"])
            self._counts["started"] += 1
            self._counts["duplicates"] += self._is_duplicate(event)
            self._counts["finished"] += 1
            self._last_finish = max(self._last_finish, ended)
            if started < self._last_end.get(client, started):
                self._overlaps[client] += 1
            self._last_end[client] = ended
            last = self._last_sequence.get(client, -1)
            if sequence < last:
                self._overtakings[client] += 1
            self._last_sequence[client] = max(sequence, last)

    def failed(self, event: Event) -> None:
        """The handler raised."""
        with self._lock:
            self._counts["failed"] += 1
            self._in_flight[event["client_id"]] -= 1

    def interval(self) -> Interval:
        """The counts since the last call, or since the start."""
        with self._lock:
            self._record()
            at = self.now() - self.start
            interval = Interval(self._recent.snapshot(), self.waiting, at)
            self._recent.reset()
            self._intervals.append(interval)
            return interval

    def measured(self, variant: str) -> Measured:
        """The numbers so far."""
        with self._lock:
            self._record()
            counts = self._counts
            lost = counts["lost"] + counts["failed"]
            seconds = self._last_finish - self.start
            return Measured(
                variant=variant,
                seconds=seconds,
                arrived=counts["arrived"],
                finished=counts["finished"],
                dropped=counts["dropped"],
                lost=lost,
                unfinished=counts["arrived"] - counts["finished"] - counts["dropped"] - lost,
                throughput=counts["finished"] / seconds if seconds > 0 else 0.0,
                queue=self._queue,
                peak_queue=self._peak_queue,
                latency=self._latencies.snapshot(),
                duplicates_processed=counts["duplicates"],
                overlapped=self._overlaps.total(),
                overtaken=self._overtakings.total(),
                lock_waits=waits if (waits := self._lock_waits.snapshot()).count else None,
                others=None if self._slow_client is None else self._others.snapshot(),
                overlaps=dict(self._overlaps),
                overtakings=dict(self._overtakings),
                cells=tuple(self._latencies.cells()),
                intervals=tuple(self._intervals),
            )

    def _note(self, client: int, latency: float) -> None:
        """An event of this client has started so many seconds after it was created."""
        if client == self._slow_client:
            self._new_of_slow.append(latency)
        else:
            self._new.append(latency)
        if len(self._new) + len(self._new_of_slow) >= _TOGETHER:
            self._record()

    def _record(self) -> None:
        """Put the latencies noted so far into the histograms."""
        for histogram in (self._latencies, self._recent):
            histogram.record(*self._new, *self._new_of_slow)
        self._others.record(*self._new)
        self._new.clear()
        self._new_of_slow.clear()

    def _is_duplicate(self, event: Event) -> bool:
        identity, created = event["uuid"], event["created"]
        # Twice the window: a variant without order may start an event later than younger ones.
        while self._first:
            oldest = next(iter(self._first))
            if self._first[oldest] >= created - 2 * DUPLICATE_WINDOW:
                break
            del self._first[oldest]
        first = self._first.get(identity)
        if first is not None and abs(created - first) < DUPLICATE_WINDOW:
            return True
        self._first.pop(identity, None)
        self._first[identity] = created
        return False
