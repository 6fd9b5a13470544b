"""Laws that every backend of a store keeps, for tests of your own backends.

Each law is a function that takes a factory of backends and raises `LawBroken` if they break it. All
backends that the factory makes during a law use one storage, which is empty when the law begins:

    @pytest.mark.parametrize("law", LAWS)
    def test_my_backend_keeps_the_law(law, tmp_path):
        law(lambda: Mine(tmp_path / "store"))

A backend in memory is its own storage: the factory returns the same one each time. The backends of
the product are tested by exactly these laws.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from sys import maxsize
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.commit import Kind
from penstock.streams.state.backend import MOST_OVER, Backend, KeptStage, PartsRefused, Row, Unit
from penstock.streams.testing.limiter_laws import LawBroken

__all__ = [
    "LAWS",
    "Law",
    "LawBroken",
    "Make",
    "deletes_the_oldest_that_are_over",
    "keeps_each_key_apart",
    "keeps_stages_until_they_are_forgotten",
    "keeps_what_was_committed",
    "lets_only_the_last_run_commit",
    "reads_many_keys",
    "reads_while_it_commits",
    "scans_what_there_was_at_the_beginning",
    "writes_all_of_a_unit_or_nothing",
    "writes_parts_or_says_which_are_refused",
]

Make = Callable[[], Backend]
"""Makes a backend that is not open, with the storage of the others."""

Law = Callable[[Make], None]

_STAGES = [KeptStage("one", "user", 1), KeptStage("two", "f(x)", 3)]

# Keys that a collation, a conversion or a number might take for each other, and awkward ones.
_ODD = [
    *(b'"a"', b'"A"', b'"a "', b'" a"', b'"7"', b"7", b"7.0", b"[7]", b"null", b'"null"', b'""'),
    *(b'"\xc3\xbc"', b'"u\xcc\x88"', b'"U"', b'"\xf0\x9f\xa6\xa6"', b'"\\u0000"', b'"\\"\'%s{}"'),
    *(b'["a","b"]', b'["a"]', b'"' + b"long " * 300 + b'"'),
]

_STATES = [
    b"0",
    b"-1.5",
    b"[]",
    b'{"b":1,"a":{"b":[null,true]}}',
    b'"\xe2\x82\xac \\u0000"',
    b"null",
]
_MARKS = [b"x", b"", b'{"line":7}', b"\x00\xff\n"]


def _check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise LawBroken(f"{what}: {found!r}, and not {wanted!r}")


@contextmanager
def _opened(make: Make) -> Generator[Backend]:
    """A backend that is open, with two stages."""
    backend = make()
    backend.open()
    try:
        backend.declare(_STAGES)
        yield backend
    finally:
        backend.close()


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.key)


def _numbered(n: int, key: int = 0, due: float | None = None) -> Row:
    return Row(b"%d" % key, b"%d" % n, 1, b"", due)


class _Story:
    """Random units, and what is stored after them."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.rows: dict[str, dict[bytes, Row]] = {stage.name: {} for stage in _STAGES}
        self.marks: dict[str, bytes] = {}

    def unit(self) -> Unit:
        draw, unit = self._draw, Unit()
        for stage in draw.sample(_STAGES, draw.randint(0, 2)):
            keys = draw.sample(_ODD, draw.randint(0, 6))
            cut = draw.randint(0, len(keys))
            rows = list(map(self._row, keys[:cut]))
            unit.rows[stage.name] = rows
            unit.gone[stage.name] = keys[cut:]
            self.rows[stage.name].update((row.key, row) for row in rows)
            for key in unit.gone[stage.name]:
                self.rows[stage.name].pop(key, None)
        for partition in draw.sample(["file a", "table \xfc", "", "p"], draw.randint(0, 2)):
            self.marks[partition] = unit.marks[partition] = draw.choice(_MARKS)
        return unit

    def _row(self, key: bytes) -> Row:
        draw = self._draw
        timers = draw.choice([b"", b'{"silent":1767225600.123456}'])
        # The same time is frequent: an order of those is needed too.
        due = draw.choice([None, 0.0, 3.0, 1767225600.123456, draw.random()])
        return Row(key, draw.choice(_STATES), draw.randint(1, 3), timers, due)

    def check(self, backend: Backend) -> None:
        for stage, rows in self.rows.items():
            _check(f"scan({stage!r})", _sorted(backend.scan(stage)), _sorted(rows.values()))
            asked = self._draw.sample(_ODD, 5)
            wanted = _sorted(rows[key] for key in asked if key in rows)
            _check(f"read({stage!r}, {asked})", _sorted(backend.read(stage, asked)), wanted)
            size = sum(len(row.key) + len(row.state) for row in rows.values())
            _check(f"size({stage!r})", backend.size(stage), (len(rows), size))
            due = sorted((row.due, key) for key, row in rows.items() if row.due is not None)
            after, until = self._draw.choice([-inf, 0.0, 0.5, 3.0]), self._draw.choice([3.0, inf])
            for most in (1, 3, maxsize):
                _check(
                    f"due({stage!r}, {after}, {until}, {most})",
                    backend.due(stage, after, until, most),
                    [one for one in due if after <= one[0] < until][:most],
                )
        _check("marks()", backend.marks(), sorted(self.marks.items()))
        for partition in ("file a", "never"):
            _check(f"mark({partition!r})", backend.mark(partition), self.marks.get(partition))


