"""From a formula to a generalised Büchi automaton that accepts the words on which it holds."""

from __future__ import annotations

from functools import lru_cache

from streams.temporal.automaton import Automaton, Edge
from streams.temporal.errors import UnknownProposition
from streams.temporal.expansion import Term
from streams.temporal.formula import Formula, propositions
from streams.temporal.normal import Normal
from streams.temporal.reduction import reduced
from streams.temporal.tableau import Tableau

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
    tableau = Tableau(normal, max_states)
    initial = tableau.first(normal.of(formula))
    steps: list[list[tuple[int, Term]]] = []
    for asked in tableau.asked:
        terms = tableau.expansion.terms(asked)
        steps.append([(tableau.after(term.choice), term) for term in terms])
    sets, marks = tableau.acceptance()
    edges = tuple(
        tuple(Edge(target, term.care, term.value, marks[term.choice]) for target, term in leaving)
        for leaving in steps
    )
    return reduced(Automaton(names, edges, (initial,), sets))
