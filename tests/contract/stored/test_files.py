"""Dead letters and a position that version 0.1.0 left in files: see
`tests.contract.stored.generate`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, dead_letters, for_each, from_iterable, read_jsonl, route
from penstock.streams.base.errors import CannotOpen

FOLDER = Path(__file__).parent / "first"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The position, for a file with the same bytes: only its inode differs."""
    file = tmp_path / "events.jsonl"
    shutil.copy(FOLDER / "events.jsonl", file)
    said = json.loads((FOLDER / "events.position").read_text(encoding="utf-8"))
    place = tmp_path / "events.position"
    place.write_text(json.dumps({**said, "inode": file.stat().st_ino}), encoding="utf-8")
    return place


async def read(place: Path) -> list[int]:
    values: list[dict[str, Any]] = []
    file = place.with_name("events.jsonl")
    await read_jsonl(file, position=place).to(collect(values)).run()
    return [value["n"] for value in values]


def test_a_reader_goes_on_with_the_lines_that_were_not_finished(place: Path) -> None:
    assert asyncio.run(read(place)) == [4, 8]


def test_what_is_appended_is_read_after_them(place: Path) -> None:
    with place.with_name("events.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"n": 11}\n')
    assert asyncio.run(read(place)) == [4, 8, 11]
    assert asyncio.run(read(place)) == []


def test_another_file_of_that_name_is_refused(place: Path) -> None:
    file = place.with_name("events.jsonl")
    file.write_bytes(file.read_bytes().replace(b"1", b"7"))
    with pytest.raises(CannotOpen, match="has other content than the file that was read"):
        asyncio.run(read(place))


def test_dead_letters_are_read_as_events_and_new_ones_are_appended_alike(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    shutil.copy(FOLDER / "letters.jsonl", file)
    found: list[dict[str, Any]] = []

    def fail(value: Any) -> None:
        raise ValueError(f"cannot take {value}")

    async def story() -> None:
        await read_jsonl(file).to(collect(found)).run()
        again = for_each(fail, on_error=route(dead_letters(file)))
        await from_iterable([letter["value"] for letter in found]).to(again).run()

    asyncio.run(story())
    values = [{"n": 1}, {"n": 2, "name": "Zo\u00eb"}, [1, 2], "b'\\xff'", "text"]
    assert [letter["value"] for letter in found] == values
    then, now = found, lines(file)[5:]
    for letters in (then, now):
        for letter in letters:
            del letter["created"], letter["failed"]
    # What JSON cannot hold is a string by now, and an error quotes it as one.
    assert now[:3] + now[4:] == then[:3] + then[4:]
    assert now[3].keys() == then[3].keys()
