"""From a formula to a generalised Büchi automaton that accepts the words on which it holds.

A `U` that is put off is always met together with all others that have its right side. Matches of
`<>->` are not: one may be met while others have begun. So those that are waited for are marked,
and when none of these is left, all that have begun by then are marked.

Source for the marks: Miyano and Hayashi, "Alternating finite automata on omega-words" (1984).
"""

from __future__ import annotations

from functools import lru_cache

from streams.temporal.automaton import Automaton, Edge
from streams.temporal.errors import FormulaTooLarge, UnknownProposition
from streams.temporal.expansion import MATCH, MOST_TERMS, Expansion, Term
from streams.temporal.formula import Formula, propositions
from streams.temporal.normal import Normal
from streams.temporal.reduction import reduced

__all__ = ["MAX_STATES", "translate"]

MAX_STATES = 10_000


@lru_cache(maxsize=256)
def translate(
    formula: Formula, names: tuple[str, ...] | None = None, max_states: int = MAX_STATES
) -> Automaton:
    """The automaton of `formula`, with the propositions `names`, by default its own.

    A state is what is left to be met. Results are remembered. Time and memory: exponential in the
    size of the formula at worst; FormulaTooLarge beyond `max_states` states, UnknownProposition
    if `names` lack one.
    """
    own = propositions(formula)
    names = tuple(own) if names is None else names
    for name, position in own.items():
        if name not in names:
            raise UnknownProposition(name, position, names)
    normal = Normal(False, names)
    expansion = Expansion(normal, min(max_states, MOST_TERMS))
    numbers: dict[int, int] = {}
    # States that ask the same are one state, however different their formulas look.
    known: dict[tuple[frozenset[int], bool], int] = {}
    found: list[list[Term]] = []

    def state(formulas: frozenset[int], mark: bool) -> int:
        key = (formulas, mark)
        if key in known:
            return known[key]
        formulas = normal.all_marked(formulas) if mark else normal.not_marked_twice(formulas)
        asked = expansion.all_of(formulas)
        if asked not in numbers:
            if len(found) >= max_states:
                raise FormulaTooLarge("the number of states", len(found) + 1, max_states)
            numbers[asked] = len(found)
            found.append(expansion.terms(asked))
        known[key] = numbers[asked]
        return numbers[asked]

    initial = state(frozenset((normal.of(formula),)), True)
    steps: list[list[tuple[int, Term]]] = []
    while len(steps) < len(found):
        steps.append(
            [(state(term.after, MATCH not in term.promises), term) for term in found[len(steps)]]
        )
    promised = {term.promises for terms in found for term in terms}
    sets = sorted(frozenset[int]().union(*promised))
    marks = {
        promises: sum(1 << at for at, one in enumerate(sets) if one not in promises)
        for promises in promised
    }
    edges = tuple(
        tuple(Edge(target, term.care, term.value, marks[term.promises]) for target, term in leaving)
        for leaving in steps
    )
    return reduced(Automaton(names, edges, (initial,), len(sets)))