def keeps_what_was_committed(make: Make) -> None:
    """Rows and marks are as in the last unit that had them, also in the next run."""
    story = _Story(1)
    for _ in range(5):
        with _opened(make) as backend:
            story.check(backend)
            for _ in range(6):
                backend.commit(story.unit())
                story.check(backend)


def keeps_each_key_apart(make: Make) -> None:
    """Keys are the same only if their bytes are, and states and marks come back byte for byte."""
    rows = [Row(key, b"%d" % n, 1, b"", None) for n, key in enumerate(_ODD)]
    with _opened(make) as backend:
        backend.commit(Unit(rows={"one": rows}, marks={f"p{n}": m for n, m in enumerate(_MARKS)}))
        _check("scan('one')", _sorted(backend.scan("one")), _sorted(rows))
        for row in rows:
            _check(f"read('one', [{row.key!r}])", backend.read("one", [row.key]), [row])
        _check("the other stage", backend.read("two", _ODD), [])
        _check("marks()", [mark for _, mark in backend.marks()], _MARKS)
        large = Row(b"1", b'"' + b"x" * 2_000_000 + b'"', 1, b"", None)
        backend.commit(Unit(rows={"two": [large]}))
        if backend.read("two", [b"1"]) != [large]:
            raise LawBroken("a state of two million bytes is not as it was")


def _commit(backend: Backend, unit: Unit) -> None:
    """Commit a unit of rows and deleted keys, in units of as many as there may be."""
    most = backend.most_rows
    if most is None:
        backend.commit(unit)
        return
    for stage, rows in unit.rows.items():
        for at in range(0, len(rows), most):
            backend.commit(Unit({stage: rows[at : at + most]}))
    for stage, keys in unit.gone.items():
        for at in range(0, len(keys), most):
            backend.commit(Unit(gone={stage: keys[at : at + most]}))


def reads_many_keys(make: Make) -> None:
    """There is no limit to the keys of a unit, unless the backend says so, and to those that are
    asked for at once."""
    rows = [_numbered(n, n, float(n % 1_000)) for n in range(5_000)]
    keys = [row.key for row in rows]
    with _opened(make) as backend:
        _commit(backend, Unit(rows={"one": rows}))
        _check("keys that are read", len(backend.read("one", keys)), len(keys))
        found = backend.due("one", 998.0, inf, maxsize)
        _check("timers that are due", [due for due, _ in found], [998.0] * 5 + [999.0] * 5)
        _commit(backend, Unit(gone={"one": keys[1:]}))
        _check("size('one')", backend.size("one"), (1, 2))


