from __future__ import annotations

import asyncio
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import adaptive_flat_map, distinct_within, rate_limit
from penstock.streams.base.errors import BuildError, WrongType
from penstock.streams.limits import Fixed
from penstock.streams.testing import COMPLETED, play
from penstock.streams.testing.plugin import VirtualClock


def test_a_pair_leaves_at_the_time_of_its_second_item(clock: VirtualClock) -> None:
    seen = clock.play("--1--2---3--|", ops.pairwise())
    assert seen == [(5, (1, 2)), (9, (2, 3)), (12, COMPLETED)]


def test_our_operators_play_in_loop_time() -> None:
    async def take_three(value: int) -> int:
        await asyncio.sleep(3)
        return value

    assert play("-1-2-|", adaptive_flat_map(take_three, Fixed(9))) == [
        (4, 1),
        (6, 2),
        (6, COMPLETED),
    ]
    assert play("(1,2)|", rate_limit(1, per=2)) == [(0, 1), (2, 2), (5, COMPLETED)]


def test_a_tick_and_a_lookup_are_those_of_the_diagram() -> None:
    seen = play("a-b|", distinct_within(10, by=0), tick=0.5, lookup={"a": (1, 2), "b": (1, 3)})
    assert seen == [(0.0, (1, 2)), (1.5, COMPLETED)]


def test_an_error_is_shown_where_it_came() -> None:
    error = ValueError("bad")
    assert play("-1#", ops.map(str), error=error) == [(1, "1"), (2, error)]


def test_nothing_more_comes_than_was_requested() -> None:
    assert play("1-2-3|", ops.map(abs), request=1) == [(0, 1)]
    assert play("1-2-3|", ops.map(abs), request=2) == [(0, 1), (2, 2)]


def test_a_cancel_ends_what_is_seen() -> None:
    assert play("1-2-!3|", ops.map(abs)) == [(0, 1), (2, 2)]


def test_a_play_without_end_ends_when_nothing_can_happen() -> None:
    assert play("1-", ops.delay(5.0)) == [(5, 1)]


def test_a_play_can_be_ended_at_a_time() -> None:
    seen = play("1-2-3-4", ops.map(abs), until=3)
    assert seen == [(0, 1), (2, 2)]


def test_a_play_beyond_the_horizon_is_refused() -> None:
    with pytest.raises(ValueError, match="until"):
        play("1", ops.map(abs), until=1e9)


def test_several_diagrams_are_streams_of_one_clock() -> None:
    seen = play(["-a---b|", "--c-|"], lambda one, other: one.merge(other))
    assert seen == [(1, "a"), (2, "c"), (5, "b"), (6, COMPLETED)]
    pairs = play(["-a-b-|", "--1--2|"], lambda one, other: one.zip(other))
    assert pairs[:2] == [(2, ("a", 1)), (5, ("b", 2))]


def test_a_diagram_that_is_read_later_has_kept_its_items() -> None:
    seen = play(("-a--|", "-b---c|"), lambda one, other: one.concat(other))
    assert seen == [(1, "a"), (4, "b"), (5, "c"), (6, COMPLETED)]


def test_an_error_in_one_of_several_diagrams_is_that_of_the_output() -> None:
    error = ValueError("x")
    seen = play(["-a---|", "--#"], lambda one, other: one.merge(other), error=error)
    assert seen == [(1, "a"), (2, error)]


def test_a_cancel_in_any_of_several_diagrams_ends_what_is_seen() -> None:
    assert play(["-a---b|", "---!"], lambda one, other: one.merge(other)) == [(1, "a")]


def test_an_operator_of_reactivex_keeps_its_demand_when_it_is_played_alone() -> None:
    assert play("-1-2-3|", ops.map(str), request=1) == [(1, "1")]


def test_what_is_no_diagram_or_lacks_its_operator_is_an_error_that_says_what_to_write() -> None:
    two: Any = ("-1|", "a|")
    with pytest.raises(BuildError, match="a stream of each"):
        play(two, ops.map(str))
    with pytest.raises(WrongType, match="a diagram is one text"):
        play(5, ops.map(str))  # type: ignore[arg-type]  # the test
    for diagrams in ("-1|", two):
        with pytest.raises(WrongType, match="lacks the operator"):
            play(diagrams)
