"""The watermark of a time line: its first term by time, lateness and silence, and its second by
what is on its way."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.event_time.line import LateTime, arrived
from penstock.streams.event_time.source_time import SourceTime, first_term
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.sources import Pauses


class Clock:
    """A run without a loop, whose clock the test moves."""

    has_loop = False

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses = Pauses()

    def now(self) -> float:
        return self.time

    wall = now


class Line:
    """A time line with a source that the test plays."""

    def __init__(self, lateness: float = 0.0, idle: float = inf) -> None:
        self.run = Clock()
        run: Any = self.run
        self.time = SourceTime(run, "event_time at", lateness, idle)
        (self.line,) = self.time.lines

    def emit(self, *times: float) -> list[Event[Any]]:
        self.time.demand.requested(len(times))
        self.time.demand.came(len(times))
        events: list[Event[Any]] = [Event(time, 0.0, NOBODY) for time in times]
        self.line.emit(NOBODY, events, list(times))
        return events

    def first(self) -> float:
        return first_term(self.time.lines)

    def watermark(self) -> float:
        return min(self.first(), self.line.on_its_way())

    def passes(self, seconds: float) -> None:
        self.run.time += seconds


def test_is_the_greatest_time_less_the_lateness() -> None:
    line = Line(lateness=2)
    line.emit(10.0, 12.0, 11.0)
    assert line.first() == 10.0


def test_never_goes_back() -> None:
    line = Line()
    line.emit(20.0)
    line.emit(3.0)
    assert line.first() == 20.0


def test_an_event_that_is_as_late_as_it_may_be_is_not_late() -> None:
    line = Line(lateness=2)
    on_time, late = line.emit(12.0, 10.0, 9.9)[1:]
    assert on_time.time.__class__ is float
    assert isinstance(late.time, LateTime)
    assert late.time.watermark == 10.0
    assert line.line.late == 1


def test_waits_for_an_event_on_its_way() -> None:
    line = Line()
    slow, *others = line.emit(5.0, 8.0)
    assert [arrived(event) is not None for event in others] == [True]
    assert line.watermark() == 5.0
    arrived(slow)
    assert line.watermark() == 8.0


def test_waits_for_an_event_on_its_way_also_if_it_ends_there() -> None:
    line = Line()
    told: list[float] = []
    line.time.on_change(lambda: told.append(line.watermark()))
    (event,) = line.emit(5.0)
    line.emit(9.0)[0].drop("filtered")
    assert told == [5.0]
    event.drop("filtered")
    assert told == [5.0, 9.0]


def test_a_late_event_on_its_way_holds_back_only_what_it_may_still_be_in() -> None:
    line = Line()
    first, late = line.emit(20.0, 3.0)
    arrived(first)
    assert line.watermark() == 20.0
    arrived(line.emit(30.0)[0])
    assert line.watermark() == 20.0
    arrived(late)
    assert line.watermark() == 30.0


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5)), st.integers(0, 10))
def test_what_is_late_does_not_depend_on_the_lists(lists: list[list[int]], lateness: int) -> None:
    together, apart = Line(lateness), Line(lateness)
    times = [float(time) for one in lists for time in one]
    found = together.emit(*times) if times else []
    one_by_one = [event for time in times for event in apart.emit(time)]
    so_far = -inf
    for a, b, time in zip(found, one_by_one, times, strict=True):
        assert isinstance(a.time, LateTime) == isinstance(b.time, LateTime) == (time < so_far)
        if isinstance(a.time, LateTime) and isinstance(b.time, LateTime):
            assert a.time.watermark == b.time.watermark == so_far
        so_far = max(so_far, time - lateness)


# Silence.


def test_silence_moves_it_from_the_last_event_on() -> None:
    line = Line(lateness=2, idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(29)
    assert line.first() == 98.0
    line.passes(1)
    assert line.first() == 128.0
    line.passes(5)
    assert line.first() == 133.0


def test_is_not_silent_while_nothing_is_requested() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.passes(1000)
    assert line.first() == 100.0
    line.time.demand.requested(1)
    line.passes(29)
    assert line.first() == 100.0


def test_is_not_silent_while_its_source_is_paused_or_drained() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(20)
    line.run.pauses.hold("why")
    line.passes(1000)
    assert line.first() == 100.0
    line.run.pauses.release("why")
    line.passes(9)
    assert line.first() == 100.0
    line.run.pauses.drain(())
    line.passes(1000)
    assert line.first() == 100.0


def test_after_a_pause_is_silent_only_if_nothing_comes_for_as_long_again() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(29)
    line.run.pauses.hold("why")
    line.passes(1000)
    line.run.pauses.release("why")
    line.passes(29)
    assert line.line.silence_until(200.0) == 1.0
    assert line.first() == 100.0
    line.passes(1)
    assert line.first() == 159.0


def test_a_pause_does_not_take_back_what_silence_has_brought_about() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(50)
    line.run.pauses.hold("why")
    line.passes(1000)
    assert line.first() == 150.0
    line.run.pauses.release("why")
    line.passes(1)
    assert line.first() == 150.0
    (event,) = line.emit(149.0)
    assert isinstance(event.time, LateTime)


def test_an_event_ends_the_silence_also_of_one_that_is_late_by_it() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(50)
    (event,) = line.emit(120.0)
    assert isinstance(event.time, LateTime)
    assert event.time.watermark == 150.0
    line.time.demand.requested(1)
    line.passes(29)
    assert line.first() == 150.0


def test_time_in_which_the_loop_was_blocked_is_no_silence() -> None:
    line = Line(idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(60)
    line.time.demand.blocked(55)
    assert line.first() == 100.0
    line.passes(25)
    assert line.first() == 130.0


def test_says_how_long_nothing_must_come_until_it_moves() -> None:
    line = Line(lateness=1, idle=30)
    line.emit(100.0)
    line.time.demand.requested(1)
    line.passes(10)
    assert line.line.silence_until(500.0) == 20.0
    line.passes(20)
    assert line.line.silence_until(140.0) == 11.0
    assert Line(idle=inf).line.silence_until(1.0) == inf


def test_silence_moves_nothing_to_a_time_that_it_has_reached_nor_before_the_first_event() -> None:
    line = Line(idle=30)
    line.time.demand.requested(2)
    line.passes(30)
    # Otherwise who waits for this time would look again at once, for as long as it cannot go on.
    assert line.line.silence_until(-inf) == inf
    line.emit(100.0)
    line.passes(30)
    assert line.line.silence_until(130.0) == inf
    assert line.line.silence_until(130.5) == 0.5


# What is stored.


def test_stores_what_it_was_before_the_oldest_list_that_would_come_again() -> None:
    line = Line()
    kept: list[str] = []
    line.time.restore("store", None, lambda: kept.append("changed"))
    line.emit(10.0)[0].drop("done")
    (slow,) = line.emit(20.0)
    line.emit(30.0)[0].drop("done")
    assert kept
    assert (
        line.time.mark(lambda root, event: False)
        == b'{"":{"greatest":10.0,"first":10.0,"ahead":[]}}'
    )
    list_ = arrived(slow)
    assert list_ is not None
    assert list_.kept is not None
    list_.kept.held.append(("root", slow))
    assert (
        line.time.mark(lambda root, event: True)
        == b'{"":{"greatest":10.0,"first":10.0,"ahead":[]}}'
    )
    assert (
        line.time.mark(lambda root, event: False)
        == b'{"":{"greatest":30.0,"first":30.0,"ahead":[]}}'
    )


def test_goes_on_from_what_was_stored_and_silence_begins_anew() -> None:
    line = Line(idle=30)
    line.time.restore("store", b'{"":{"greatest":30.0,"ahead":[]}}', lambda: None)
    assert line.first() == 30.0
    line.time.demand.requested(1)
    line.passes(31)
    assert line.first() == 61.0


def test_at_the_end_all_that_was_done_in_an_earlier_run_has_come() -> None:
    line = Line(lateness=2)
    stored = b'{"":{"greatest":22.0,"first":20.0,"ahead":[["a",3,33.0],["a",4,26.0]]}}'
    line.time.restore("store", stored, lambda: None)
    line.emit(21.0)
    assert line.first() == 20.0
    line.time.end()
    assert line.time.last == 31.0
