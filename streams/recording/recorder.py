"""The recorder of a running pipeline: what goes over each arrow, latencies, a sample a second.

It stands on the arrows between the stages, where a list of events costs one more call and an
addition. Of the events that reach the sinks about a thousand per second are measured, chosen by
their place alone, so that a busy pipeline pays no more than a quiet one. The places have no period,
which keys that take turns could share. The times are counted many at once.
"""

from __future__ import annotations

from asyncio import TimerHandle
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from math import ceil
from operator import add
from typing import Any, NamedTuple

from penstock.streams.base import clock
from penstock.streams.base.errors import BadLine, message_of, notes_of
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.keyed.queues import KeyQueue
from penstock.streams.pictures.pipeline import drawn
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.recording.arrows import GOLDEN, Arrow, Arrows
from penstock.streams.recording.key_counts import MOST_KEYS, KeyCounts, Keyed
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.error_log import in_a_line
from penstock.streams.runtime.observing import Statistics

__all__ = [
    "KEPT",
    "LATENCIES",
    "Change",
    "Example",
    "Recorder",
    "Sample",
    "example_of",
    "kept_text",
]

KEPT = 900
"""Samples that are kept, one a second: fifteen minutes."""

LATENCIES = tuple(digit * 10**power for power in range(-5, 4) for digit in (1, 2, 5))
"""The lower bounds, in seconds, of the rows of a heat map of latencies."""

_Measure = Callable[[list[Event[Any]]], None]
"""Is called with the measured ones of a list of events; never with none."""

# Types of errors of which an example is kept, and bad lines that are.
_EXAMPLES = 20
# Characters of a bad line.
_SHOWN = 1_000

# Changes of limits that are kept, and reasons of them that are counted by themselves.
_CHANGES, _REASONS = 500, 100

_PARTS = ("waiting", "service", "total")

# Numbers of a sample that do not depend on the stages: seven, and three of the latency.
_FIXED = 10

# Events that are measured in a second, if there are more.
_MEASURED = 1_000
# Measured events whose times are counted together.
_TOGETHER = 512
# In the first second, after so many only every fourth is measured, and so on: a run may be short.
_FIRST = 250


class Sample(NamedTuple):
    """The numbers of one second. Counts of events are those of this second."""

    at: float
    """Seconds since the start."""
    arrived: int
    finished: int
    dropped: int
    failed: int
    waiting: int
    """Now, as all that follow but for the latencies."""
    in_flight: int
    calls: dict[int, tuple[int, int, str]]
    """For each stage with a limit: calls in flight, the limit and its reason."""
    sent: dict[int, int]
    """For each stage but the sinks: the events that it has sent on."""
    sent_to: dict[int, dict[int, int]]
    """For each stage that several read: the events that it has sent to each of them."""
    latency: tuple[float, float, float] | None
    """Seconds from creation to the end of the handler: median, 99 % and 99.9 %."""
    heat: dict[int, int]
    """How many events were in each row of `LATENCIES`, in the measure of the beginning of the
    second: if every tenth was measured then, these are a tenth."""


def kept_text(stages: list[StageInfo], sinks: int) -> str:
    """The most that a recorder of these stages keeps, as `penstock draw` shows it."""
    found = list(all_stages(stages))
    limits = sum(stage.picture.under is not None for stage in found)
    # One for each stage but the sinks, and one for each reader of those that several read.
    read = Counter(one for _, above in drawn(stages, sinks) for one in above)
    shared = sum(n for number, n in read.items() if n > 1 and number != stages[-sinks - 1].number)
    numbers = _FIXED + 3 * limits + len(found) - sinks + shared + len(LATENCIES)
    return (
        f"Recorded: {KEPT} samples, one for each second of the last {KEPT // 60} minutes, of at "
        f"most {numbers} numbers; counts of {MOST_KEYS:,} keys."
    )


class Example(NamedTuple):
    """An error: the stage in which it was raised, or the place of a bad line; and its text, which
    may show an event."""

    where: str
    text: str


