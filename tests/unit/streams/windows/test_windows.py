"""The windows of one key: what they have when they close."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from orjson import dumps, loads

from penstock.streams.aggregates import agg
from penstock.streams.base.errors import BuildError
from penstock.streams.windows.shapes import calendar, session, sliding, tumbling
from penstock.streams.windows.window import Window
from penstock.streams.windows.windows import Windows, aggregate_of, windows_of


def closed(windows: Windows[Any], *times: float, at: float = inf) -> list[tuple[float, float, Any]]:
    state = windows.new()
    for time in times:
        assert windows.add(state, time, {"time": time}, -inf)
    return [(one.start, one.end, one.value) for one in windows.close("key", state, at)]


def test_a_tumbling_window_has_its_first_second_and_not_its_last() -> None:
    found = closed(windows_of(tumbling(60), agg.count()), 0.0, 59.9, 60.0)
    assert found == [(0.0, 60.0, 2), (60.0, 120.0, 1)]


def test_bounds_are_the_multiples_of_the_decimal_number() -> None:
    found = closed(windows_of(tumbling(0.1), agg.count()), 0.3, 0.7)
    assert found == [(0.3, 0.4, 1), (0.7, 0.8, 1)]


def test_an_event_is_in_each_sliding_window_that_has_its_time() -> None:
    found = closed(windows_of(sliding(10, every=4), agg.count()), 1.0, 9.0)
    assert found == [(-8.0, 2.0, 1), (-4.0, 6.0, 1), (0.0, 10.0, 2), (4.0, 14.0, 1), (8.0, 18.0, 1)]


def test_an_event_between_two_sessions_joins_them() -> None:
    windows = windows_of(session(10), aggregate_of({"n": agg.count(), "last": agg.last("time")}))
    found = closed(windows, 1.0, 15.0, 9.0, 25.0)
    assert found == [(1.0, 25.0, {"n": 3, "last": 15.0}), (25.0, 35.0, {"n": 1, "last": 25.0})]


def test_the_day_on_which_the_clock_goes_back_has_25_hours() -> None:
    # On 2026-10-25 in Athens.
    found = closed(windows_of(calendar("day", zone="Europe/Athens"), agg.count()), 1792900000.0)
    assert [end - start for start, end, _ in found] == [25 * 3600]


def test_a_late_event_corrects_a_window_that_is_kept() -> None:
    windows = windows_of(tumbling(60), agg.count(), keep=60)
    state = windows.new()
    windows.add(state, 5.0, {}, -inf)
    assert windows.close("key", state, 60.0) == [Window("key", 0.0, 60.0, 1, 1, True)]
    assert windows.add(state, 6.0, {}, 119.0)
    assert windows.close("key", state, 119.0) == [Window("key", 0.0, 60.0, 2, 2, True)]
    assert not windows.add(state, 6.0, {}, 120.0)


def test_windows_by_count_are_of_the_events_in_the_order_in_which_they_come() -> None:
    windows = windows_of(tumbling(count=2), agg.list("time"))
    state = windows.new()
    for time in (5.0, 3.0, 9.0):
        assert windows.add(state, time, {"time": time}, 100.0)
    assert windows.due(state) == -inf
    assert windows.close("key", state, -inf) == [Window("key", 3.0, 5.0, [3.0, 5.0], 1, True)]
    assert windows.due(state) is None
    assert windows.early("key", state) == [Window("key", 9.0, 9.0, [9.0], 1, False)]
    assert windows.early("key", state) == []
    state = loads(dumps(state))
    assert windows.close("key", state, inf) == [Window("key", 9.0, 9.0, [9.0], 2, True)]
    assert windows.is_empty(state)
    assert state == windows.new()


def test_a_late_event_counts_in_the_sliding_windows_that_have_not_passed() -> None:
    windows = windows_of(sliding(10, every=5), agg.count())
    state = windows.new()
    assert windows.add(state, 7.0, {}, 10.0)
    assert windows.due(state) == 15.0
    assert not windows.add(state, 7.0, {}, 15.0)
    assert windows.close("key", state, inf) == [Window("key", 5.0, 15.0, 1, 1, True)]


def test_corrections_that_come_together_are_one_result() -> None:
    windows = windows_of(tumbling(60), agg.count(), keep=60)
    state = windows.new()
    for watermark in (-inf, 60.0, 61.0):
        windows.add(state, 5.0, {}, watermark)
    # The window was late itself, because an event in flight had held it.
    assert windows.close("key", state, 61.0) == [
        Window("key", 0.0, 60.0, 1, 1, True),
        Window("key", 0.0, 60.0, 3, 3, True),
    ]
    assert windows.due(state) == 120.0
    assert windows.close("key", state, 120.0) == []
    assert windows.is_empty(state)


def test_a_late_event_alone_is_the_first_result_of_a_window_that_is_kept() -> None:
    windows = windows_of(tumbling(60), agg.count(), keep=60)
    state = windows.new()
    assert windows.add(state, 5.0, {}, 60.0)
    assert windows.due(state) == 60.0
    assert windows.close("key", state, 70.0) == [Window("key", 0.0, 60.0, 1, 1, True)]


def test_an_event_for_a_window_that_silence_closed_before_a_restart_is_a_correction_or_late() -> (
    None
):
    # After the restart the watermark is without the silence, so the event is not late by it.
    windows = windows_of(tumbling(60), agg.count(), keep=60)
    state = windows.new()
    windows.add(state, 5.0, {}, -inf)
    windows.close("key", state, 60.0)
    assert windows.add(state, 6.0, {}, -inf)
    assert windows.close("key", state, 60.0) == [Window("key", 0.0, 60.0, 2, 2, True)]

    windows = windows_of(tumbling(60), agg.count())
    state = windows.new()
    windows.add(state, 5.0, {}, -inf)
    windows.add(state, 65.0, {}, -inf)
    windows.close("key", state, 60.0)
    assert not windows.add(state, 6.0, {}, -inf)


@pytest.mark.parametrize("shape", [tumbling(60), sliding(60, every=20), session(60)], ids=str)
def test_early_results_are_revisions_of_the_windows_that_changed(shape: Any) -> None:
    windows = windows_of(shape, agg.count())
    state = windows.new()
    for number in (1, 2, 3):
        windows.add(state, 50.0 + number, {}, -inf)
        found = windows.early("key", state)
        assert {(one.value, one.revision, one.is_final) for one in found} == {
            (number, number, False)
        }
        assert windows.early("key", state) == []
        state = loads(dumps(state))
    final = windows.close("key", state, inf)
    assert {(one.value, one.revision, one.is_final) for one in final} == {(3, 4, True)}
    assert state == windows.new()


def test_joined_sessions_go_on_with_the_greater_of_their_revisions() -> None:
    windows = windows_of(session(10), agg.count())
    state = windows.new()
    windows.add(state, 0.0, {}, -inf)
    for time in (15.0, 16.0):
        windows.add(state, time, {}, -inf)
        windows.early("key", state)
    windows.add(state, 8.0, {}, -inf)
    assert windows.early("key", state) == [Window("key", 0.0, 26.0, 4, 3, False)]


def test_events_exactly_a_gap_apart_are_two_sessions() -> None:
    windows = windows_of(session(0.2), agg.count())
    assert closed(windows, 0.1, 0.3) == [(0.1, 0.3, 1), (0.3, 0.5, 1)]
    assert closed(windows, 0.1, 0.299) == [(0.1, 0.499, 2)]


def test_an_event_that_would_make_a_session_too_long_begins_a_new_one() -> None:
    windows = windows_of(session(10, most=20), agg.count())
    assert closed(windows, 0.0, 5.0, 10.0, 15.0) == [(0.0, 20.0, 3), (15.0, 25.0, 1)]


def test_an_event_before_the_watermark_is_late_for_any_session() -> None:
    windows = windows_of(session(10), agg.count())
    state = windows.new()
    assert windows.add(state, 5.0, {}, -inf)
    assert not windows.add(state, 9.0, {}, 9.5)
    found = windows.close("key", state, inf)
    assert [(one.start, one.end, one.value) for one in found] == [(5.0, 15.0, 1)]


SHAPES = [
    tumbling(60),
    sliding(60, every=20),
    session(60),
    tumbling(count=5),
    calendar("day"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_value_that_the_aggregate_refuses_changes_nothing(shape: Any) -> None:
    windows = windows_of(shape, aggregate_of({"n": agg.count(), "sum": agg.sum("x")}))
    state = windows.new()
    for times in [(5.0,), (5.0, 200.0), (70.0,)]:
        before = dumps(state)
        for time in times:
            with pytest.raises(ValueError, match=r"sum\(x\)"):
                windows.add(state, time, {"x": None}, -inf)
        assert dumps(state) == before
        windows.add(state, times[-1], {"x": 1}, -inf)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumbling(0), r"tumbling\(seconds=0\)"),
        (lambda: tumbling(), "either seconds or count="),  # type: ignore[call-overload]
        (lambda: tumbling(1, count=1), "either seconds or count="),  # type: ignore[call-overload]
        (lambda: tumbling(count=0), "count=0"),
        (lambda: tumbling(inf), "seconds=inf"),
        (lambda: tumbling(nan), "seconds=nan"),
        (lambda: tumbling("60"), "seconds='60'"),  # type: ignore[call-overload]
        (lambda: tumbling(True), "seconds=True"),
        (lambda: tumbling(timedelta(0)), "seconds="),
        (lambda: sliding(60, every=-1), "every=-1"),
        (lambda: sliding(60, every=61), "not longer than the length"),
        (lambda: session(-1), "gap=-1"),
        (lambda: session(60, most=60), "most that is longer"),
        (lambda: calendar("minute"), "use one of hour, day"),  # type: ignore[arg-type]
        (lambda: calendar("day", zone="Nowhere"), "no such zone"),
        (lambda: calendar("day", zone="../etc"), "no such zone"),
        (lambda: windows_of(tumbling(60), agg.count(), keep=-1), "keep=-1"),
        (lambda: windows_of(session(60), agg.count(), keep=1), "session"),
        (lambda: windows_of(tumbling(count=1), agg.count(), keep=1), "count="),
    ],
)
def test_wrong_options_are_errors_when_they_are_given(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        make()


def test_a_length_may_be_a_timedelta() -> None:
    assert tumbling(timedelta(minutes=1)) == tumbling(60)
    assert sliding(timedelta(hours=1), every=timedelta(seconds=0.1)) == sliding(3600, every=0.1)
    assert session(timedelta(seconds=1.5)) == session(1.5)


def test_a_wrong_shape_is_an_error_that_says_what_to_give() -> None:
    with pytest.raises(BuildError, match="give a shape"):
        windows_of(60, agg.count())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (tumbling(60), "tumbling(60)"),
        (tumbling(0.1), "tumbling(0.1)"),
        (sliding(3600, every=60), "sliding(3600, 60)"),
        (session(1800), "session(1800, most=86400)"),
        (calendar("day", zone="Europe/Athens"), "calendar(day, Europe/Athens)"),
        (tumbling(count=5), "tumbling(count=5)"),
    ],
)
def test_a_shape_is_shown_as_it_was_written(shape: Any, text: str) -> None:
    assert str(shape) == text
