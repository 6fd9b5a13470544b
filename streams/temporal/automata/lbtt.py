"""Reads and writes automata in the text format of LBTT, with acceptance on transitions or states.

Source: Tauriainen's LBTT, and its form with `t` for transitions that Spot writes and reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.streams.temporal.automata.automaton import Automaton, Edge
from penstock.streams.temporal.automata.guards import cubes, literals, marks, sets_of
from penstock.streams.temporal.errors import AutomatonFormatError
from penstock.streams.temporal.formula.formula import (
    FALSE,
    TRUE,
    Formula,
    Nary,
    Proposition,
    Unary,
    propositions,
)
from penstock.streams.temporal.formula.lexer import WORD
from penstock.streams.temporal.formula.printer import in_quotes

__all__ = ["first_lines", "from_lbtt", "to_lbtt"]

_HEADER = re.compile(r"(\d{1,9})\s+(\d{1,9})([ts]?)")
_EDGE = re.compile(r"(?P<target>\d{1,9})\s+(?P<guard>.+)", re.DOTALL)
_MARKED_EDGE = re.compile(
    r"(?P<target>\d{1,9})\s+(?P<sets>(?:\d{1,9}\s+)*)-1\s+(?P<guard>.+)", re.DOTALL
)
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\n]+|\n|"')
_TOKEN = re.compile(r'\s*([!&|]|"(?:[^"\\]|\\.)*"|[^\s"!&|]+)')


_DEEPEST = 150


def to_lbtt(automaton: Automaton) -> str:
    """The automaton as text, acceptance on transitions. `from_lbtt` reads it back."""
    lines = [f"{len(automaton)} {automaton.sets}t"]
    for state, leaving in enumerate(automaton.edges):
        lines.append(f"{state} {int(state in automaton.initial)}")
        for edge in leaving:
            sets = "".join(f"{one} " for one in sets_of(edge))
            lines.append(f"{edge.target} {sets}-1 {_prefix(automaton, edge)}")
        lines.append("-1")
    return "\n".join([*lines, ""])


def first_lines(automaton: Automaton) -> list[int]:
    """For each state, the number of the line in `to_lbtt` of its first edge."""
    found: list[int] = []
    number = 3
    for leaving in automaton.edges:
        found.append(number)
        # The end of this state and the beginning of the next are a line each.
        number += len(leaving) + 2
    return found


def _prefix(automaton: Automaton, edge: Edge) -> str:
    parts = [
        ("" if holds else "! ") + _name(automaton.propositions[bit])
        for bit, holds in literals(automaton, edge)
    ]
    return " ".join(["&"] * (len(parts) - 1) + parts) or "t"


def _name(name: str) -> str:
    return name if WORD.fullmatch(name) and name not in ("t", "f") else in_quotes(name)


def from_lbtt(text: str, names: tuple[str, ...] | None = None) -> Automaton:
    """The automaton that `text` describes.

    Its propositions are `names`, by default in the order in which they appear. Raises
    AutomatonFormatError with the line number, also for a guard nested deeper than 150 levels;
    TypeError for anything but text, FormulaTooLarge for a guard of too many cases.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an automaton is a text, not {type(text).__name__}")
    return _Reader(text).read(names)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; a quoted name may span several lines."""
    number, begin, at = 1, 0, 0
    for piece in _PIECE.finditer(text):
        if piece[0] == '"':
            raise AutomatonFormatError(number + text.count("\n", begin, at), "a name has no end")
        at = piece.end()
        if piece[0] == "\n":
            yield number, text[begin : at - 1]
            number += text.count("\n", begin, at)
            begin = at
    yield number, text[begin:]


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = [(number, line.strip()) for number, line in _lines(text) if line.strip()]
        self._length = len(text)
        self._at = 0
        self._number = 1

    def _line(self, wanted: str) -> str:
        if self._at == len(self._lines):
            raise AutomatonFormatError(self._number, f"the text ends where {wanted} should be")
        self._number, line = self._lines[self._at]
        self._at += 1
        return line

    def _wrong(self, problem: str) -> AutomatonFormatError:
        return AutomatonFormatError(self._number, problem)

    def read(self, names: tuple[str, ...] | None) -> Automaton:
        header = _HEADER.fullmatch(self._line("a header such as `4 2t`"))
        if header is None:
            raise self._wrong("not a header such as `4 2t`: states and acceptance sets")
        count, sets = int(header[1]), int(header[2])
        if sets > self._length:
            raise self._wrong(f"{sets:,} acceptance sets are more than the text has room for")
        on_edges = header[3] == "t"
        numbers: dict[int, int] = {}
        initial: list[int] = []
        found: list[tuple[int, list[tuple[int, int, Formula, int]]]] = []
        for _ in range(count):
            state, begins, *accepting = self._integers("a state")
            if state in numbers or begins not in (0, 1):
                raise self._wrong(f"state {state} comes twice, or `{begins}` is neither 0 nor 1")
            if begins:
                initial.append(state)
            numbers[state] = len(found)
            common = self._marks(accepting[:-1], sets)
            found.append((state, self._edges(on_edges, sets, common)))
        if self._at < len(self._lines):
            self._line("nothing")
            raise self._wrong(f"the text goes on after its {count} states")
        return self._built(numbers, initial, found, sets, names)

    def _integers(self, what: str) -> list[int]:
        words = self._line(what).split()
        try:
            numbers = [] if max(map(len, words)) > 9 else [int(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) < 2 or (len(numbers) > 2 and numbers[-1] != -1):
            raise self._wrong(f"not {what} such as `0 1`")
        return numbers

    def _marks(self, sets: list[int], most: int) -> int:
        for one in sets:
            if not 0 <= one < most:
                raise self._wrong(f"acceptance set {one} of {most}")
        return marks(sets)

    def _edges(self, marked: bool, sets: int, common: int) -> list[tuple[int, int, Formula, int]]:
        edges: list[tuple[int, int, Formula, int]] = []
        shape = _MARKED_EDGE if marked else _EDGE
        while (line := self._line("an edge or -1")) != "-1":
            parts = shape.fullmatch(line)
            if parts is None:
                raise self._wrong(f"not an edge: `{line}`")
            accepting = [int(one) for one in parts["sets"].split()] if marked else []
            guard = self._guard(parts["guard"])
            all_marks = self._marks(accepting, sets) | common
            edges.append((int(parts["target"]), all_marks, guard, self._number))
        return edges

    def _guard(self, text: str) -> Formula:
        tokens: list[str] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._wrong(f"not a guard: `{text}`")
            tokens.append(found[1])
            place = found.end()
        tokens.reverse()
        guard = self._operand(tokens, text)
        if tokens:
            raise self._wrong(f"the guard `{text}` goes on after its end")
        return guard

    def _operand(self, tokens: list[str], text: str, depth: int = 0) -> Formula:
        if not tokens:
            raise self._wrong(f"the guard `{text}` ends too early")
        token = tokens.pop()
        if token in ("!", "&", "|") and depth == _DEEPEST:
            raise self._wrong(f"the guard is nested deeper than {_DEEPEST} levels")
        if token == "!":
            return Unary("!", self._operand(tokens, text, depth + 1))
        if token == "&" or token == "|":
            # Directly nested operators are merged into one with more operands.
            count = 2
            while tokens and tokens[-1] == token:
                tokens.pop()
                count += 1
            parts = tuple(self._operand(tokens, text, depth + 1) for _ in range(count))
            return Nary("&" if token == "&" else "|", parts)
        if token in ("t", "f"):
            return TRUE if token == "t" else FALSE
        name = re.sub(r"\\(.)", r"\1", token[1:-1]) if token.startswith('"') else token
        return Proposition(name)

    def _built(
        self,
        numbers: dict[int, int],
        initial: list[int],
        found: list[tuple[int, list[tuple[int, int, Formula, int]]]],
        sets: int,
        names: tuple[str, ...] | None,
    ) -> Automaton:
        if names is None:
            every = (
                name
                for _, edges in found
                for _, _, guard, _ in edges
                for name in propositions(guard)
            )
            names = tuple(dict.fromkeys(every))
        edges: list[tuple[Edge, ...]] = []
        for _, leaving in found:
            row: list[Edge] = []
            for target, marked, guard, line in leaving:
                if target not in numbers:
                    raise AutomatonFormatError(line, f"there is no state {target}")
                for name in propositions(guard):
                    if name not in names:
                        raise AutomatonFormatError(line, f"there is no proposition {name!r}")
                row += [Edge(numbers[target], *cube, marked) for cube in cubes(guard, names)]
            edges.append(tuple(sorted(row)))
        return Automaton(names, tuple(edges), tuple(numbers[one] for one in initial), sets)