def deletes_the_oldest_that_are_over(make: Make) -> None:
    """A commit deletes the oldest rows that are over, a limited number, and no others."""
    rows = [_numbered(0, n, float(-n)) for n in range(MOST_OVER + 9)]
    rows.append(_numbered(0, MOST_OVER + 9))
    with _opened(make) as backend:
        _commit(backend, Unit({"one": rows, "two": rows}))
        for left in (10, 8, 8):
            backend.commit(Unit(over={"one": -6.0}))
            _check("rows that are left", backend.size("one")[0], left)
        _check("rows of 'one'", _sorted(backend.scan("one")), _sorted([*rows[:7], rows[-1]]))
        _check("rows of 'two'", backend.size("two")[0], len(rows))
        backend.commit(Unit({"one": [_numbered(1, 0, 3.0)]}, over={"one": 2.0}))
        _check("a row that is over no more", backend.read("one", [b"0"]), [_numbered(1, 0, 3.0)])


def keeps_stages_until_they_are_forgotten(make: Make) -> None:
    """A stage is declared again with another key or version, and forgotten with its rows only."""
    newer = KeptStage("two", "g(x)", 4)
    unit = Unit({"one": [_numbered(1)], "two": [_numbered(2)]}, marks={"p": b"m"})
    with _opened(make) as backend:
        _check("stages()", backend.stages(), _STAGES)
        backend.commit(unit)
        backend.declare([newer])
        _check("stages()", backend.stages(), [_STAGES[0], newer])
        backend.forget("one")
        _check("stages() without 'one'", backend.stages(), [newer])
    with _opened(make) as backend:
        _check("rows of 'one' after forget('one')", list(backend.scan("one")), [])
        _check("rows of 'two'", list(backend.scan("two")), [_numbered(2)])
        _check("mark('p')", backend.mark("p"), b"m")


def writes_all_of_a_unit_or_nothing(make: Make) -> None:
    """If a commit raises, nothing of it is written, and the next one is."""
    # Any: no state and no mark at all.
    nothing: Any = None
    bad_row = Unit({"one": [_numbered(1), Row(b"2", nothing, 1, b"", None)]}, marks={"p": b"m"})
    bad_mark = Unit({"one": [_numbered(1)]}, marks={"p": b"m", "q": nothing})
    with _opened(make) as backend:
        backend.commit(Unit({"one": [_numbered(1, 3)]}))
        for unit in (bad_row, bad_mark):
            unit.gone["one"] = [b"3"]
            try:
                backend.commit(unit)
            except Exception:
                rows = list(backend.scan("one"))
                _check("rows after a commit that failed", rows, [_numbered(1, 3)])
                _check("mark after a commit that failed", backend.mark("p"), None)
        backend.commit(Unit({"two": [_numbered(7)]}, marks={"p": b"n"}))
        _check("rows after the next commit", list(backend.scan("two")), [_numbered(7)])
        _check("mark after the next commit", backend.mark("p"), b"n")


