from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.base.errors import SpillBroken
from penstock.streams.keyed.spill import ON_DISK, Block, Refused, Spill
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Decoded, Event

SIMPLE = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES = SIMPLE | st.tuples(SIMPLE, SIMPLE) | st.dictionaries(SIMPLE, SIMPLE, max_size=3)


def events(*values: Any) -> list[Event[Any]]:
    return [Event(value, 0.0, NOBODY) for value in values]


def values(of: list[Event[Any]]) -> list[Any]:
    return [event.value for event in of]


def written(spill: Spill, made: list[Event[Any]]) -> Block:
    block = Block(made)
    spill.write(block)
    return block


def read(spill: Spill, block: Block) -> list[Any]:
    spill.read(block)
    return values(block.events)


@pytest.fixture
def spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spill]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Spill(1000, 2**20)
    yield made
    made.close()


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), max_size=4), st.randoms())
def test_the_same_events_come_back_with_their_values_in_any_order_of_the_blocks(
    lists: list[list[Any]], rng: Any
) -> None:
    spill = Spill(10_000, 2**20)
    came = [(events(*one), one) for one in lists]
    blocks = [(written(spill, list(made)), made, one) for made, one in came]
    assert all(event.value is ON_DISK for made, _ in came for event in made)
    rng.shuffle(blocks)
    for block, made, one in blocks:
        assert read(spill, block) == one
        assert all(a is b for a, b in zip(block.events, made, strict=True))
    assert (spill.events, spill.bytes) == (0, 0)
    assert spill.peak == spill.written == sum(map(len, lists))
    spill.close()


def test_the_line_of_a_value_is_in_the_file_too(spill: Spill) -> None:
    event: Decoded[Any] = Decoded({"a": 1}, 0.0, NOBODY)
    event.data = bytearray(b'{"a": 1}')
    block = written(spill, [event])
    assert event.data == b""
    assert read(spill, block) == [{"a": 1}]
    assert (event.value, event.data) == ({"a": 1}, b'{"a": 1}')


def test_no_more_events_are_taken_than_it_may_have(tmp_path: Path) -> None:
    spill = Spill(2, 2**20)
    block = written(spill, events(1, 2))
    third = events(3)
    with pytest.raises(Refused, match="2 events are in the file") as refused:
        written(spill, third)
    assert refused.value.is_full
    assert values(third) == [3]
    spill.read(block)
    assert read(spill, written(spill, third)) == [3]
    spill.close()


def test_no_more_bytes_are_taken_than_it_may_have() -> None:
    spill = Spill(100, 1000)
    block = written(spill, events("x" * 800))
    second = events("y" * 800)
    with pytest.raises(Refused, match="bytes are in the file") as refused:
        written(spill, second)
    assert refused.value.is_full
    spill.read(block)
    assert read(spill, written(spill, second)) == ["y" * 800]
    spill.close()


class Unloadable:
    """Can be pickled, and not be made again."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __reduce__(self) -> Any:
        return int, ("not a number",)


@pytest.mark.parametrize("value", [lambda: 1, Unloadable(), {"deep": [Unloadable()]}])
def test_values_that_cannot_be_pickled_and_made_again_are_refused_unchanged(
    spill: Spill, value: Any
) -> None:
    made = events("before", value)
    with pytest.raises(Refused, match="cannot be pickled") as refused:
        written(spill, made)
    assert not refused.value.is_full
    assert values(made) == ["before", value]
    assert spill.events == 0


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    made = events(1)
    with pytest.raises(Refused, match=r"missing.* cannot be written") as refused:
        written(Spill(10, 1000), made)
    assert not refused.value.is_full
    assert values(made) == [1]


def test_a_disk_that_is_full_refuses_and_loses_nothing(spill: Spill) -> None:
    block = written(spill, events(*range(10)))
    # SQLite then answers as on a full disk.
    spill._database.execute("PRAGMA max_page_count = 8")  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    large = events("x" * 100_000)
    with pytest.raises(Refused, match="full"):
        written(spill, large)
    assert values(large) == ["x" * 100_000]
    assert read(spill, block) == list(range(10))


def test_space_is_used_again(spill: Spill) -> None:
    def pages() -> int:
        return spill._database.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess, reportUnknownVariableType]

    spill.read(written(spill, events("x" * 10_000)))
    before = pages()
    for _ in range(50):
        spill.read(written(spill, events("x" * 10_000)))
    assert pages() == before


@pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")
def test_the_file_has_no_name_so_that_a_kill_leaves_nothing(spill: Spill, tmp_path: Path) -> None:
    written(spill, events(1))
    assert list(tmp_path.iterdir()) == []


def test_values_that_cannot_be_read_back_leave_their_events_in_the_block(spill: Spill) -> None:
    made = events(1, 2)
    block = written(spill, made)
    spill._database.execute("DELETE FROM block")  # type: ignore[union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    with pytest.raises(SpillBroken, match="the values of 2 events"):
        spill.read(block)
    assert block.events == made
    assert spill.events == 0
