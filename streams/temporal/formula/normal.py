"""Formulas in negation normal form, hash-consed: each is stored once and known by a number.

It serves two semantics. Over infinite words `X` is its own dual. Over finite ones (LTLf) its dual
is the weak next, `N`, which holds at the last event, where `X` does not.

Source for the finite semantics: De Giacomo and Vardi, IJCAI 2013.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.streams.temporal.formula.formula import (
    Binary,
    Constant,
    Formula,
    Match,
    Nary,
    Proposition,
    Sere,
    Timed,
    Unary,
)
from penstock.streams.temporal.formula.timed_rules import without_time

__all__ = ["FALSE", "TRUE", "Node", "Normal"]

FALSE, TRUE = 0, 1

_DUAL = {"&": "|", "|": "&", "U": "R", "R": "U", "E": "A", "A": "E", "X": "N", "N": "X"}


class Node(NamedTuple):
    """`kind` is `0`, `1`, a literal `+` or `-` (`parts[0]` is the proposition's bit), `&`, `|`,
    `X`, `N`, `U`, `R`, or a SERE's arrow: `A` is `|->`, `E` is `<>->`, and `M` is a marked `<>->`,
    which means the same."""

    kind: str
    parts: tuple[int, ...] = ()
    sere: Sere | None = None


class Normal:
    """Formulas by number. `bits` gives the number of each proposition.

    Simplifications are valid on infinite words, and with `finite` also on finite words that are not
    empty.
    """

    def __init__(self, finite: bool, propositions: Iterable[str]) -> None:
        self.finite = finite
        self.bits = {name: bit for bit, name in enumerate(propositions)}
        self.nodes = [Node("0"), Node("1")]
        self._numbers = {node: number for number, node in enumerate(self.nodes)}
        self._negations = {FALSE: TRUE, TRUE: FALSE}
        self._boolean = {FALSE, TRUE}

    def of(self, formula: Formula) -> int:
        """The number of `formula`. Raises TimedFormula for one with a bound in time."""
        if isinstance(formula, Timed):
            raise without_time(formula, "automata and traces have no time, only monitors do")
        if isinstance(formula, Constant):
            return TRUE if formula.value else FALSE
        if isinstance(formula, Proposition):
            return self._number(Node("+", (self.bits[formula.name],)))
        if isinstance(formula, Unary):
            operand = self.of(formula.operand)
            if formula.operator == "!":
                return self.negation(operand)
            if formula.operator == "X":
                return self.after("X", operand)
            if formula.operator == "next":
                return self.after("N", operand)
            return self.until(TRUE, operand) if formula.operator == "F" else self.always(operand)
        if isinstance(formula, Nary):
            return self.joined(formula.operator, map(self.of, formula.operands))
        if isinstance(formula, Match):
            kind = "E" if formula.operator == "<>->" else "A"
            return self.match(kind, formula.sere, self.of(formula.formula))
        return self._binary(formula)

    def _binary(self, formula: Binary) -> int:
        left, right = self.of(formula.left), self.of(formula.right)
        operator = formula.operator
        if operator == "->":
            return self.either(self.negation(left), right)
        if operator == "<->":
            no_left, no_right = self.negation(left), self.negation(right)
            return self.either(self.both(left, right), self.both(no_left, no_right))
        if operator == "U":
            return self.until(left, right)
        if operator == "R":
            return self.release(left, right)
        if operator == "W":
            return self.release(right, self.either(left, right))
        return self.until(right, self.both(left, right))

    def cube(self, care: int, value: int) -> int:
        """The conjunction of literals: of the propositions in `care` exactly those in `value`
        hold."""
        literals = (
            self._number(Node("+" if value >> bit & 1 else "-", (bit,)))
            for bit in range(care.bit_length())
            if care >> bit & 1
        )
        return self.both(*literals)

    def is_boolean(self, number: int) -> bool:
        """Whether it is about one event only."""
        return number in self._boolean

    def negation(self, number: int) -> int:
        """The number of its negation."""
        if number in self._negations:
            return self._negations[number]
        kind, parts, sere = self.nodes[number]
        if kind == "+" or kind == "-":
            result = self._number(Node("-" if kind == "+" else "+", parts))
        elif sere is not None:
            result = self.match(_DUAL[kind], sere, self.negation(parts[0]))
        elif kind == "&" or kind == "|":
            result = self.joined(_DUAL[kind], map(self.negation, parts))
        elif kind == "U":
            result = self.release(*map(self.negation, parts))
        elif kind == "R":
            result = self.until(*map(self.negation, parts))
        else:
            result = self.after(_DUAL[kind], self.negation(parts[0]))
        self._negations[number] = result
        return result

    def both(self, *numbers: int) -> int:
        return self.joined("&", numbers)

    def either(self, *numbers: int) -> int:
        return self.joined("|", numbers)

    def joined(self, kind: str, numbers: Iterable[int]) -> int:
        """The conjunction (`&`) or disjunction (`|`) of any number of them."""
        neutral, absorbing = (TRUE, FALSE) if kind == "&" else (FALSE, TRUE)
        parts: set[int] = set()
        for number in numbers:
            node = self.nodes[number]
            parts.update(node.parts if node.kind == kind else (number,))
        parts.discard(neutral)
        if absorbing in parts or not parts.isdisjoint(map(self.negation, parts)):
            return absorbing
        other = _DUAL[kind]
        # a & (a | b) = a
        parts = {
            part
            for part in parts
            if self.nodes[part].kind != other or parts.isdisjoint(self.nodes[part].parts)
        }
        if len(parts) < 2:
            return parts.pop() if parts else neutral
        number = self._number(Node(kind, tuple(sorted(parts))))
        if all(map(self.is_boolean, parts)):
            self._boolean.add(number)
        return number

    def after(self, kind: str, number: int) -> int:
        """`X` (or, over finite words, `N`) of it."""
        if not self.finite:
            if number in (FALSE, TRUE) or self._is_eternal(number):
                return number
            kind = "X"
        elif number == (FALSE if kind == "X" else TRUE):
            return number
        return self._number(Node(kind, (number,)))

    def _is_eternal(self, number: int) -> bool:
        """Whether it is `G F` or `F G` of something, and so has the same value at all times."""
        kind, parts, _ = self.nodes[number]
        if kind == "R" and parts[0] == FALSE:
            inner = self.nodes[parts[1]]
            return inner.kind == "U" and inner.parts[0] == TRUE
        if kind == "U" and parts[0] == TRUE:
            inner = self.nodes[parts[1]]
            return inner.kind == "R" and inner.parts[0] == FALSE
        return kind in "&|" and all(map(self._is_eternal, parts))

    def always(self, number: int) -> int:
        return self.release(FALSE, number)

    def until(self, left: int, right: int) -> int:
        """`left U right`."""
        if left in (FALSE, right) or right in (FALSE, TRUE) or self._is_eternal(right):
            return right
        inner = self.nodes[right]
        # F (a U b) = F b, and a U (a U b) = a U b
        if inner.kind == "U" and left in (TRUE, inner.parts[0]):
            return self.until(left, inner.parts[1])
        return self._number(Node("U", (left, right)))

    def release(self, left: int, right: int) -> int:
        """`left R right`."""
        if left in (TRUE, right) or right in (FALSE, TRUE) or self._is_eternal(right):
            return right
        inner = self.nodes[right]
        if inner.kind == "R" and left in (FALSE, inner.parts[0]):
            return self.release(left, inner.parts[1])
        return self._number(Node("R", (left, right)))

    def match(self, kind: str, sere: Sere, number: int) -> int:
        """`{sere} <>-> f` (`E` or `M`) or `{sere} |-> f` (`A`)."""
        if number == (TRUE if kind == "A" else FALSE):
            return number
        return self._number(Node(kind, (number,), sere))

    def all_marked(self, numbers: frozenset[int]) -> frozenset[int]:
        """The same formulas, with a mark on each `<>->`."""
        return frozenset(map(self._marked, numbers))

    def not_marked_twice(self, numbers: frozenset[int]) -> frozenset[int]:
        """Without each `<>->` that is there with a mark as well."""
        return frozenset(
            number
            for number in numbers
            if self.nodes[number].kind != "E" or self._marked(number) not in numbers
        )

    def _marked(self, number: int) -> int:
        kind, parts, sere = self.nodes[number]
        return self._number(Node("M", parts, sere)) if kind == "E" else number

    def _number(self, node: Node) -> int:
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
            if node.kind in "+-":
                self._boolean.add(number)
        return number
