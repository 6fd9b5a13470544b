"""The parser: from a text to a formula.

Operators, the loosest first: `->` `<->` (right associative); `|`; `&`; `U W R M until before`
(right associative); prefixes. `always`, `never`, `eventually!` and the formula after a SERE's arrow
extend as far right as possible. PSL's other words bind like the operators that they abbreviate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from penstock.streams.temporal.errors import FormulaSyntaxError, FormulaTooLarge
from penstock.streams.temporal.formula.formula import (
    FALSE,
    TRUE,
    Binary,
    Formula,
    Match,
    Nary,
    Proposition,
    Unary,
)
from penstock.streams.temporal.formula.lexer import Token, tokens
from penstock.streams.temporal.formula.sere import EMPTY, Joined, Letter, Repeat, Sere

__all__ = ["parse"]

# Formulas are walked recursively, and Python bounds the depth of recursion.
MAX_DEPTH = 150
_MOST_DIGITS = 9

_LOOSEST, _OR, _AND, _BINDING = range(4)

_OPERATORS: dict[str, tuple[int, Literal["->", "<->", "|", "&"]]] = {
    "->": (_LOOSEST, "->"),
    "<->": (_LOOSEST, "<->"),
    "|": (_OR, "|"),
    "||": (_OR, "|"),
    "&": (_AND, "&"),
    "&&": (_AND, "&"),
}

_ARROWS = ("|->", "|=>", "<>->", "<>=>", "!")


def _not(formula: Formula) -> Formula:
    return Unary("!", formula)


def _and(left: Formula, right: Formula) -> Formula:
    return Nary("&", (left, right))


_BINDINGS: dict[str, Callable[[Formula, Formula], Formula]] = {
    "U": lambda a, b: Binary("U", a, b),
    "W": lambda a, b: Binary("W", a, b),
    "R": lambda a, b: Binary("R", a, b),
    "M": lambda a, b: Binary("M", a, b),
    "until": lambda a, b: Binary("W", a, b),
    "until!": lambda a, b: Binary("U", a, b),
    "until_": lambda a, b: Binary("W", a, _and(a, b)),
    "until!_": lambda a, b: Binary("U", a, _and(a, b)),
    "before": lambda a, b: Binary("W", _not(b), _and(a, _not(b))),
    "before!": lambda a, b: Binary("U", _not(b), _and(a, _not(b))),
    "before_": lambda a, b: Binary("W", _not(b), a),
    "before!_": lambda a, b: Binary("U", _not(b), a),
}


def parse(text: str) -> Formula:
    """Parse `text`. Linear time.

    Raises FormulaSyntaxError with the place, FormulaTooLarge for nesting deeper than 150, and
    TypeError for anything but text.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a formula is a text, not {type(text).__name__}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0
        self._boolean = False

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def _take(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _skip(self, kind: str) -> bool:
        if self._token.kind == kind:
            self._at += 1
            return True
        return False

    def _need(self, kind: str, *others: str) -> Token:
        if self._token.kind != kind:
            raise self._wrong("a number" if kind == "number" else f"`{kind}`", *others)
        return self._take()

    def _wrong(self, *expected: str) -> FormulaSyntaxError:
        kind, text, position = self._token
        found = "the text ends" if kind == "end" else f"`{text}` stands"
        if kind == "bad" and text == '"':
            found, expected = '`"` stands, without another one,', ("a name in quotes",)
        elif kind == "bad" and text.isalpha():
            expected = (*expected, "a name in quotes")
        return FormulaSyntaxError(self._text, position, found, expected)

    def _deeper(self, levels: int = 1) -> None:
        self._depth += levels
        if self._depth > MAX_DEPTH:
            raise FormulaTooLarge("its nesting", self._depth, MAX_DEPTH)

    def whole(self) -> Formula:
        formula = self._formula()
        if self._token.kind != "end":
            raise self._wrong("an operator", "the end")
        return formula

    def _formula(self, loosest: int = _LOOSEST) -> Formula:
        self._deeper()
        left = self._prefixed()
        while True:
            kind = self._token.kind
            if kind in _OPERATORS:
                level, operator = _OPERATORS[kind]
                if level < loosest:
                    break
                if operator == "&" or operator == "|":
                    left = self._joined(operator, level, left)
                else:
                    self._take()
                    left = Binary(operator, left, self._formula(level))
            elif kind in _BINDINGS and not self._boolean:
                self._take()
                left = _BINDINGS[kind](left, self._formula(_BINDING))
            else:
                break
        self._depth -= 1
        return left

    def _joined(self, operator: Literal["&", "|"], level: int, first: Formula) -> Formula:
        operands = [first]
        while _OPERATORS.get(self._token.kind) == (level, operator):
            self._take()
            operands.append(self._formula(level + 1))
        return Nary(operator, tuple(operands))

    def _prefixed(self) -> Formula:
        self._deeper()
        formula = self._boolean_operand()
        if formula is None:
            if self._boolean:
                raise self._wrong("a Boolean formula")
            formula = self._temporal_operand()
        self._depth -= 1
        return formula

    def _boolean_operand(self) -> Formula | None:
        token = self._token
        if token.kind == "name":
            self._take()
            return Proposition(token.text, token.position)
        if token.text in ("true", "1") and token.kind in ("true", "number"):
            self._take()
            return TRUE
        if token.text in ("false", "0") and token.kind in ("false", "number"):
            self._take()
            return FALSE
        if self._skip("!"):
            return _not(self._prefixed())
        if self._skip("("):
            formula = self._formula()
            self._need(")", "an operator")
            return formula
        return None

    def _temporal_operand(self) -> Formula:
        if self._skip("X"):
            return self._next(self._count() if self._skip("[") else 1)
        if self._skip("next"):
            return self._next(self._count() if self._skip("[") else 1)
        if self._skip("F"):
            return Unary("F", self._prefixed())
        if self._skip("G"):
            return Unary("G", self._prefixed())
        if self._skip("always"):
            return Unary("G", self._formula())
        if self._skip("eventually!"):
            return Unary("F", self._formula())
        if self._skip("never"):
            return self._never()
        if self._token.kind == "{":
            return self._bound_sere()
        raise self._wrong("a formula")

    def _count(self) -> int:
        number = self._number()
        self._need("]")
        return number

    def _next(self, times: int) -> Formula:
        self._deeper(times)
        formula = self._prefixed()
        self._depth -= times
        for _ in range(times):
            formula = Unary("X", formula)
        return formula

    # Regular expressions.

    def _never(self) -> Formula:
        begin = self._at
        if self._kind() == "{":
            sere = self._braces()
            if self._kind() not in _ARROWS:
                return Unary("G", Match("|->", sere, FALSE))
            self._at = begin
        return Unary("G", _not(self._formula()))

    def _bound_sere(self) -> Formula:
        sere = self._braces()
        arrow = self._token.kind
        if arrow not in _ARROWS:
            raise self._wrong(*(f"`{each}`" for each in _ARROWS))
        self._take()
        if arrow == "!":
            return Match("<>->", sere, TRUE)
        if arrow in ("|=>", "<>=>"):
            sere = Joined(";", (sere, Letter(TRUE)))
        return Match("|->" if arrow in ("|->", "|=>") else "<>->", sere, self._formula())

    def _braces(self) -> Sere:
        # Takes as many nested calls as four formulas.
        self._deeper(4)
        self._need("{")
        sere = self._sere(0)
        self._need("}", "`;`", "`:`", "`|`", "`&&`", "a repetition")
        self._depth -= 4
        return sere

    _JOINTS: tuple[Literal[";", ":", "|", "&&"], ...] = (";", ":", "|", "&&")

    def _sere(self, level: int) -> Sere:
        """`;` is the loosest joint, then `:`, `|` and `&&`."""
        if level == len(self._JOINTS):
            return self._repeated()
        joint = self._JOINTS[level]
        parts = [self._sere(level + 1)]
        while self._token.kind == joint or (joint == "|" and self._token.kind == "||"):
            self._take()
            parts.append(self._sere(level + 1))
        return parts[0] if len(parts) == 1 else Joined(joint, tuple(parts))

    def _repeated(self) -> Sere:
        sere: Sere
        if self._token.kind in ("[*", "[+]"):
            sere = Letter(TRUE)
        elif self._token.kind == "{":
            sere = self._braces()
        else:
            sere = Letter(self._letter())
        while True:
            if self._skip("[+]"):
                sere = Repeat(sere, 1, None)
            elif self._skip("[*"):
                low, high = self._bounds()
                sere = EMPTY if high == 0 else Repeat(sere, low, high)
            else:
                return sere

    def _letter(self) -> Formula:
        outer, self._boolean = self._boolean, True
        operands = [self._prefixed()]
        while self._skip("&"):
            operands.append(self._prefixed())
        self._boolean = outer
        return operands[0] if len(operands) == 1 else Nary("&", tuple(operands))

    def _bounds(self) -> tuple[int, int | None]:
        if self._skip("]"):
            return 0, None
        low = self._number("`]`")
        if self._skip("]"):
            return low, low
        self._need("..", "`]`")
        if self._skip("]"):
            return low, None
        high = self._number("`]`")
        if high < low:
            self._at -= 1
            raise self._wrong(f"a bound of {low} or more")
        self._need("]")
        return low, high

    def _number(self, *others: str) -> int:
        token = self._need("number", *others)
        if len(token.text) > _MOST_DIGITS:
            self._at -= 1
            raise self._wrong(f"a number of at most {_MOST_DIGITS} digits")
        return int(token.text)
