"""Regular expressions as formulas of LTL, where they are simple enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.streams.temporal.errors import FormulaTooLarge, bounded_recursion
from penstock.streams.temporal.formula.formula import (
    FALSE,
    TRUE,
    Binary,
    Failure,
    Formula,
    Joined,
    Letter,
    Match,
    Nary,
    Repeat,
    Sere,
    Timed,
    Unary,
    children,
    may_be_empty,
    rebuilt,
)
from penstock.streams.temporal.formula.timed_rules import without_time

__all__ = ["left_matches", "to_ltl"]

# Each is a part of the result, which is written out in full.
_MOST_LETTERS = 1_000


@bounded_recursion()
def to_ltl(formula: Formula) -> Formula:
    """An equivalent formula, over infinite words and finite traces, without the matches that LTL
    can express.

    These are matches of Boolean steps, `;`, `:`, `|`, repetition with a bound, and repetition
    without one of a Boolean step, and so `[->n]` and `[=n]`. Others stay as they are; see
    `left_matches`. The result may be exponentially larger: FormulaTooLarge beyond 1,000 steps.
    Raises TimedFormula for a formula with a bound in time.
    """
    if isinstance(formula, Timed):
        raise without_time(formula, "LTL has no time")
    if not isinstance(formula, Match) or not _is_simple(formula.sere):
        return rebuilt(formula, to_ltl)
    inner = to_ltl(formula.formula)
    return _Unfolding(formula.operator == "|->").of(formula.sere, lambda: inner)


def left_matches(formula: Formula) -> list[Match]:
    """The matches in a formula, from the left; of nested ones the outermost."""
    if isinstance(formula, Match):
        return [formula]
    return [match for part in children(formula) for match in left_matches(part)]


def _is_simple(sere: Sere) -> bool:
    if isinstance(sere, Letter):
        return True
    if isinstance(sere, Repeat):
        return isinstance(sere.sere, Letter) or (sere.high is not None and _is_simple(sere.sere))
    if isinstance(sere, Failure) or sere.operator == "&&":
        return False
    return all(map(_is_simple, sere.parts))


class _Unfolding:
    """Unfolds one match: every match (`|->`) or some match (`<>->`) ends where a formula holds.

    `last` gives that formula; it is called for each place in the result where it is needed.
    """

    def __init__(self, every: bool) -> None:
        self._every = every
        self._letters = 0

    def of(self, sere: Sere, last: Callable[[], Formula]) -> Formula:
        if isinstance(sere, Letter):
            return self._step(sere.formula, last)
        if isinstance(sere, Repeat):
            return self._repeated(sere, last)
        assert isinstance(sere, Joined)
        if sere.operator == "|":
            return self._any(self.of(part, last) for part in sere.parts)
        first, *others = sere.parts
        if not others:
            return self.of(first, last)
        rest = Joined(sere.operator, tuple(others))
        if sere.operator == ":":
            return self.of(first, lambda: self.of(rest, last))
        if isinstance(first, Repeat) and isinstance(first.sere, Letter) and _is_star(first):
            ways = [self._while(first.sere.formula, self.of(rest, last))]
            if may_be_empty(rest):
                ways.append(self.of(first, last))
            return self._any(ways)
        ways = [self._then(first, rest, last)]
        if may_be_empty(first):
            ways.append(self.of(rest, last))
        return self._any(ways)

    def _repeated(self, sere: Repeat, last: Callable[[], Formula]) -> Formula:
        if sere.high == 0:
            return TRUE if self._every else FALSE
        if sere.high is None and sere.low < 2:
            assert isinstance(sere.sere, Letter)
            letter = sere.sere.formula
            return self._while(letter, self._step(letter, last))
        low = 0 if may_be_empty(sere.sere) else max(sere.low - 1, 0)
        high = None if sere.high is None else sere.high - 1
        return self._then(sere.sere, Repeat(sere.sere, low, high), last)

    def _then(self, first: Sere, rest: Sere, last: Callable[[], Formula]) -> Formula:
        """A match of one event or more of `first`, and then one of `rest`."""

        def after() -> Formula:
            ways = [last()] if may_be_empty(rest) else []
            if not (isinstance(rest, Repeat) and rest.high == 0):
                ways.append(Unary("next" if self._every else "X", self.of(rest, last)))
            return self._any(ways)

        return self.of(first, after)

    def _step(self, letter: Formula, last: Callable[[], Formula]) -> Formula:
        self._letters += 1
        if self._letters > _MOST_LETTERS:
            raise FormulaTooLarge(
                "the number of steps of a regular expression", self._letters, _MOST_LETTERS
            )
        if self._every:
            return Binary("->", letter, last())
        then = last()
        return letter if then == TRUE else Nary("&", (letter, then))

    def _while(self, letter: Formula, then: Formula) -> Formula:
        """`then` after any number of events that satisfy `letter`."""
        if not self._every:
            return Binary("U", letter, then)
        if isinstance(letter, Unary) and letter.operator == "!":
            return Binary("R", letter.operand, then)
        return Binary("R", Unary("!", letter), then)

    def _any(self, ways: Iterable[Formula]) -> Formula:
        found = tuple(ways)
        return found[0] if len(found) == 1 else Nary("&" if self._every else "|", found)


def _is_star(sere: Repeat) -> bool:
    return sere.low == 0 and sere.high is None
