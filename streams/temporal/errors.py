"""The errors of temporal formulas and automata; all are raised before any event is read."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import get_close_matches
from sys import getrecursionlimit

from penstock.streams.base.errors import BuildError
from penstock.streams.temporal.formula.lexer import is_plain_name

__all__ = [
    "AutomatonFormatError",
    "FormulaSyntaxError",
    "FormulaTooLarge",
    "TimedFormula",
    "UnknownProposition",
    "bounded_recursion",
]


class FormulaSyntaxError(BuildError, ValueError):
    """A text that is not a formula.

    `position` is the index of the first token that cannot continue a formula, the length of the
    text at its end; `expected` lists what could have come there.
    """

    def __init__(self, text: str, position: int, found: str, expected: tuple[str, ...]) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        line_begin = text.rfind("\n", 0, position) + 1
        line = text[line_begin:].split("\n", 1)[0].expandtabs(1)
        super().__init__(
            f"not a valid formula: {found} at position {position}, where {' or '.join(expected)} "
            f"was expected\n    {line}\n    {' ' * (position - line_begin)}^"
        )


class UnknownProposition(BuildError, KeyError):
    """A formula names a proposition without a test, or a letter names one that is not in the
    formula."""

    def __init__(
        self, name: str, position: int | None, known: Iterable[str], *, in_letter: bool = False
    ) -> None:
        self.name = name
        self.position = position
        self.known = tuple(sorted(known))
        near = get_close_matches(name, self.known, 1)
        where = "" if position is None else f" at position {position}"
        problem = (
            f"a letter cannot have {name!r}: the propositions are"
            if in_letter
            else f"the formula has a proposition {name!r}{where} that is not given; given are"
        )
        self._message = f"{problem}: {', '.join(self.known) or 'none'}" + (
            f". Did you mean {near[0]!r}?{_in_quotes(near[0])}" if near else ""
        )
        super().__init__(self._message)

    def __str__(self) -> str:
        # KeyError would print the representation of its argument.
        return self._message


def _in_quotes(name: str) -> str:
    return "" if is_plain_name(name) else f' In a formula write it in quotes, as "{name}"'


class FormulaTooLarge(BuildError):
    """A formula is nested too deeply, or its automaton or monitor is too large."""

    def __init__(self, what: str, reached: int, limit: int) -> None:
        self.reached = reached
        self.limit = limit
        super().__init__(
            f"the formula is too large: {what} reached {reached:,}, and {limit:,} is the limit. "
            "Split it into several formulas"
        )


class TimedFormula(BuildError):
    """A formula has a bound in time where it cannot be watched, or where there is no time."""


@contextmanager
def bounded_recursion() -> Generator[None]:
    """Raises FormulaTooLarge in place of RecursionError.

    Diagrams and formulas are walked recursively, diagrams by one call for each proposition.
    """
    try:
        yield
    except RecursionError:
        limit = getrecursionlimit()
        raise FormulaTooLarge("the depth of its diagrams", limit, limit) from None


class AutomatonFormatError(BuildError, ValueError):
    """A text is not an automaton in the expected format."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(f"line {line}: {problem}")
