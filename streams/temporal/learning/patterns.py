"""The fixed list of formulas that are tried.

Sources: Dwyer, Avrunin and Corbett, "Patterns in property specifications for finite-state
verification" (ICSE 1999), with global scope; the templates of Declare, Pesic, Schonenberg and van
der Aalst (EDOC 2007), on finite traces, for the bounded forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from penstock.streams.temporal.formula.printer import quoted

__all__ = ["BOUNDS", "MOST_PROPOSITIONS", "patterns"]

MOST_PROPOSITIONS = 20

BOUNDS = (1, 2, 3, 5, 10)

# With 10 the monitor of a chain has more than 10,000 states.
_BOUNDS_OF_CHAINS = (1, 2, 3, 5)


def patterns(names: Sequence[str]) -> Iterator[str]:
    """The texts of all formulas about one to three of these propositions."""
    propositions = [quoted(name) for name in names]
    for size in (1, 2, 3):
        for some in combinations(propositions, size):
            yield from _of_some(some)
    for a, b in permutations(propositions, 2):
        yield from _of_two(a, b)
    for a, b, c in permutations(propositions, 3):
        yield from _of_three(a, b, c)


def _of_some(some: tuple[str, ...]) -> Iterator[str]:
    """Absence, existence and universality: of propositions together, or of one of them."""
    one = some[0]
    together = one if len(some) == 1 else f"({' & '.join(some)})"
    either = one if len(some) == 1 else f"({' | '.join(some)})"
    yield f"G !{together}"
    yield _of("F", together)
    yield _of("G", either)
    if len(some) > 1:
        yield _of("F", either)
    for k in BOUNDS:
        # Of the first k events.
        if k == 1:
            yield f"!{together}"
            yield " & ".join(some)
            if len(some) > 1:
                yield " | ".join(some)
            continue
        yield f"G[0..{k - 1}] !{together}"
        yield _of(f"F[0..{k - 1}]", together)
        yield _of(f"G[0..{k - 1}]", either)
        if len(some) > 1:
            yield _of(f"F[0..{k - 1}]", either)


def _of_two(a: str, b: str) -> Iterator[str]:
    """Precedence of a before b, and response of b to a; with a bound, within so many events."""
    yield f"!{b} W {a}"
    yield f"G({a} -> F {b})"
    for k in BOUNDS:
        yield f"!{b} W {a} & G !(G[0..{k}] !{a} & X[{k}] {b})"
        yield f"G({a} -> {_of('X' if k == 1 else f'F[1..{k}]', b)})"


def _of_three(a: str, b: str, c: str) -> Iterator[str]:
    """Precedence and response with a choice or a condition, and chains of three: a, b and c come in
    this order; a is answered by b and then c; c comes only after a and then b."""
    if a < c:
        yield f"!{b} W ({a} | {c})"
        yield f"G({a} & {c} -> F {b})"
        yield f"G({b} -> F({a} | {c}))"
    yield f"F({a} & X F({b} & X F {c}))"
    yield f"G({a} -> F({b} & X F {c}))"
    yield f"!{c} W ({a} & !{c} & X(!{c} W {b}))"
    for k in _BOUNDS_OF_CHAINS:
        within = "X" if k == 1 else f"F[1..{k}]"
        yield f"F({a} & {within}({b} & {_of(within, c)}))"
        yield f"G({a} -> {within}({b} & {_of(within, c)}))"


def _of(operator: str, operand: str) -> str:
    return f"{operator}{operand}" if operand.startswith("(") else f"{operator} {operand}"
