"""Examples of a formula: a shortest finite trace and an infinite word that satisfy it.

Two formulas are equivalent where neither "one and not the other" has an example.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from penstock.streams.temporal.automata.translate import MAX_STATES, translate
from penstock.streams.temporal.automata.words import Lasso, accepted_word
from penstock.streams.temporal.errors import UnknownProposition, bounded_recursion
from penstock.streams.temporal.formula.formula import Formula, Nary, Unary, propositions
from penstock.streams.temporal.monitors.machine import followed
from penstock.streams.temporal.monitors.progress import Progress

__all__ = ["Comparison", "Trace", "compare", "infinite_word", "shortest_trace"]

Trace = tuple[int, ...]
"""Letters of events; their bits are propositions."""


class Comparison(NamedTuple):
    """How two formulas differ: what satisfies only one of them, or None where nothing does."""

    names: tuple[str, ...]
    only_first_trace: Trace | None
    only_second_trace: Trace | None
    only_first_word: Lasso | None
    only_second_word: Lasso | None


def compare(one: Formula, other: Formula, max_states: int = MAX_STATES) -> Comparison:
    """Compare two formulas on all finite traces but the empty one, and on all infinite words.

    The traces are as short as possible, and so is the stem of each word. Time and memory: as for
    the monitor and the automaton of their conjunction; FormulaTooLarge beyond `max_states` states.
    """
    names = tuple({**propositions(one), **propositions(other)})
    only_first = Nary("&", (one, Unary("!", other)))
    only_second = Nary("&", (other, Unary("!", one)))
    return Comparison(
        names,
        shortest_trace(only_first, names, max_states),
        shortest_trace(only_second, names, max_states),
        infinite_word(only_first, names, max_states),
        infinite_word(only_second, names, max_states),
    )


@bounded_recursion()
def shortest_trace(
    formula: Formula, names: tuple[str, ...], max_states: int = MAX_STATES
) -> Trace | None:
    """A shortest trace of one event or more that satisfies the formula; None if there is none.

    `names` are the propositions of the letters. Raises UnknownProposition if they lack one of the
    formula's, and FormulaTooLarge beyond `max_states` states.
    """
    for name, position in propositions(formula).items():
        if name not in names:
            raise UnknownProposition(name, position, names)
    progress = Progress(formula, names)
    machine = followed(progress.first, progress.after, progress.diagrams, len(names), max_states)
    traces: dict[int, Trace] = {0: ()}
    queue = deque(traces)
    while queue:
        state = queue.popleft()
        for _, letter, target in machine.decisions.cubes(machine.steps[state]):
            trace = (*traces[state], letter)
            if progress.may_end(machine.outputs[target]):
                return trace
            if target not in traces:
                traces[target] = trace
                queue.append(target)
    return None


def infinite_word(
    formula: Formula, names: tuple[str, ...], max_states: int = MAX_STATES
) -> Lasso | None:
    """An infinite word that satisfies the formula, with the shortest stem; None if there is none.

    Raises as `shortest_trace` does.
    """
    return accepted_word(translate(formula, names, max_states))
