"""Reads and writes automata in the Hanoi Omega-Automata format (HOA), version 1.

Source: Babiak et al., "The Hanoi Omega-Automata Format" (CAV 2015).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.streams.temporal.automata.automaton import Automaton, Edge
from penstock.streams.temporal.automata.guards import cubes, literals, marks, sets_of
from penstock.streams.temporal.errors import AutomatonFormatError
from penstock.streams.temporal.formula.formula import FALSE, TRUE, Formula, Nary, Proposition, Unary
from penstock.streams.temporal.formula.printer import in_quotes

__all__ = ["from_hoa", "to_hoa"]


def to_hoa(automaton: Automaton) -> str:
    """The automaton as text. `from_hoa` reads it back."""
    sets = automaton.sets
    condition = "&".join(f"Inf({one})" for one in range(sets)) or "t"
    name = {0: "all", 1: "Buchi"}.get(sets, f"generalized-Buchi {sets}")
    names = "".join(" " + in_quotes(name) for name in automaton.propositions)
    lines = [
        "HOA: v1",
        f"States: {len(automaton)}",
        *(f"Start: {state}" for state in automaton.initial),
        f"AP: {len(automaton.propositions)}{names}",
        f"acc-name: {name}",
        f"Acceptance: {sets} {condition}",
        "properties: trans-labels explicit-labels trans-acc",
        "--BODY--",
    ]
    for state, leaving in enumerate(automaton.edges):
        lines.append(f"State: {state}")
        for edge in leaving:
            parts = (("" if holds else "!") + str(bit) for bit, holds in literals(automaton, edge))
            accepting = " ".join(map(str, sets_of(edge)))
            marked = f" {{{accepting}}}" if accepting else ""
            lines.append(f"[{'&'.join(parts) or 't'}] {edge.target}{marked}")
    return "\n".join([*lines, "--END--", ""])


def from_hoa(text: str) -> Automaton:
    """The automaton that `text` describes.

    Raises AutomatonFormatError with the line number, also for any other kind than a (generalised)
    Büchi automaton with labels on its edges or states: it then names the unsupported feature.
    TypeError for anything but text, FormulaTooLarge for a label of too many cases. Memory:
    proportional to the text's length.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an automaton is a text, not {type(text).__name__}")
    return _Reader(text).read()


class _Token(NamedTuple):
    text: str
    line: int


