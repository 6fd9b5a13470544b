"""Reads and writes automata in the Hanoi Omega-Automata format (HOA), version 1.

Source: Babiak et al., "The Hanoi Omega-Automata Format" (CAV 2015).
"""

from __future__ import annotations

import re
from itertools import combinations
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
    Büchi automaton without alternation: it then names the unsupported feature.
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
    r"""\s+|(?P<comment>/\*)|(?P<token>"(?:[^"\\]|\\.)*"|--BODY--|--END--|--ABORT--"""
    r"""|[A-Za-z_][\w-]*:|@[\w-]+|[A-Za-z_][\w-]*|\d+|[\[\]{}()!&|])""",
    re.DOTALL | re.ASCII,
)
_COMMENT = re.compile(r"/\*|\*/")
# Those that say how many of something there are.
_ONCE = ("States:", "AP:", "Acceptance:", "acc-name:", "tool:", "name:")
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
        end = match.end() if match["comment"] is None else _end_of_comment(text, place, line)
        line += text.count("\n", place, end)
        place = end
    return [*found, _Token(_END, line)]


def _end_of_comment(text: str, begin: int, line: int) -> int:
    """Where the comment that begins there ends; comments nest."""
    depth = 0
    for mark in _COMMENT.finditer(text, begin):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise AutomatonFormatError(line, "a comment that begins here does not end")


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._names: tuple[str, ...] = ()
        self._sets = 0
        self._depth = 0
        self._aliases: dict[str, Formula] = {}

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
        seen: set[str] = set()
        properties: set[str] = set()
        # An alias may stand before the propositions.
        aliases: list[tuple[str, int]] = []
        while not self._skip("--BODY--"):
            header = self._take()
            if header in seen and header in _ONCE:
                self._at -= 1
                raise self._wrong(f"the header `{header}` comes twice")
            seen.add(header)
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
            elif header == "Alias:":
                name = self._take()
                if not name.startswith("@") or name in dict(aliases):
                    self._at -= 1
                    raise self._wrong(f"`{name}` should be a new name that begins with @")
                aliases.append((name, self._at))
                self._skip_to_header()
            elif header == "properties:":
                begin = self._at
                self._skip_to_header()
                properties.update(token.text for token in self._tokens[begin : self._at])
            elif header[0].isupper():
                self._at -= 1
                raise self._wrong(f"`{header}` has a meaning that is not supported")
            elif header.endswith(":"):
                self._skip_to_header()
            else:
                self._at -= 1
                raise self._wrong(f"`{header}` should be a header")
        if "Acceptance:" not in seen:
            raise self._wrong("the header `Acceptance:` is missing")
        body = self._at
        for name, self._at in aliases:
            self._aliases[name] = self._joined("|")
            if not (self._token.endswith(":") or self._token == "--BODY--"):
                raise self._wrong(f"`{self._token}` is not expected here")
        self._at = body
        automaton = self._body(states, initial)
        if "deterministic" in properties and not _is_deterministic(automaton):
            raise self._wrong("the automaton is called deterministic, and is not")
        return automaton

    def _skip_to_header(self) -> None:
        while not self._token.endswith(":") and self._token != "--BODY--":
            self._take()

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
            implicit = common is None and self._token.isdigit()
            letters = 0
            while self._token == "[" or self._token.isdigit():
                if implicit and (self._token == "[" or letters == 1 << len(self._names)):
                    raise self._wrong(self._of_implicit(state))
                guard = self._letter(letters) if implicit else common
                rows[state] += self._edges(guard, marked)
                letters += 1
            if implicit and letters < 1 << len(self._names):
                raise self._wrong(self._of_implicit(state))
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
        if lacking := [state for state in range(count) if state not in rows]:
            raise self._wrong(f"state {lacking[0]} is announced, and not defined")
        edges = tuple(tuple(sorted(edge for edge, _ in rows[state])) for state in range(count))
        return Automaton(self._names, edges, tuple(initial), self._sets)

    def _letter(self, number: int) -> Formula:
        """The label of the edge with this number, where edges have none: it stands for the set of
        propositions whose bits it has."""
        names = (Proposition(name) for name in self._names)
        parts = [name if number >> bit & 1 else Unary("!", name) for bit, name in enumerate(names)]
        if len(parts) < 2:
            return parts[0] if parts else TRUE
        return Nary("&", tuple(parts))

    def _of_implicit(self, state: int) -> str:
        return (
            f"the edges of state {state} have no labels, so there must be one for each of the "
            f"{1 << len(self._names)} sets of propositions, and no other"
        )

    def _edges(self, common: Formula | None, marked: int) -> list[tuple[Edge, int]]:
        line = self._tokens[self._at].line
        guard = self._label() or common
        if guard is None:
            raise self._wrong("of the edges of a state either all have labels, or none")
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
            name = self._take()
            if name not in self._aliases:
                self._at -= 1
                raise self._wrong(f"there is no alias {name} before this")
            return self._aliases[name]
        number = self._integer()
        if number >= len(self._names):
            self._at -= 1
            raise self._wrong(f"there is no proposition {number}")
        return Proposition(self._names[number])


def _is_deterministic(automaton: Automaton) -> bool:
    """Whether no event can be read in two ways. The edges that one label was taken apart into lead
    to one state, with the same marks."""
    return len(automaton.initial) <= 1 and not any(
        (one.target, one.marks) != (other.target, other.marks)
        and not (one.value ^ other.value) & one.care & other.care
        for edges in automaton.edges
        for one, other in combinations(edges, 2)
    )
