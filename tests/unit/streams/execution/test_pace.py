"""How many events are requested before there are slots for them."""

from __future__ import annotations

from penstock.streams.execution.pace import Pace


def test_as_many_are_requested_ahead_as_the_slots_work_off_in_a_millisecond() -> None:
    pace = Pace()
    assert pace.ahead(1, 10.0, slots=2) == 0
    # 20 in a millisecond, of which two are in the slots.
    assert [pace.ahead(1, 10.0 + n * 0.00005, slots=2) for n in range(1, 20)] == [0] * 19
    assert pace.ahead(1, 10.001000001, slots=2) in (17, 18)


def test_none_is_requested_ahead_of_calls_that_take_a_millisecond() -> None:
    pace = Pace()
    for n in range(100):
        assert pace.ahead(4, n * 0.001, slots=4) == 0


def test_a_stage_that_becomes_slow_requests_nothing_ahead_at_the_next_end() -> None:
    pace = Pace()
    pace.ahead(1, 0.0, slots=1)
    assert pace.ahead(1000, 0.0015, slots=1) == 64
    assert pace.ahead(1, 5.0, slots=1) == 0


def test_a_clock_that_is_set_back_begins_a_new_measurement() -> None:
    pace = Pace()
    pace.ahead(1, 100.0, slots=1)
    assert pace.ahead(50, 40.0, slots=1) == 0
    assert pace.ahead(50, 40.002, slots=1) in (23, 24)
