"""Which states of an automaton can do all that others can.

Source: Milner (1971), for simulation; guards are compared one by one, so some pairs are missed.
"""

from __future__ import annotations

from collections.abc import Collection

from streams.temporal.automaton import Edge

__all__ = ["stronger"]

# Every two are compared, so of more states nothing is told.
_MOST_STATES = 300


def stronger(edges: tuple[tuple[Edge, ...], ...]) -> list[frozenset[int]]:
    """For each state those others that have a run whenever it has one, whatever follows.

    Of two that have the same only the first is above the other. Time: the square of the edges at
    worst, as often as pairs of states are told apart by one more letter.
    """
    count = len(edges)
    if count > _MOST_STATES:
        return [frozenset[int]()] * count
    # Most pairs are told apart by their guards alone, of which many have the same.
    guards: dict[frozenset[Edge], list[int]] = {}
    for state, leaving in enumerate(edges):
        guards.setdefault(frozenset(edge._replace(target=0) for edge in leaving), []).append(state)
    anywhere = [{0}]
    above: list[set[int]] = [set() for _ in range(count)]
    for followed, below in guards.items():
        enough = [
            state
            for following, states in guards.items()
            if _follows(following, followed, anywhere)
            for state in states
        ]
        for state in below:
            above[state] = set(enough)
    changed = True
    while changed:
        changed = False
        for state, others in enumerate(above):
            fewer = {other for other in others if _follows(edges[other], edges[state], above)}
            if len(fewer) < len(others):
                above[state] = fewer
                changed = True
    return [
        frozenset(other for other in others if other < state or state not in above[other])
        for state, others in enumerate(above)
    ]


def _follows(edges: Collection[Edge], followed: Collection[Edge], above: list[set[int]]) -> bool:
    # As all() of any() it would take twice as long.
    for target, care, value, _ in followed:
        enough = above[target]
        for its_target, its_care, its_value, _ in edges:
            if (
                its_target in enough
                and its_care & care == its_care
                and value & its_care == its_value
            ):
                break
        else:
            return False
    return True
