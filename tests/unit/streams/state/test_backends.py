"""What every backend of a store does: each is held against plain dicts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import Backend, KeptStage, Row, Unit
from penstock.streams.state.memory import Memory
from penstock.streams.state.postgresql import PostgreSQL
from penstock.streams.state.sqlite import SQLite

Make = Callable[[Path], Backend]
BACKENDS: dict[str, Make] = {
    "memory": lambda path: Memory(),
    "sqlite": lambda path: SQLite(str(path)),
    "durable": lambda path: SQLite(str(path), durable=True),
}
STAGES = ("one", "two")

keys = st.sampled_from([b'"a"', b'"b"', b"1", b"[1,2]", b'"\xc3\xbc"'])
rows = st.builds(
    Row,
    keys,
    st.sampled_from([b"0", b"{}", b"[1]"]),
    st.integers(1, 3),
    st.sampled_from([b"", b'{"t":3.0}']),
    st.none() | st.floats(0, 9),
)
units = st.builds(
    Unit,
    st.dictionaries(
        st.sampled_from(STAGES), st.lists(rows, max_size=4, unique_by=lambda row: row.key)
    ),
    st.dictionaries(st.sampled_from(STAGES), st.lists(keys, max_size=2)),
    st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from([b"x", b"y"])),
)


@pytest.fixture(params=[*BACKENDS, "postgresql"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param != "postgresql":
        return BACKENDS[request.param]
    url: str = request.getfixturevalue("postgres")

    def in_schema(path: Path) -> Backend:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(SQL("CREATE SCHEMA {}").format(Identifier(path.name)))
        return PostgreSQL(f"{url}?options=-csearch_path%3D{path.name}")

    return in_schema


def opened(make: Make, path: Path) -> Backend:
    backend = make(path)
    backend.open()
    backend.declare(KeptStage(name, "key", 1) for name in STAGES)
    return backend


def test_what_was_committed_is_read_and_nothing_else(make: Make, tmp_path: Path) -> None:
    numbers = iter(range(10**6))

    @given(st.lists(units, max_size=6), st.floats(0, 9), st.integers(1, 4))
    def law(story: list[Unit], until: float, most: int) -> None:
        backend = opened(make, tmp_path / f"a{next(numbers)}")
        kept: dict[str, dict[bytes, Row]] = {name: {} for name in STAGES}
        marks: dict[str, bytes] = {}
        for unit in story:
            backend.commit(unit)
            for stage, new in unit.rows.items():
                kept[stage].update((row.key, row) for row in new)
            for stage, gone in unit.gone.items():
                for key in gone:
                    kept[stage].pop(key, None)
            marks |= unit.marks
        for stage, want in kept.items():
            assert sorted(backend.scan(stage), key=by_key) == sorted(want.values(), key=by_key)
            asked = [b'"a"', b"1", b'"never"']
            found = sorted(backend.read(stage, asked), key=by_key)
            assert found == sorted((want[key] for key in asked if key in want), key=by_key)
            due = sorted((row.due, key) for key, row in want.items() if row.due is not None)
            assert (
                backend.due(stage, 0, until, most) == [one for one in due if one[0] < until][:most]
            )
            size = sum(len(row.key) + len(row.state) for row in want.values())
            assert backend.size(stage) == (len(want), size)
        assert backend.marks() == sorted(marks.items())
        assert backend.mark("p") == marks.get("p")
        backend.close()

    law()


def by_key(row: Row) -> bytes:
    return row.key


def test_more_keys_than_one_statement_takes_are_read(make: Make, tmp_path: Path) -> None:
    backend = opened(make, tmp_path / "many")
    many = [Row(str(n).encode(), b"0", 1, b"", float(n)) for n in range(1300)]
    backend.commit(Unit(rows={"one": many}))
    assert len(backend.read("one", [row.key for row in many])) == 1300
    assert [due for due, _ in backend.due("one", 10, inf, 3)] == [10, 11, 12]
    backend.forget("one")
    assert [stage.name for stage in backend.stages()] == ["two"]
    backend.close()


# In a file.


def test_a_file_is_read_by_the_next_run(tmp_path: Path) -> None:
    first = opened(BACKENDS["sqlite"], tmp_path / "a.state")
    first.commit(Unit(rows={"one": [Row(b"1", b"2", 1, b"", None)]}, marks={"p": b"m"}))
    first.close()
    second = SQLite(str(tmp_path / "a.state"))
    second.open()
    assert second.stages() == [KeptStage("one", "key", 1), KeptStage("two", "key", 1)]
    assert second.read("one", [b"1"]) == [Row(b"1", b"2", 1, b"", None)]
    assert second.mark("p") == b"m"
    second.close()


def test_a_second_run_is_refused_while_one_uses_the_store(tmp_path: Path) -> None:
    first = opened(BACKENDS["sqlite"], tmp_path / "a.state")
    with pytest.raises(CannotOpen, match="another run uses the store"):
        opened(BACKENDS["sqlite"], tmp_path / "a.state")
    first.close()
    opened(BACKENDS["sqlite"], tmp_path / "a.state").close()


def test_a_run_that_another_has_followed_commits_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on Windows.
    monkeypatch.setattr("penstock.streams.state.sqlite.locked", lambda path, why: None)
    old = opened(BACKENDS["sqlite"], tmp_path / "a.state")
    new = opened(BACKENDS["sqlite"], tmp_path / "a.state")
    with pytest.raises(CannotOpen, match="Another run has opened the store"):
        old.commit(Unit(marks={"p": b"old"}))
    new.commit(Unit(marks={"p": b"new"}))
    assert old.mark("p") == b"new"
    old.close()
    new.close()


def test_a_commit_that_fails_writes_nothing(tmp_path: Path) -> None:
    backend = opened(BACKENDS["sqlite"], tmp_path / "a.state")
    nothing: Any = None
    bad = Row(b"2", nothing, 1, b"", None)
    with pytest.raises(CannotOpen, match="Cannot write"):
        backend.commit(Unit(rows={"one": [Row(b"1", b"1", 1, b"", None), bad]}, marks={"p": b"m"}))
    assert list(backend.scan("one")) == []
    assert backend.mark("p") is None
    backend.commit(Unit(marks={"p": b"m"}))
    backend.close()


def test_a_copy_is_made_beside_the_run(tmp_path: Path) -> None:
    backend = SQLite(str(tmp_path / "a.state"))
    backend.open()
    backend.declare([KeptStage("one", "key", 1)])
    backend.commit(Unit(rows={"one": [Row(b"1", b"1", 1, b"", None)]}))
    beside = SQLite(str(tmp_path / "a.state"))
    beside.open_to_read()
    beside.backup(str(tmp_path / "copy.state"))
    copy = SQLite(str(tmp_path / "copy.state"))
    copy.open_to_read()
    assert [row.key for row in copy.scan("one")] == [b"1"]
    with pytest.raises(CannotOpen, match="Cannot copy"):
        beside.backup(str(tmp_path / "copy.state"))
    for one in (backend, beside, copy):
        one.close()


@pytest.mark.parametrize("kind", ["missing", "other", "newer"])
def test_what_is_no_store_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    if kind == "other":
        path.write_bytes(b"no database" * 100)
    elif kind == "newer":
        opened(BACKENDS["sqlite"], path).close()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE penstock SET value = 99 WHERE name = 'format'")
        connection.close()
    backend = SQLite(str(path))
    with pytest.raises(CannotOpen, match=r"no store|not a database|has the format 99"):
        backend.open_to_read()
    backend.close()
