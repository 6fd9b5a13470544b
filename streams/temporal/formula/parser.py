"""The parser: from a text to a formula.

Operators, the loosest first: `->` `<->` (right associative); `|`; `^`; `&`; `U W R M until before`
(right associative); prefixes. `always`, `never`, `eventually!` and the formula after a SERE's arrow
extend as far right as possible. PSL's other words bind like the operators that they abbreviate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from penstock.streams.base.errors import WrongType
from penstock.streams.temporal.errors import FormulaSyntaxError, FormulaTooLarge
from penstock.streams.temporal.formula.formula import (
    EMPTY,
    FALSE,
    TRUE,
    Binary,
    Failure,
    Formula,
    Joined,
    Letter,
    Match,
    Nary,
    Proposition,
    Repeat,
    Sere,
    Timed,
    TimedOperator,
    Unary,
)
from penstock.streams.temporal.formula.lexer import Token, tokens

__all__ = ["UNITS", "parse"]

# Formulas are walked recursively, and Python bounds the depth of recursion.
MAX_DEPTH = 150
_MOST_DIGITS = 9
# A range repeats its operand for each event; a thousand repetitions take milliseconds.
_MOST_COPIES = 1_000

_LOOSEST, _OR, _XOR, _AND, _BINDING = range(5)

_OPERATORS: dict[str, tuple[int, Literal["->", "<->", "^", "|", "&"]]] = {
    "->": (_LOOSEST, "->"),
    "<->": (_LOOSEST, "<->"),
    "^": (_XOR, "^"),
    "|": (_OR, "|"),
    "||": (_OR, "|"),
    "&": (_AND, "&"),
    "&&": (_AND, "&"),
}

# In milliseconds.
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_ONLY_IN_SERES = (";", ":", "{", "[*", "[+]", "[->", "[=")
# PSL's, and those of VHDL and Perl.
_TO = ("..", ":", "to", ",")
_WITHOUT_END = ("$", "inf")

_ARROWS = ("|->", "|=>", "<>->", "<>=>", "!")


# What joins expressions, the loosest first; `->`, `<->` and `^` only Boolean formulas.
_Joint = Literal[";", ":", "->", "<->", "|", "^", "&&", "&"]
_JOINTS: tuple[dict[str, _Joint], ...] = (
    {";": ";"},
    {":": ":"},
    {"->": "->", "<->": "<->"},
    {"|": "|", "||": "|"},
    {"^": "^"},
    {"&&": "&&", "&": "&"},
)


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


# How an operator with a range goes to the next event, and what joins the events of the range.
_RANGES: dict[str, tuple[Literal["X", "next"], Literal["&", "|"]]] = {
    "F": ("X", "|"),
    "G": ("next", "&"),
    "next_a": ("next", "&"),
    "next_a!": ("X", "&"),
    "next_e": ("next", "|"),
    "next_e!": ("X", "|"),
}


def _boolean(sere: Sere) -> Formula | None:
    """The formula of an expression that is one event long whatever the events are, if it is."""
    if isinstance(sere, Letter):
        return sere.formula
    if isinstance(sere, Joined) and sere.operator in ("|", "&&"):
        parts = [_boolean(part) for part in sere.parts]
        formulas = tuple(part for part in parts if part is not None)
        if len(formulas) == len(parts):
            return Nary("&" if sere.operator == "&&" else "|", formulas)
    return None


def _together(parts: list[Sere]) -> Sere:
    """Expressions that begin together and of which the last one ends the match."""
    size = len(parts) * sum(1 for part in parts for _ in part.letters())
    if size > _MOST_COPIES:
        raise FormulaTooLarge("the copies in its expressions", size, _MOST_COPIES)
    longer = [Joined(";", (part, Repeat(Letter(TRUE), 0, None))) for part in parts]
    last = [Joined("&&", (*longer[:at], part, *longer[at + 1 :])) for at, part in enumerate(parts)]
    return Joined("|", tuple(last))


def parse(text: str) -> Formula:
    """Parse `text`. Linear time.

    Raises FormulaSyntaxError with the place, FormulaTooLarge for nesting deeper than 150, nested
    ranges of more than 1,000 events together or as many copies of what `&` joins in expressions,
    and TypeError for anything but text.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongType(f"a formula is a text, not {type(text).__name__}")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0
        self._copies = 1
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
                elif operator == "^":
                    left = self._exclusive(left)
                else:
                    self._take()
                    left = Binary(operator, left, self._formula(level))
            elif kind == "U" and self._has_bound() and not self._boolean:
                _, bound = self._take(), self._bound()
                left = Timed("U", left, self._formula(_BINDING), bound)
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

    def _exclusive(self, left: Formula) -> Formula:
        self._take()
        self._deeper()
        right = self._formula(_XOR)
        self._depth -= 1
        return _not(Binary("<->", left, right))

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
        return self._in_parentheses() if token.kind == "(" else None

    def _temporal_operand(self) -> Formula:
        if self._skip("X"):
            return self._next("X", self._times(self._skip("[") and not self._is_strong()))
        if self._skip("next!"):
            return self._next("X", self._times(self._skip("[")))
        if self._skip("next"):
            return self._next("next", self._times(self._skip("[")))
        if self._has_bound():
            return self._timed("F" if self._take().kind == "F" else "G")
        if self._kind() in _RANGES and self._tokens[self._at + 1].kind == "[":
            return self._in_range()
        if self._skip("F"):
            return Unary("F", self._prefixed())
        if self._skip("G"):
            return Unary("G", self._prefixed())
        if self._kind() in ("next_event", "next_event!"):
            return self._next_event()
        if self._skip("always"):
            return Unary("G", self._formula())
        if self._skip("eventually!"):
            return Unary("F", self._formula())
        if self._skip("never"):
            return self._never()
        if self._token.kind == "{":
            return self._bound_sere()
        raise self._wrong("a formula")

    def _is_strong(self) -> bool:
        """Whether `[!]` is written after an `X`, which is strong anyway."""
        if not self._skip("!"):
            return False
        self._need("]")
        return True

    def _times(self, are_given: bool) -> int:
        if not are_given:
            return 1
        number = self._number()
        self._need("]")
        return number

    def _next(self, operator: Literal["X", "next"], times: int) -> Formula:
        self._deeper(times)
        formula = self._prefixed()
        self._depth -= times
        for _ in range(times):
            formula = Unary(operator, formula)
        return formula

    def _has_bound(self) -> bool:
        """Whether a bound in time is written after an operator that may have one."""
        if self._kind() not in ("F", "G", "U"):
            return False
        return [token.kind for token in self._tokens[self._at + 1 : self._at + 3]] == ["[", "<="]

    def _timed(self, operator: TimedOperator) -> Formula:
        bound = self._bound()
        return Timed(operator, TRUE, self._prefixed(), bound)

    def _bound(self) -> int:
        """`[<=10s]`, in milliseconds."""
        self._need("[")
        self._need("<=")
        number = self._number()
        if self._token.text not in UNITS:
            raise self._wrong(*(f"`{unit}`" for unit in UNITS))
        unit = self._take().text
        self._need("]")
        return number * UNITS[unit]

    def _in_range(self) -> Formula:
        operator = self._take().kind
        step, join = _RANGES[operator]
        self._need("[")
        low = self._number("`<=`")
        self._to()
        high = self._high(low) if operator in ("F", "G") else self._number_from(low)
        self._need("]")
        last = low if high is None else high
        levels = 2 * last - low + (high is None)
        self._deeper(levels)
        outer, self._copies = self._copies, self._copies * (last - low + 1)
        if self._copies > _MOST_COPIES:
            raise FormulaTooLarge("the copies in its ranges", self._copies, _MOST_COPIES)
        operand = formula = self._prefixed()
        self._copies = outer
        self._depth -= levels
        if high is None:
            formula = Unary("F" if operator == "F" else "G", formula)
        for _ in range(last - low):
            formula = Nary(join, (operand, Unary(step, formula)))
        for _ in range(low):
            formula = Unary(step, formula)
        return formula

    def _high(self, low: int) -> int | None:
        """The upper bound of a range, None if it has none."""
        if self._token.text in _WITHOUT_END:
            self._take()
            return None
        return None if self._kind() == "]" else self._number_from(low, "`]`")

    def _next_event(self) -> Formula:
        strong = self._take().kind == "next_event!"
        outer, self._boolean = self._boolean, True
        event = self._in_parentheses()
        self._boolean = outer
        times = 1
        if self._skip("["):
            times = self._number_from(1)
            self._need("]")
        self._deeper(3 * times)
        operand = self._in_parentheses()
        self._depth -= 3 * times
        until = _BINDINGS["U" if strong else "W"]
        formula = until(_not(event), _and(event, operand))
        for _ in range(times - 1):
            later = Unary("X" if strong else "next", formula)
            formula = until(_not(event), _and(event, later))
        return formula

    def _in_parentheses(self) -> Formula:
        self._need("(")
        formula = self._formula()
        self._need(")", "an operator")
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
            return Match("|->", Failure(sere), FALSE)
        self._take()
        if arrow == "!":
            return Match("<>->", sere, TRUE)
        if arrow in ("|=>", "<>=>"):
            sere = Joined(";", (sere, Letter(TRUE)))
        return Match("|->" if arrow in ("|->", "|=>") else "<>->", sere, self._formula())

    def _braces(self) -> Sere:
        # Takes as many nested calls as four formulas.
        self._deeper(4)
        end = {"{": "}", "(": ")"}[self._take().kind]
        sere = self._sere()
        self._need(end, "`;`", "`:`", "`|`", "`&&`", "a repetition")
        self._depth -= 4
        return sere

    def _is_sere(self, at: int) -> bool:
        """Whether braces begin there, or parentheses that enclose no Boolean formula, or a
        repetition."""
        if self._tokens[at].kind != "(":
            return self._tokens[at].kind in ("{", "[*", "[+]")
        depth = 0
        for token in self._tokens[at:]:
            depth += (token.kind in ("(", "{")) - (token.kind in (")", "}"))
            if depth <= 0:
                return False
            if token.kind in _ONLY_IN_SERES:
                return True
        return False

    def _sere(self, level: int = 0) -> Sere:
        if level == len(_JOINTS):
            return self._repeated()
        joints, levels = _JOINTS[level], 0
        sere = self._sere(level + 1)
        while (joint := joints.get(self._kind())) is not None:
            levels += 3
            self._deeper(3)
            place = self._at
            parts = [sere]
            while joints.get(self._kind()) == joint:
                self._take()
                is_right = joint in ("->", "<->")
                parts.append(self._sere(level if is_right else level + 1))
            if joint == "->" or joint == "<->" or joint == "^":
                sere = self._of_booleans(joint, parts, place)
            elif joint == "&":
                sere = _together(parts)
            else:
                sere = Joined(joint, tuple(parts))
        self._depth -= levels
        return sere

    def _of_booleans(self, joint: Literal["->", "<->", "^"], parts: list[Sere], at: int) -> Sere:
        """The join of Boolean formulas, the letters of expressions, and nothing longer."""
        formulas = [formula for part in parts if (formula := _boolean(part)) is not None]
        if len(formulas) < len(parts):
            token = self._tokens[at]
            raise FormulaSyntaxError(
                self._text,
                token.position,
                f"`{token.text}` stands beside an expression,",
                ("Boolean formulas on both sides",),
            )
        self._deeper(2 * len(formulas))
        self._depth -= 2 * len(formulas)
        first, *others = formulas
        for other in others:
            first = (
                _not(Binary("<->", first, other)) if joint == "^" else Binary(joint, first, other)
            )
        return Letter(first)

    def _repeated(self) -> Sere:
        sere: Sere
        if self._token.kind in ("[*", "[+]"):
            sere = Letter(TRUE)
        elif self._is_sere(self._at):
            sere = self._braces()
        else:
            sere = Letter(self._letter())
        while True:
            if self._skip("[+]"):
                sere = Repeat(sere, 1, None)
            elif self._skip("[*"):
                low, high = self._bounds()
                sere = EMPTY if high == 0 else Repeat(sere, low, high)
            elif isinstance(sere, Letter) and self._kind() in ("[->", "[="):
                sere = self._occurrences(sere)
            elif self._kind() == "[" and self._tokens[self._at + 1].kind == ":":
                what = "`[:*` or `[:+]`, a repetition by fusion that is not known here, stands"
                raise FormulaSyntaxError(
                    self._text, self._token.position, what, ("the parts with `:` between them",)
                )
            else:
                return sere

    def _occurrences(self, letter: Letter) -> Sere:
        """`b[->n]` ends with the n-th event that satisfies b; `b[=n]` before the one after it."""
        up_to = self._take().kind == "[->"
        low, high = (1, 1) if up_to and self._skip("]") else self._bounds(int(up_to))
        others = Repeat(Letter(_not(letter.formula)), 0, None)
        sere: Sere = Joined(";", (others, letter))
        if (low, high) != (1, 1):
            sere = EMPTY if high == 0 else Repeat(sere, low, high)
        return sere if up_to else Joined(";", (sere, others))

    def _letter(self) -> Formula:
        outer, self._boolean = self._boolean, True
        operands = [self._prefixed()]
        while self._kind() == "&" and not self._is_sere(self._at + 1):
            self._take()
            operands.append(self._prefixed())
        self._boolean = outer
        return operands[0] if len(operands) == 1 else Nary("&", tuple(operands))

    def _bounds(self, least: int = 0) -> tuple[int, int | None]:
        """`n]` or `low..high]`; without `low` it is `least`."""
        if self._skip("]"):
            return least, None
        low = least
        if self._token.text not in _TO:
            low = self._number("`]`", "`..`")
            if self._skip("]"):
                return low, low
        self._to("`]`")
        high = self._high(low)
        self._need("]")
        return low, high

    def _to(self, *others: str) -> None:
        """Read the sign between the bounds of a range."""
        if self._token.text not in _TO:
            raise self._wrong("`..`", *others)
        self._take()

    def _number_from(self, least: int, *others: str) -> int:
        number = self._number(*others)
        if number < least:
            self._at -= 1
            raise self._wrong(f"a bound of {least} or more")
        return number

    def _number(self, *others: str) -> int:
        token = self._need("number", *others)
        if len(token.text) > _MOST_DIGITS:
            self._at -= 1
            raise self._wrong(f"a number of at most {_MOST_DIGITS} digits")
        return int(token.text)
