"""Lassos, infinite words that end in a loop: membership in the language of an automaton, and
examples of accepted ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.streams.temporal.automata.automaton import Automaton, Edge, components

__all__ = ["Lasso", "accepted_word", "accepts"]


class Lasso(NamedTuple):
    """The letters of `stem`, then those of `loop` for ever."""

    stem: tuple[int, ...]
    loop: tuple[int, ...]


def accepts(automaton: Automaton, stem: Sequence[int], loop: Sequence[int]) -> bool:
    """Whether the word of these letters is accepted. Time: linear in edges times letters.

    Raises ValueError for an empty loop.
    """
    if not loop:
        raise ValueError("the loop of a word needs at least one letter")
    letters = [*stem, *loop]
    places = len(letters)
    # A state of the product is a state of the automaton with a position in the word.
    edges = tuple(
        tuple(
            Edge(edge.target * places + _next(place, len(stem), places), 0, 0, edge.marks)
            for edge in leaving
            if edge.allows(letters[place])
        )
        for leaving in automaton.edges
        for place in range(places)
    )
    initial = tuple(state * places for state in automaton.initial)
    return not Automaton((), edges, initial, automaton.sets).is_empty()


def _next(place: int, loop_begins: int, places: int) -> int:
    return place + 1 if place + 1 < places else loop_begins


def accepted_word(automaton: Automaton, begin: int | None = None) -> Lasso | None:
    """A word that is accepted from the state `begin` (by default the initial ones), if any is.

    Its stem is as short as possible. Linear time for each acceptance set.
    """
    loops = _accepting_states(automaton)
    roots = automaton.initial if begin is None else (begin,)
    stem = _path(automaton, roots, lambda edge: edge.target in loops, None)
    at_once = next((root for root in roots if root in loops), None)
    if at_once is not None:
        stem, home = [], at_once
    elif stem is None:
        return None
    else:
        home = stem[-1].target
    inside = loops[home]
    loop: list[Edge] = []
    place = home
    for at in range(automaton.sets):
        if not any(edge.marks >> at & 1 for edge in loop):
            part = _path(automaton, (place,), _in_set(at), inside)
            assert part
            loop += part
            place = part[-1].target
    if place != home or not loop:
        back = _path(automaton, (place,), lambda edge: edge.target == home, inside)
        assert back
        loop += back
    return Lasso(tuple(edge.value for edge in stem), tuple(edge.value for edge in loop))


def _in_set(at: int) -> Callable[[Edge], bool]:
    return lambda edge: bool(edge.marks >> at & 1)


def _accepting_states(automaton: Automaton) -> dict[int, frozenset[int]]:
    """The states on accepting cycles, each with its component."""
    found: dict[int, frozenset[int]] = {}
    for component in components(range(len(automaton)), automaton.successors):
        inside = frozenset(component)
        marks = [
            edge.marks
            for state in component
            for edge in automaton.edges[state]
            if edge.target in inside
        ]
        together = 0
        for each in marks:
            together |= each
        if marks and together == (1 << automaton.sets) - 1:
            found.update(dict.fromkeys(component, inside))
    return found


def _path(
    automaton: Automaton,
    begins: Iterable[int],
    wanted: Callable[[Edge], bool],
    inside: frozenset[int] | None,
) -> list[Edge] | None:
    """A shortest path whose last edge is `wanted`, through states of `inside` only."""
    came_by: dict[int, tuple[int, Edge] | None] = dict.fromkeys(begins)
    queue = deque(came_by)
    while queue:
        state = queue.popleft()
        for edge in automaton.edges[state]:
            if inside is not None and edge.target not in inside:
                continue
            if wanted(edge):
                path = [edge]
                while (step := came_by[state]) is not None:
                    state, last = step
                    path.append(last)
                return path[::-1]
            if edge.target not in came_by:
                came_by[edge.target] = (state, edge)
                queue.append(edge.target)
    return None
