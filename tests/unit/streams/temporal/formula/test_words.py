"""What PSL's words with ranges and events mean, from their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import Monitor
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.printer import to_text
from tests.helpers.brute_force import (
    Word,
    booleans,
    formulas,
    holds,
    holds_finitely,
    letters,
    loops,
    matches,
    words,
)

traces = st.lists(letters, min_size=1, max_size=6)
ranges = st.tuples(st.integers(0, 3), st.integers(0, 2)).map(lambda each: (each[0], sum(each)))

# Whether it is enough that one event of the range comes, and what is said of one that does not.
RANGED: list[tuple[str, Callable[..., bool], bool]] = [
    ("F", any, False),
    ("G", all, True),
    ("next_a", all, True),
    ("next_a!", all, False),
    ("next_e", any, True),
    ("next_e!", any, False),
]


def _later(stem: Word, loop: Word, places: int) -> tuple[Word, Word]:
    """The rest of an infinite word."""
    unrolled = [*stem, *loop * (places // len(loop) + 1)]
    return unrolled[places:], loop


@pytest.mark.parametrize(("word", "join", "beyond"), RANGED)
@given(formulas, ranges, words, loops, traces)
def test_a_range_is_about_the_events_that_it_counts(
    word: str,
    join: Callable[..., bool],
    beyond: bool,
    formula: Formula,
    span: tuple[int, int],
    stem: Word,
    loop: Word,
    trace: Word,
) -> None:
    low, high = span
    read = parse(f"{word}[{low}..{high}] ({to_text(formula)})")
    places = range(low, high + 1)
    assert holds(read, stem, loop) == join(
        holds(formula, *_later(stem, loop, place)) for place in places
    )
    assert holds_finitely(read, trace) == join(
        holds_finitely(formula, trace[place:]) if place < len(trace) else beyond for place in places
    )


@pytest.mark.parametrize("strong", [False, True])
@given(booleans, st.integers(1, 3), formulas, words, loops, traces)
def test_next_event_is_about_the_nth_event_of_its_kind_from_now_on(
    strong: bool, event: Formula, times: int, formula: Formula, stem: Word, loop: Word, trace: Word
) -> None:
    mark = "!" if strong else ""
    read = parse(f"next_event{mark}({to_text(event)})[{times}]({to_text(formula)})")
    span = [*stem, *loop * times * 2]
    places = [at for at, letter in enumerate(span) if holds_finitely(event, [letter])]
    assert holds(read, stem, loop) == (
        holds(formula, *_later(stem, loop, places[times - 1]))
        if len(places) >= times
        else not strong
    )
    places = [at for at, letter in enumerate(trace) if holds_finitely(event, [letter])]
    assert holds_finitely(read, trace) == (
        holds_finitely(formula, trace[places[times - 1] :]) if len(places) >= times else not strong
    )


@given(booleans, st.integers(0, 2), st.integers(0, 2), traces)
def test_occurrences_are_counted(event: Formula, low: int, more: int, trace: Word) -> None:
    text = f"({to_text(event)})"
    places = [at for at, letter in enumerate(trace) if holds_finitely(event, [letter])]
    counts = range(low, low + more + 1)
    ends = {places[count - 1] + 1 if count else 0 for count in counts if count <= len(places)}
    read = parse(f"{{{text}[->{low}..{low + more}]}}!")
    assert matches(read.sere, trace, 0) == ends  # type: ignore[union-attr]  # `{r}!` is a Match
    read = parse(f"{{{text}[={low}..{low + more}]}}!")
    assert matches(read.sere, trace, 0) == {  # type: ignore[union-attr]  # as above
        end for end in range(len(trace) + 1) if sum(at < end for at in places) in counts
    }


@given(formulas, formulas, words, loops, traces)
def test_exclusive_or_is_true_where_the_two_differ(
    one: Formula, other: Formula, stem: Word, loop: Word, trace: Word
) -> None:
    read = parse(f"({to_text(one)}) ^ ({to_text(other)})")
    assert holds(read, stem, loop) == (holds(one, stem, loop) != holds(other, stem, loop))
    assert holds_finitely(read, trace) == (
        holds_finitely(one, trace) != holds_finitely(other, trace)
    )


@pytest.mark.parametrize("text", ["G[0..70] a", "F[70..70] a", "next_event!(a)[45](b)"])
def test_the_deepest_words_that_are_read_can_be_watched(text: str) -> None:
    assert Monitor(text).monitorable
