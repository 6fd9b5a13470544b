"""Equivalent states are found by examining few of them again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import log2

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.automata.partition import coarsest
from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.monitors.monitor import Monitor
from tests.helpers.walks import examples

BITS = 3

# By state: an output, and for each letter the targets.
Graph = list[tuple[int, list[frozenset[int]]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    states = draw(st.integers(1, 12))
    # Few different ones, or hardly any two states would be alike.
    kinds = draw(st.lists(st.frozensets(st.integers(0, states - 1), max_size=3), min_size=1))
    row = st.lists(st.sampled_from(kinds), min_size=1 << BITS, max_size=1 << BITS)
    rows = draw(st.lists(row, min_size=1, max_size=4))
    state = st.tuples(st.integers(0, 1), st.sampled_from(rows))
    return draw(st.lists(state, min_size=states, max_size=states))


def plain(graph: Graph) -> list[int]:
    """All states are compared by all letters until no class splits any more."""
    classes = in_order_of_appearance(output for output, _ in graph)
    while True:
        finer = in_order_of_appearance(
            (its, tuple(frozenset(classes[to] for to in targets) for targets in row))
            for its, (_, row) in zip(classes, graph, strict=True)
        )
        if finer == classes:
            return classes
        classes = finer


def in_order_of_appearance(keys: Iterable[Hashable]) -> list[int]:
    found = list(keys)
    order = list(dict.fromkeys(found))
    return [order.index(key) for key in found]


@examples(500)
@given(graphs())
def test_the_classes_are_those_of_comparing_all_states_again_and_again(graph: Graph) -> None:
    diagrams: Decisions[frozenset[int]] = Decisions()

    def function(row: Sequence[frozenset[int]], bit: int) -> int:
        if bit == BITS:
            return diagrams.leaf(row[0])
        return diagrams.fork(bit, function(row[::2], bit + 1), function(row[1::2], bit + 1))

    found = coarsest(
        diagrams,
        [function(row, 0) for _, row in graph],
        [output for output, _ in graph],
        targets=lambda its: its,
        seen=lambda its, classes: frozenset(classes[to] for to in its),
    )
    assert found == plain(graph)


def test_a_state_is_examined_again_only_if_its_successors_were_separated() -> None:
    states = 2_000
    looks = 0

    def seen(state: int, classes: Sequence[int]) -> int:
        nonlocal looks
        looks += 1
        return classes[state]

    # One after the other is separated from the rest, from the end.
    diagrams: Decisions[int] = Decisions()
    chain = [diagrams.leaf(min(state + 1, states - 1)) for state in range(states)]
    outputs = [state == states - 1 for state in range(states)]
    classes = coarsest(diagrams, chain, outputs, targets=lambda state: (state,), seen=seen)
    assert classes == list(range(states))
    assert looks < states * log2(states)


def test_a_long_repetition_is_one_state_an_event_in_a_monitor_and_in_an_automaton() -> None:
    # In seconds, not in minutes.
    for text, events in (("{a[*1500]} |-> b", 1_500), ("{{{a[*15]}[*15]}[*15]} |-> b", 3_375)):
        assert len(Monitor(text).machine) == events + 2
        assert len(translate(parse(text))) == events + 1
