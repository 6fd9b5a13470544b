from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex.notification import Notification, OnError, OnNext
from reactivex.observable.marbles import parse as rx_parse
from reactivex.typing import RelativeTime

from penstock.streams.testing import Signal, parse_marbles, to_marbles

FAILURE = ValueError("broken")

words = st.text("abcxyz", min_size=1, max_size=4)
items = words | st.integers()
diagrams = st.lists(
    st.sampled_from(["-", " ", "-a", "-7", "(12)", "(b7,1.5)", "(a,b)", "(-1,2)", "()", "(x,,y)"])
).map("".join)
ends = st.sampled_from(["", "|", "#", "(a,|)", "(#)"])


@st.composite
def signal_lists(draw: st.DrawFn) -> list[Signal]:
    """Signals with room for each other, some at one time, some with an end."""
    signals: list[Signal] = []
    time = 0
    for together in draw(st.lists(st.lists(items, min_size=1, max_size=3), max_size=5)):
        time += draw(st.integers(0, 3))
        signals += [Signal(time, "next", item) for item in together]
        time += sum(len(str(item)) + 1 for item in together) + 1
        if draw(st.booleans()):
            signals.append(Signal(time, "cancel"))
            time += 1
    end = draw(st.sampled_from([[], [Signal(time, "completed")], [Signal(time, "error", FAILURE)]]))
    return signals + end


def test_the_time_of_a_signal_is_the_index_of_its_character() -> None:
    assert parse_marbles("--1--2---3--|") == [
        Signal(2, "next", 1),
        Signal(5, "next", 2),
        Signal(9, "next", 3),
        Signal(12, "completed"),
    ]


def test_a_group_happens_at_its_bracket_and_takes_its_width() -> None:
    assert parse_marbles("-(a,b)-c") == [
        Signal(1, "next", "a"),
        Signal(1, "next", "b"),
        Signal(7, "next", "c"),
    ]


def test_an_item_of_several_characters_is_written_in_brackets() -> None:
    assert parse_marbles("(12)-(ab)|") == [
        Signal(0, "next", 12),
        Signal(5, "next", "ab"),
        Signal(9, "completed"),
    ]


@pytest.mark.parametrize(("text", "item"), [("123456|", "123456"), ("-ab-", "ab"), ("1 2", "12")])
def test_characters_side_by_side_are_refused_with_how_marbles_are_written(
    text: str, item: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{item}' ")) as refused:
        parse_marbles(text)
    assert f"({item})" in str(refused.value)
    assert f"{item[0]}-{item[1]}" in str(refused.value)


def test_a_cancel_does_not_end_the_diagram() -> None:
    assert parse_marbles("a!b") == [
        Signal(0, "next", "a"),
        Signal(1, "cancel"),
        Signal(2, "next", "b"),
    ]


def test_a_tick_may_have_any_length() -> None:
    assert parse_marbles("---a", tick=0.1) == [Signal(3 * 0.1, "next", "a")]


def test_letters_stand_for_what_is_looked_up() -> None:
    known = {"a": [1, 2], 7: None}
    assert parse_marbles("a-7", lookup=known) == [
        Signal(0, "next", [1, 2]),
        Signal(2, "next", None),
    ]
    assert to_marbles(parse_marbles("a-7", lookup=known), lookup=known) == "a-7"


def test_an_error_is_the_one_that_was_given() -> None:
    (signal,) = parse_marbles("-#", error=FAILURE)
    assert signal == Signal(1, "error", FAILURE)


@pytest.mark.parametrize("text", ["(a", "a)", "a,b", "((a))", "(a|)", "a|b", "#-|", "(|,a)"])
def test_an_invalid_diagram_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no meaning|commas|follow"):
        parse_marbles(text)


@given(diagrams, ends)
def test_every_diagram_means_what_it_means_to_rxpy(diagram: str, end: str) -> None:
    def signal(time: RelativeTime, notification: Notification[object]) -> Signal:
        assert isinstance(time, float)
        if isinstance(notification, OnNext):
            return Signal(time, "next", notification.value)
        if isinstance(notification, OnError):
            return Signal(time, "error", FAILURE)
        return Signal(time, "completed")

    text = diagram + end
    theirs = rx_parse(text, timespan=1.0, error=FAILURE, raise_stopped=True)
    assert parse_marbles(text, error=FAILURE) == [signal(*message) for message in theirs]


@given(signal_lists(), st.sampled_from([1.0, 0.5, 0.1, 10.0]))
def test_signals_written_as_marbles_read_back_the_same(signals: list[Signal], tick: float) -> None:
    timed = [Signal(signal.time * tick, signal.kind, signal.value) for signal in signals]
    text = to_marbles(timed, tick=tick)
    assert parse_marbles(text, tick=tick, error=FAILURE) == timed


@given(diagrams, ends)
def test_a_diagram_written_again_means_the_same(diagram: str, end: str) -> None:
    signals = parse_marbles(diagram + end, error=FAILURE)
    text = to_marbles(signals)
    assert parse_marbles(text, error=FAILURE) == signals
    assert len(text) <= len(diagram + end)


@pytest.mark.parametrize(
    ("signals", "complaint"),
    [
        ([Signal(0.5, "next", "a")], "between two ticks"),
        ([Signal(0, "next", "abc"), Signal(1, "next", "d")], "no room"),
        ([Signal(2, "next", "a"), Signal(1, "next", "b")], "no room"),
        ([Signal(0, "completed"), Signal(1, "next", "b")], "follow"),
        ([Signal(0, "next", None)], "no marble"),
        ([Signal(0, "next", "a,b")], "no marble"),
        ([Signal(0, "next", "a b")], "no marble"),
        ([Signal(0, "next", "1")], "no marble"),
        ([Signal(0, "next", "|")], "no marble"),
        ([Signal(0, "next", True)], "no marble"),
    ],
)
def test_signals_without_a_diagram_are_refused(signals: list[Signal], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        to_marbles(signals)


@given(st.sampled_from("abcxyz"), words)
def test_items_of_neighbouring_ticks_are_kept_apart(first: str, second: str) -> None:
    signals = [Signal(0, "next", first), Signal(1, "next", second)]
    assert to_marbles(signals) == f"{first}({second})"
    assert parse_marbles(to_marbles(signals)) == signals
