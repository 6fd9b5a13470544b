"""The tableau of one or several formulas: numbered states of what remains to be fulfilled.

A postponed `U` is always fulfilled together with all others that have the same right side. Matches
of `<>->` are not: one may complete while others have begun. So the matches that are awaited are
marked, and when none of these is left, all that have begun by then are marked.

Source for the marks: Miyano and Hayashi, "Alternating finite automata on omega-words" (1984).
"""

from __future__ import annotations

from penstock.streams.temporal.errors import FormulaTooLarge
from penstock.streams.temporal.formula.expansion import MATCH, Expansion
from penstock.streams.temporal.formula.normal import Normal

__all__ = ["Tableau"]


class Tableau:
    """The states reached from the formulas given to `first`.

    `asked` holds the diagram of each in `expansion`, whose choices lead to other states: it grows
    as they are visited. FormulaTooLarge beyond `max_states` states.
    """

    def __init__(self, normal: Normal, max_states: int) -> None:
        self._normal = normal
        self.expansion = Expansion(normal)
        self.asked: list[int] = []
        self._max_states = max_states
        # States with the same expansion are one state, however different their formulas look.
        self._numbers: dict[int, int] = {}
        self._known: dict[tuple[frozenset[int], bool], int] = {}
        self._after: dict[int, int] = {}

    def first(self, number: int) -> int:
        """The state of a formula before any event."""
        return self._state(frozenset((number,)), True)

    def promises(self, choice: int) -> frozenset[int]:
        """The promises of a choice, which must not be postponed for ever."""
        return self.expansion.parted(choice)[1]

    def choices(self, state: int) -> list[int]:
        """All choices of a state, over all events."""
        return sorted(frozenset[int]().union(*self.expansion.diagrams.leaves(self.asked[state])))

    def after(self, choice: int) -> int:
        """The state that a choice leads to."""
        found = self._after.get(choice)
        if found is None:
            formulas, promises = self.expansion.parted(choice)
            found = self._after[choice] = self._state(formulas, MATCH not in promises)
        return found

    def acceptance(self) -> tuple[int, dict[int, int]]:
        """The number of acceptance sets, one for each promise, and the sets that each choice seen
        so far belongs to, as bits."""
        promises = {choice: self.promises(choice) for choice in self._after}
        sets = sorted(frozenset[int]().union(*promises.values()))
        marks = {
            choice: sum(1 << at for at, one in enumerate(sets) if one not in its)
            for choice, its in promises.items()
        }
        return len(sets), marks

    def _state(self, formulas: frozenset[int], mark: bool) -> int:
        key = (formulas, mark)
        if key in self._known:
            return self._known[key]
        normal = self._normal
        formulas = normal.all_marked(formulas) if mark else normal.not_marked_twice(formulas)
        asked = self.expansion.all_of(formulas)
        number = self._numbers.get(asked)
        if number is None:
            number = self._numbers[asked] = len(self.asked)
            if number >= self._max_states:
                raise FormulaTooLarge("the number of states", number + 1, self._max_states)
            self.asked.append(asked)
        self._known[key] = number
        return number
