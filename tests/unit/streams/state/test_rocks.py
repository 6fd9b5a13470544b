"""A store in a folder of RocksDB: one run at a time writes it, and others read what is there."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists
from rocksdict import Options, Rdict

from penstock import Store
from penstock.streams.base.errors import BuildError, CannotOpen, MissingExtra
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.rocks import Rocks, from_ordered, ordered

STAGE = KeptStage("one", "key", 1)


def opened(path: Path) -> Rocks:
    backend = Rocks(str(path))
    backend.open()
    backend.declare([STAGE])
    return backend


def row(n: int, due: float | None = None) -> Row:
    return Row(b"%d" % n, b"0", 1, b"", due)


def test_a_second_run_is_refused_while_one_uses_the_store(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    with pytest.raises(CannotOpen, match="another run uses the store"):
        opened(tmp_path / "a")
    first.close()
    opened(tmp_path / "a").close()


def test_the_store_is_read_beside_the_run_as_it_was_when_it_was_opened(tmp_path: Path) -> None:
    backend, beside = opened(tmp_path / "a"), Rocks(str(tmp_path / "a"))
    backend.commit(Unit(rows={"one": [row(1)]}))
    beside.open_to_read()
    backend.commit(Unit(rows={"one": [row(2)]}))
    assert list(beside.scan("one")) == [row(1)]
    assert list(backend.scan("one")) == [row(1), row(2)]
    for one in (backend, beside):
        one.close()


@given(lists(floats(allow_nan=False)))
def test_times_are_in_order_as_bytes(times: list[float]) -> None:
    found = [from_ordered(content) for content in sorted(map(ordered, times))]
    assert found == sorted(times)


def test_a_zero_below_zero_is_the_same_time_as_zero() -> None:
    assert ordered(-0.0) == ordered(0.0)


def test_a_row_is_due_at_its_last_time_only_also_in_the_next_run(tmp_path: Path) -> None:
    backend = opened(tmp_path / "a")
    for due in (5.0, 2.0, None, 7.0):
        backend.commit(Unit(rows={"one": [row(1, due)]}))
    # A row that is due earlier than all that were there, after some were deleted.
    backend.commit(Unit(rows={"one": [row(n, 3.0) for n in (2, 3)]}, over={"one": 4.0}))
    backend.commit(Unit(rows={"one": [row(4, 1.0)]}))
    for _ in range(2):
        assert backend.due("one", -inf, inf, 9) == [(1.0, b"4"), (7.0, b"1")]
        backend.close()
        backend = opened(tmp_path / "a")
    backend.commit(Unit(gone={"one": [b"4", b"1"]}))
    assert backend.due("one", -inf, inf, 9) == []
    backend.close()


def test_rows_that_one_commit_writes_are_deleted_by_it_if_they_are_over(tmp_path: Path) -> None:
    backend = opened(tmp_path / "a")
    backend.commit(Unit(rows={"one": [row(1, 5.0), row(2, 1.0)]}))
    backend.commit(Unit(rows={"one": [row(1, 9.0), row(3, 1.5)]}, over={"one": 6.0}))
    assert list(backend.scan("one")) == [row(1, 9.0)]
    assert backend.due("one", -inf, inf, 9) == [(9.0, b"1")]
    backend.close()


def test_a_stage_that_is_forgotten_and_declared_again_has_no_rows(tmp_path: Path) -> None:
    backend = opened(tmp_path / "a")
    backend.commit(Unit(rows={"one": [row(1, 5.0)]}))
    backend.forget("one")
    backend.declare([STAGE])
    assert list(backend.scan("one")) == []
    assert backend.due("one", -inf, inf, 9) == []
    backend.close()


@pytest.mark.parametrize("kind", ["missing", "file", "other", "new", "newer"])
def test_what_is_no_store_is_refused(kind: str, tmp_path: Path) -> None:
    path, raw = tmp_path / "a", Options(raw_mode=True)
    if kind == "file":
        path.write_bytes(b"no database")
    elif kind == "other":
        with Rdict(str(path), raw) as db:
            db[b"order"] = b"1"
    elif kind == "new":
        Rdict(str(path), raw).close()
    elif kind == "newer":
        opened(path).close()
        with Rdict(str(path), raw) as db:
            db[b"f"] = b"99"
    backend = Rocks(str(path))
    with pytest.raises(CannotOpen, match=r"no store|not a store yet|has the format 99"):
        backend.open_to_read()
    backend.close()
    if kind == "new":
        # A run that was killed as it began has left it.
        opened(path).close()
    elif kind != "missing":
        with pytest.raises(CannotOpen, match=r"Cannot open|another database|has the format 99"):
            backend.open()
        backend.close()


def test_a_folder_above_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="Cannot open the store"):
        opened(tmp_path / "misspelt" / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["rocks:a", "rocks:/var/a", "rocks://a", "rocks:///a?x=1"])
def test_a_url_that_names_no_folder_is_refused_when_the_store_is_made(path: str) -> None:
    with pytest.raises(BuildError, match=r"names? a (folder|file)"):
        Store(path)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # Any: as if it was not installed.
    missing: Any = None
    monkeypatch.setitem(sys.modules, "rocksdict", missing)
    monkeypatch.delitem(sys.modules, "penstock.streams.state.rocks")
    with pytest.raises(MissingExtra, match=r"needs rocksdict .*\[rocks\]"):
        Store("rocks:///a")