def example_of(error: BaseException) -> Example:
    """An example of an error that was raised in a stage, or in a task of the pipeline."""
    notes = notes_of(error)
    where = next((note for note in notes if note.startswith(("in stage ", "in the task "))), "")
    return Example(where.partition(", on the event ")[0], in_a_line(error))


class Change(NamedTuple):
    """A limit has changed: when, in seconds since the start, in which stage, and why."""

    at: float
    stage: int
    before: int
    after: int
    reason: str


class Recorder:
    """Records one run, from before it has begun.

    Time: O(1) for each list of events, and O(stages) per second. Memory: 900 samples, each of a few
    numbers and of three more for each stage; 2,000 keys; one dead letter.
    """

    counts = True

    def __init__(self, run: Run, counts: Callable[[], dict[str, Any]], last: StageInfo) -> None:
        """`counts` are the statistics that a sample needs; `last` is the stage above the sinks."""
        self._run = run
        self._start = run.now()
        self._counts = counts
        self._last = last
        self.last = last.number
        """The number of the stage above the sinks."""
        self.examples: dict[str, Example] = {}
        """The last error of each type with which an event failed in a stage that goes on."""
        self.bad_lines: list[Example] = []
        """The first lines of the input that are not events."""
        self.keys = KeyCounts()
        """The keys of the events that left a spread, or went to workers: of about a thousand a
        second."""
        self.changes: deque[Change] = deque(maxlen=_CHANGES)
        """The last changes of limits."""
        self.reasons: dict[tuple[int, str], int] = {}
        """How many changes there were, by the stage and the reason."""
        self.began = clock.wall()
        """When it began, in seconds since the epoch."""
        self.letter: DeadLetter | None = None
        """The last dead letter."""
        self._arrows = Arrows()
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._whole = {name: LatencyHistogram() for name in _PARTS}
        # Measured since the stride was chosen; and the total latency of this second's events, of
        # which one counts for as many as were measured at its beginning.
        self._segment = {name: LatencyHistogram() for name in _PARTS}
        self._second = LatencyHistogram()
        # Microseconds of measured events that are not counted yet.
        self._waiting: list[float] = []
        self._service: list[float] = []
        # Every so many events one is measured.
        self.stride = 1
        self._first_stride = 1
        self._measured = 0
        self._measuring: _Measured | None = None
        # Events of this second that those of earlier strides stand for, and how many may be
        # measured with one stride.
        self._seen = 0
        self._most = _FIRST
        self._before: dict[str, Any] | None = None
        self._sent_before: dict[int, dict[int, int]] = {}
        self._timer: TimerHandle | None = None
        self.on_sample: list[Callable[[], None]] = []
        """Called after each sample."""
        run.observers.append(self)
        run.errors.on_failure = self._failed
        run.errors.on_bad_line = self._bad_line
        run.on_limit = self._limit_changed
        run.errors.on_letter = self._routed
        self._later()

    # Arrows.

    def arrow(
        self, info: StageInfo, below: Subscriber[Any], reader: StageInfo | None, *, is_own: bool
    ) -> Subscriber[Any]:
        """The subscriber to put between the stage `info` and the one `below` it."""
        if info.within is not None:
            return below
        arrow: Arrow
        if is_own and info is self._last:
            arrow = self._measuring = _Measured(below, self, self._measure)
        elif info.name == "spread":
            arrow = _Measured(below, self, self._count_keys)
        elif isinstance(below, Keyed):
            arrow = _Measured(below, self, partial(self._count_dealt, below))
        else:
            arrow = Arrow(below)
        to = None if is_own and info is self._last else reader
        return self._arrows.add(info, arrow, to, is_own=is_own)

    def counted_statistics(
        self, info: StageInfo, statistics: Statistics, *, is_own: bool
    ) -> Statistics:
        """The statistics of a stage, with what it has sent."""
        return self._arrows.counted_statistics(info, statistics, is_own=is_own)

    def _measure(self, events: list[Event[Any]]) -> None:
        now = self._run.now()
        for event in events:
            if event.started is None:
                started = ended = now
            else:
                started, ended = event.started, event.ended
            self._waiting.append((started - event.created) * 1e6)
            self._service.append((ended - started) * 1e6)
        self._measured += len(events)
        if self._measured >= self._most:
            # Busier than the last second, or the first one, of which nothing is known.
            self._fold()
            self.stride *= 4
            self._begin_stride()
        elif len(self._waiting) >= _TOGETHER:
            self._count()

    def _begin_stride(self) -> None:
        if self._measuring is not None:
            self._measuring.begin()

    def _count_keys(self, events: list[Event[Any]]) -> None:
        for event in events:
            turn = event.turn
            if isinstance(turn, KeyQueue):
                self.keys.count(turn.key, self.stride)

    def _count_dealt(self, below: Keyed, events: list[Event[Any]]) -> None:
        for key in below.keys_of(events):
            self.keys.count(key, self.stride)

    def _count(self) -> None:
        """Count the times noted so far, except the last if some of its events have not come."""
        segment, n = self._segment, len(self._waiting)
        if self._measuring is not None and self._measuring.is_ahead:
            n -= 1
        if n > 0:
            waiting, service = self._waiting[:n], self._service[:n]
            segment["waiting"].count(waiting)
            segment["service"].count(service)
            segment["total"].count(list(map(add, waiting, service)))
            del self._waiting[:n], self._service[:n]

    def _fold(self) -> None:
        """Let each measured event stand for those that it was chosen from."""
        self._count()
        self._measured -= len(self._waiting)
        self._waiting.clear()
        self._service.clear()
        for name, segment in self._segment.items():
            self._whole[name].add(segment, self.stride)
        self._second.add(self._segment["total"], self.stride // self._first_stride)
        for segment in self._segment.values():
            segment.reset()
        self._seen += self._measured * self.stride
        self._measured = 0

    def latency(self) -> dict[str, Any]:
        """The summaries of the parts of the latency, as in the statistics."""
        return {name: asdict(histogram.snapshot()) for name, histogram in self.latencies().items()}

    def latencies(self) -> dict[str, LatencyHistogram]:
        """The histograms of the parts of the latency, over the whole running.

        They are a sink's, if one measures every event; else each measured event counts for those
        between it and the one before.
        """
        measured = self._run.latencies.get(None)
        if measured is not None:
            return measured()
        self._count()
        merged: dict[str, LatencyHistogram] = {}
        if not self._measured:
            # As after each sample: nothing is to be added.
            return self._whole
        for name, segment in self._segment.items():
            merged[name] = LatencyHistogram()
            merged[name].add(self._whole[name])
            merged[name].add(segment, self.stride)
        return merged

    def latencies_of_stages(self) -> dict[int, dict[str, LatencyHistogram]]:
        """Those of the stages that sinks measure, by the number of the stage."""
        measured = self._run.latencies.items()
        return {stage: latencies() for stage, latencies in measured if stage is not None}

    def _failed(self, error: BaseException) -> None:
        kind = type(error).__name__
        if kind in self.examples or len(self.examples) < _EXAMPLES:
            self.examples[kind] = example_of(error)

    def _bad_line(self, error: BadLine) -> None:
        if len(self.bad_lines) < _EXAMPLES:
            self.bad_lines.append(Example(error.place, message_of(error, _SHOWN)))

    def _limit_changed(self, info: StageInfo, before: int, after: int, reason: str) -> None:
        at = self._run.now() - self._start
        self.changes.append(Change(at, info.number, before, after, reason))
        what = (info.number, reason)
        if what not in self.reasons and len(self.reasons) >= _REASONS:
            what = (info.number, "other reasons")
        self.reasons[what] = self.reasons.get(what, 0) + 1

    def _routed(self, letter: DeadLetter) -> None:
        self.letter = letter

    def seconds_at(self, time: float) -> float:
        """Seconds from the start to `time`, which is of the loop's clock."""
        return time - self._start

    # Samples.

    def _later(self) -> None:
        self._timer = self._run.call_later(1.0, None, self._tick)

    def _tick(self) -> None:
        self._sample()
        self._later()

    def _sample(self) -> None:
        numbers = self._counts()
        before = self._before or {"in": 0, "finished": 0, "failed": 0, "dropped": {}}
        sent = self._arrows.sent()
        for stage in numbers["stages"]:
            if "sent" in stage and "read_by" not in stage and stage["stage"] not in sent:
                # Counted in the workers, which run single stages one after another.
                sent[stage["stage"]] = {stage["stage"] + 1: stage["sent"]}
        self._fold()
        cells = self._second.cells()
        summary = self._second.snapshot() if cells else None
        self._second.reset()
        for stage in numbers["stages"]:
            self.keys.waited(stage.get("hottest_keys", ()))
        since = {number: _since(to, self._sent_before.get(number)) for number, to in sent.items()}
        heat: dict[int, int] = {}
        for microseconds, count in cells:
            row = max(0, bisect_right(LATENCIES, microseconds / 1e6) - 1)
            heat[row] = heat.get(row, 0) + count
        self.samples.append(
            Sample(
                numbers["seconds"],
                numbers["in"] - before["in"],
                numbers["finished"] - before["finished"],
                sum(numbers["dropped"].values()) - sum(before["dropped"].values()),
                numbers["failed"] - before["failed"],
                numbers["waiting"],
                numbers["in_flight"],
                {
                    stage["stage"]: (stage["in_flight"], stage["limit"], stage["limit_reason"])
                    for stage in numbers["stages"]
                    if "limit" in stage and "read_by" not in stage
                },
                {number: sum(new.values()) for number, new in since.items()},
                {number: new for number, new in since.items() if len(new) > 1},
                None if summary is None else (summary.median, summary.p99, summary.p999),
                heat,
            )
        )
        # As many are measured as in the last second, whether or not that was a whole one.
        self.stride = max(1, ceil(self._seen / _MEASURED))
        self._first_stride = self.stride
        self._begin_stride()
        self._seen, self._most = 0, 2 * _MEASURED
        self._before, self._sent_before = numbers, sent
        for call in self.on_sample:
            call()

    def end(self) -> None:
        """The running has ended: take the last sample."""
        if self._timer is not None:
            self._timer.cancel()
        self._sample()


def _since(counts: dict[int, int], before: dict[int, int] | None) -> dict[int, int]:
    """How many more events each stage has received than in `before`."""
    return {to: count - (before or {}).get(to, 0) for to, count in counts.items()}


class _Measured(Arrow):
    """Measures one of every `stride` events too: the next one when `left` more have passed.

    Its place among them changes. Were it the same each time, of keys that take turns only some
    would be measured: of four keys one, if the stride is four.
    """

    __slots__ = ("_after", "_measure", "_place", "_recorder", "_turn", "left")

    def __init__(self, below: Subscriber[Any], recorder: Recorder, measure: _Measure) -> None:
        super().__init__(below)
        self._recorder = recorder
        self._measure = measure
        self._turn = 0.0
        self.begin()

    def begin(self) -> None:
        """Choose from the events that come from now on."""
        self._after = -1
        self.left = self._next()

    @property
    def is_ahead(self) -> bool:
        """Whether some of the events that the last measured one was chosen from are yet to come."""
        return self.left > self._place

    def _next(self) -> int:
        """Choose the next event to measure; how many events it is after this one."""
        after, stride = self._after, self._recorder.stride
        self._turn = (self._turn + GOLDEN) % 1.0
        self._place = int(self._turn * stride)
        self._after = stride - 1 - self._place
        return 1 + after + self._place

    def on_events(self, events: list[Event[Any]], /) -> None:
        n = len(events)
        self.count += n
        self.left = left = self.left - n
        if left < 0:
            chosen: list[Event[Any]] = []
            at = left + n
            while at < n:
                chosen.append(events[at])
                at += self._next()
            self.left = at - n
            self._measure(chosen)
        self._on_events(events)
