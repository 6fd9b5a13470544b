"""Which states of an automaton can do all that others can.

Source: Milner (1971), for simulation.
"""

from __future__ import annotations

from streams.temporal.decisions import Decisions, ones

__all__ = ["stronger"]

# Every two are compared, so of more states nothing is told.
_MOST_STATES = 500


def stronger(diagrams: Decisions[int], steps: list[int]) -> list[int]:
    """For each state those others, as bits, that have a run whenever it has one, whatever follows.

    `steps[state]` is a diagram from letters to the states after it, as bits. Of two that have the
    same runs only the first is above the other. Time: the square of all diagrams at worst, as often
    as pairs of states are told apart by one more letter.
    """
    count = len(steps)
    if count > _MOST_STATES:
        return [0] * count
    above = _that_go_on(diagrams, steps)
    changed = True
    while changed:
        changed = False

        def answered(states: int, others: int) -> bool:
            # As all() it would take twice as long.
            while states:
                lowest = states & -states
                if not above[lowest.bit_length() - 1] & others:
                    return False
                states ^= lowest
            return True

        follows = diagrams.everywhere(answered)
        for state, step in enumerate(steps):
            fewer = sum(1 << other for other in ones(above[state]) if follows(step, steps[other]))
            if fewer != above[state]:
                above[state] = fewer
                changed = True
    return [
        sum(
            1 << other
            for other in ones(others)
            if other != state and (other < state or not above[other] >> state & 1)
        )
        for state, others in enumerate(above)
    ]


def _that_go_on(diagrams: Decisions[int], steps: list[int]) -> list[int]:
    """For each state those that have a step whenever it has one, of which there are few kinds."""
    goes_on: Decisions[bool] = Decisions()
    kinds: dict[int, int] = {}
    own = list(map(diagrams.mapping(goes_on, bool), steps))
    for state, kind in enumerate(own):
        kinds[kind] = kinds.get(kind, 0) | 1 << state
    follows = goes_on.everywhere(lambda one, other: other or not one)
    enough = {
        kind: sum(states for other, states in kinds.items() if follows(kind, other))
        for kind in kinds
    }
    return [enough[kind] for kind in own]
