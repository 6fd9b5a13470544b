"""Translation of a formula to a generalised Büchi automaton that accepts the words satisfying
it."""

from __future__ import annotations

from functools import lru_cache

from penstock.streams.temporal.automata.automaton import Automaton
from penstock.streams.temporal.automata.reduction import reduced
from penstock.streams.temporal.automata.steps import Step, Steps, best, drawn_up
from penstock.streams.temporal.automata.tableau import Tableau
from penstock.streams.temporal.errors import UnknownProposition, bounded_recursion
from penstock.streams.temporal.formula.decisions import Decisions
from penstock.streams.temporal.formula.formula import Formula, propositions
from penstock.streams.temporal.formula.normal import Normal

__all__ = ["MAX_STATES", "translate"]

MAX_STATES = 10_000


@bounded_recursion()
@lru_cache(maxsize=256)
def translate(
    formula: Formula, names: tuple[str, ...] | None = None, max_states: int = MAX_STATES
) -> Automaton:
    """The automaton of `formula`, with the propositions `names`, by default its own.

    A state is what remains to be fulfilled. Results are cached. Time and memory: exponential in the
    size of the formula at worst; raises FormulaTooLarge beyond `max_states` states, and
    UnknownProposition if `names` lack one.
    """
    own = propositions(formula)
    names = tuple(own) if names is None else names
    for name, position in own.items():
        if name not in names:
            raise UnknownProposition(name, position, names)
    normal = Normal(False, names)
    tableau = Tableau(normal, max_states)
    initial = tableau.first(normal.of(formula))
    # Grows during the loop.
    for state, _ in enumerate(tableau.asked):
        for choice in tableau.choices(state):
            tableau.after(choice)
    sets, marks = tableau.acceptance()
    diagrams: Decisions[frozenset[Step]] = Decisions()
    to_steps = tableau.expansion.diagrams.mapping(
        diagrams, lambda its: best(frozenset((tableau.after(one), marks[one]) for one in its))
    )
    functions = tuple(map(to_steps, tableau.asked))
    return drawn_up(reduced(Steps(diagrams, functions, (initial,), sets)), names)