class _Parts:
    """A kind of parts that notes what it is told to write, and refuses some numbers."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused
        self.written: list[int] = []

    def write(self, transaction: Any, values: list[int], /) -> None:
        self.written += values
        if not self.refused.isdisjoint(values):
            raise ValueError(values)


def writes_parts_or_says_which_are_refused(make: Make) -> None:
    """Parts are written in order with the unit. If any is refused, nothing of the unit is written,
    and it is said which are. A backend without a database refuses them all."""
    with _opened(make) as backend:
        good, bad = _Parts(set()), _Parts({3, 5})
        parts: dict[Kind, list[Any]] = {good: [1, 2], bad: [3, 4, 5, 6]}
        try:
            backend.commit(Unit({"one": [_numbered(1)]}, marks={"p": b"m"}, parts=parts))
        except PartsRefused as refused:
            _check("the kind that was refused", refused.kind, bad)
            _check("the places of refused parts", sorted(refused.errors), [0, 2])
        except CannotOpen:
            _check("the database of a backend that refuses parts", backend.database, None)
            return
        else:
            raise LawBroken("a unit was committed of which a part was refused")
        _check("rows after parts were refused", list(backend.scan("one")), [])
        _check("mark after parts were refused", backend.mark("p"), None)
        good.written = []
        backend.commit(Unit(marks={"p": b"n"}, parts={good: [2, 1, 3]}))
        _check("parts that were written", good.written, [2, 1, 3])
        _check("the mark that was written with parts", backend.mark("p"), b"n")


def lets_only_the_last_run_commit(make: Make) -> None:
    """A second run is refused, or the first one commits nothing more."""
    old, new = make(), make()
    if old is new:
        return  # In memory: it cannot tell one run from the other.
    old.open()
    old.declare(_STAGES)
    try:
        new.open()
    except CannotOpen:
        # What it has opened so far.
        new.close()
        old.commit(Unit(marks={"p": b"old"}))
        old.close()
        new = make()
        new.open()
        _check("mark('p') in the next run", new.mark("p"), b"old")
        new.close()
        return
    try:
        old.commit(Unit({"one": [_numbered(1)]}, marks={"p": b"old"}))
    except CannotOpen:
        pass
    else:
        raise LawBroken("a run committed after another one was opened")
    _check("mark('p') of a run that was followed", new.mark("p"), None)
    new.declare(_STAGES)
    new.commit(Unit(marks={"p": b"new"}))
    _check("mark('p')", new.mark("p"), b"new")
    old.close()
    new.close()


def scans_what_there_was_at_the_beginning(make: Make) -> None:
    """Commits during a scan do not change what it yields."""
    rows = [_numbered(0, n) for n in range(3_000)]
    with _opened(make) as backend:
        _commit(backend, Unit({"one": rows}))
        scan = backend.scan("one")
        found = [next(scan)]
        _commit(backend, Unit({"one": [_numbered(1, n) for n in range(4_000)]}))
        found += scan
        _check("states that were scanned", {row.state for row in found}, {b"0"})
        _check("keys that were scanned", len(found), 3_000)


def reads_while_it_commits(make: Make) -> None:
    """What is read during a commit in a thread is from before or after it, for all keys alike."""
    with _opened(make) as backend:
        if not backend.in_thread:
            return
        keys = [b"%d" % key for key in range(100)]

        def commit(n: int) -> None:
            rows = [_numbered(n, key, float(n)) for key in range(100)]
            backend.commit(Unit({"one": rows}, marks={"p": b"%d" % n}))

        def commit_all() -> None:
            for n in range(1, 40):
                commit(n)

        def read() -> None:
            before = int(backend.mark("p") or b"")
            states = {int(row.state) for row in backend.read("one", keys)}
            due = backend.due("one", 0.0, inf, maxsize)
            if len(states) > 1 or min(states) < before or due[0][0] < before:
                raise LawBroken(
                    f"after commit {before}, the states {states} were read at once, and timers "
                    f"from {due[0]} to {due[-1]}"
                )

        commit(0)
        with ThreadPoolExecutor(3) as pool:
            commits = pool.submit(commit_all)
            while not commits.done():
                reads = [pool.submit(read)] if backend.reads_in_thread else []
                read()
                for one in reads:
                    one.result()
            commits.result()


LAWS: tuple[Law, ...] = (
    keeps_what_was_committed,
    keeps_each_key_apart,
    reads_many_keys,
    deletes_the_oldest_that_are_over,
    keeps_stages_until_they_are_forgotten,
    writes_all_of_a_unit_or_nothing,
    writes_parts_or_says_which_are_refused,
    lets_only_the_last_run_commit,
    scans_what_there_was_at_the_beginning,
    reads_while_it_commits,
)