_TOKEN = re.compile(
    r"""\s+|/\*.*?\*/|(?P<token>"(?:[^"\\]|\\.)*"|--BODY--|--END--|--ABORT--"""
    r"""|[A-Za-z_][\w-]*:|@[\w-]+|[A-Za-z_][\w-]*|\d+|[\[\]{}()!&|])""",
    re.DOTALL,
)
_END = "the end"
_MOST_DIGITS = 9
_DEEPEST = 50


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    place, line = 0, 1
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise AutomatonFormatError(line, f"`{text[place]}` is not expected here")
        if match["token"] is not None:
            found.append(_Token(match["token"], line))
        line += match[0].count("\n")
        place = match.end()
    return [*found, _Token(_END, line)]


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._names: tuple[str, ...] = ()
        self._sets = 0
        self._depth = 0

    @property
    def _token(self) -> str:
        return self._tokens[self._at].text

    def _wrong(self, problem: str) -> AutomatonFormatError:
        return AutomatonFormatError(self._tokens[self._at].line, problem)

    def _take(self) -> str:
        token = self._token
        if token == _END:
            raise self._wrong("the text ends too early")
        self._at += 1
        return token

    def _skip(self, token: str) -> bool:
        if self._token == token:
            self._at += 1
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._skip(token):
            raise self._wrong(f"`{token}` should be where `{self._token}` is")

    def _integer(self) -> int:
        if not self._token.isdigit():
            raise self._wrong(f"`{self._token}` should be a number")
        if len(self._token) > _MOST_DIGITS:
            raise self._wrong("the number is too large")
        return int(self._take())

    def read(self) -> Automaton:
        self._need("HOA:")
        self._need("v1")
        initial: list[int] = []
        states: int | None = None
        accepts = False
        while not self._skip("--BODY--"):
            header = self._take()
            if header == "States:":
                states = self._integer()
            elif header == "Start:":
                initial.append(self._integer())
                self._refuse_alternation()
            elif header == "AP:":
                count = self._integer()
                self._names = tuple(self._text() for _ in range(count))
                if len(set(self._names)) < count:
                    raise self._wrong("two propositions have the same name")
            elif header == "Acceptance:":
                self._acceptance()
                accepts = True
            elif header == "Alias:":
                self._at -= 1
                raise self._wrong("aliases are not supported")
            elif header[0].isupper():
                self._at -= 1
                raise self._wrong(f"`{header}` has a meaning that is not supported")
            elif header.endswith(":"):
                while not self._token.endswith(":") and self._token != "--BODY--":
                    self._take()
            else:
                self._at -= 1
                raise self._wrong(f"`{header}` should be a header")
        if not accepts:
            raise self._wrong("the header `Acceptance:` is missing")
        return self._body(states, initial)

    def _text(self) -> str:
        if not self._token.startswith('"'):
            raise self._wrong(f"`{self._token}` should be a name in quotes")
        return re.sub(r"\\(.)", r"\1", self._take()[1:-1], flags=re.DOTALL)

    def _acceptance(self) -> None:
        self._sets = self._integer()
        seen: set[int] = set()
        if self._sets == 0:
            self._need("t")
            return
        self._all_of(seen)
        if len(seen) != self._sets or max(seen) >= self._sets or self._token in ("|", "&"):
            raise self._wrong("only (generalised) Büchi acceptance is supported")

    def _all_of(self, seen: set[int]) -> None:
        """Read a conjunction, which may be in parentheses, of sets to be met infinitely often."""
        while True:
            if self._skip("("):
                self._deeper("an acceptance condition")
                self._all_of(seen)
                self._depth -= 1
            else:
                if not self._skip("Inf"):
                    raise self._wrong("only (generalised) Büchi acceptance is supported")
                self._need("(")
                if not self._token.isdigit():
                    raise self._wrong("only (generalised) Büchi acceptance is supported")
                seen.add(self._integer())
            self._need(")")
            if not self._skip("&"):
                return

    def _refuse_alternation(self) -> None:
        if self._token == "&":
            raise self._wrong("alternation is not supported")

    def _body(self, states: int | None, initial: list[int]) -> Automaton:
        rows: dict[int, list[tuple[Edge, int]]] = {}
        while not self._skip("--END--"):
            self._need("State:")
            common = self._label()
            state = self._integer()
            if state in rows:
                raise self._wrong(f"state {state} comes twice")
            if self._token.startswith('"'):
                self._take()
            marked = self._marks()
            rows[state] = []
            while self._token == "[" or self._token.isdigit():
                rows[state] += self._edges(common, marked)
        if self._token != _END:
            raise self._wrong("the text goes on after `--END--`; only one automaton is read")
        count = max([*rows, *initial, -1]) + 1 if states is None else states
        if count > len(self._tokens):
            raise self._wrong(f"{count:,} states are more than the text has room for")
        for row in rows.values():
            for edge, line in row:
                if edge.target >= count:
                    raise AutomatonFormatError(line, f"there is no state {edge.target}")
        if any(state >= count for state in (*rows, *initial)):
            raise self._wrong(f"there are states beyond the {count} that were announced")
        edges = tuple(
            tuple(sorted(edge for edge, _ in rows.get(state, ()))) for state in range(count)
        )
        return Automaton(self._names, edges, tuple(initial), self._sets)

    def _edges(self, common: Formula | None, marked: int) -> list[tuple[Edge, int]]:
        line = self._tokens[self._at].line
        guard = self._label() or common
        if guard is None:
            raise self._wrong("implicit labels are not supported")
        target = self._integer()
        self._refuse_alternation()
        all_marks = marked | self._marks()
        return [(Edge(target, *cube, all_marks), line) for cube in cubes(guard, self._names)]

    def _marks(self) -> int:
        sets: list[int] = []
        if self._skip("{"):
            while not self._skip("}"):
                sets.append(self._integer())
                if sets[-1] >= self._sets:
                    raise self._wrong(f"acceptance set {sets[-1]} of {self._sets}")
        return marks(sets)

    # Labels: `|` binds looser than `&`, which binds looser than `!`.

    def _label(self) -> Formula | None:
        if not self._skip("["):
            return None
        label = self._joined("|")
        self._need("]")
        return label

    def _joined(self, operator: str) -> Formula:
        inner = self._literal if operator == "&" else lambda: self._joined("&")
        parts = [inner()]
        while self._skip(operator):
            parts.append(inner())
        return parts[0] if len(parts) == 1 else Nary("&" if operator == "&" else "|", tuple(parts))

    def _deeper(self, what: str = "a label") -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"{what} is nested deeper than {_DEEPEST} levels")

    def _literal(self) -> Formula:
        if self._skip("!"):
            self._deeper()
            negated = Unary("!", self._literal())
            self._depth -= 1
            return negated
        if self._skip("("):
            self._deeper()
            inner = self._joined("|")
            self._need(")")
            self._depth -= 1
            return inner
        if self._skip("t"):
            return TRUE
        if self._skip("f"):
            return FALSE
        if self._token.startswith("@"):
            raise self._wrong("aliases are not supported")
        number = self._integer()
        if number >= len(self._names):
            raise self._wrong(f"there is no proposition {number}")
        return Proposition(self._names[number])
