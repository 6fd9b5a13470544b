"""A store in a file: one run at a time writes it, and it can be copied meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock import Store, collect, from_iterable, run, stateful
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.sqlite import SQLite


def opened(path: Path) -> SQLite:
    backend = SQLite(str(path))
    backend.open()
    return backend


def test_a_second_run_is_refused_while_one_uses_the_store(tmp_path: Path) -> None:
    first = opened(tmp_path / "a.state")
    with pytest.raises(CannotOpen, match="another run uses the store"):
        opened(tmp_path / "a.state")
    first.close()
    opened(tmp_path / "a.state").close()


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


def test_a_file_can_be_named_by_the_url_that_tables_have(tmp_path: Path) -> None:
    for path in (f"sqlite:///{tmp_path}/a%231.db", tmp_path / "a#1.db"):
        counts: Any = stateful(lambda n, _: (n + 1, [n]), str, start=0, name="n", store=Store(path))
        run(from_iterable("a").pipe(counts).to(collect(found := [])))
    assert found == [1]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "No store can be at ''"),
        (7, "give the path of a file"),
        ("sqlite:a.db", "does not name a file"),
        ("sqlite:///:memory:", "does not name a file"),
    ],
)
def test_what_names_no_file_is_refused_when_the_store_is_made(path: Any, why: str) -> None:
    with pytest.raises(BuildError, match=why):
        Store(path)


@pytest.mark.parametrize("kind", ["missing", "other", "newer"])
def test_what_is_no_store_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.state"
    if kind == "other":
        path.write_bytes(b"no database" * 100)
    elif kind == "newer":
        opened(path).close()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE penstock SET value = 99 WHERE name = 'format'")
        connection.close()
    backend = SQLite(str(path))
    with pytest.raises(CannotOpen, match=r"no store|not a database|has the format 99"):
        backend.open_to_read()
    backend.close()
