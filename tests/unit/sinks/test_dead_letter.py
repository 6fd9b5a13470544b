from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from penstock import collect, dead_letters, for_each, from_iterable, read_jsonl, write_jsonl
from penstock.streams.base import clock
from penstock.streams.failures.policy import route
from penstock.streams.testing import CountedSource
from penstock.streams.testing.plugin import Run

pytestmark = pytest.mark.usefixtures("no_open_files")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dead.jsonl"


def letters_in(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


async def fail_all(values: list[Any], file: Path, error: BaseException | None = None) -> None:
    async def fail(_: object) -> None:
        await asyncio.sleep(1.5)
        raise error or ValueError("no good")

    sink = for_each(fail, on_error=route(dead_letters(file)))
    report = await CountedSource(values).to(sink).run()
    assert report.statistics["failed"] == len(values)


def test_a_letter_says_what_failed_why_where_and_when(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "wall", lambda: 1_700_000_000.0)
    run(fail_all([{"n": 1}], file))
    (letter,) = letters_in(file)
    assert "for_each" in letter.pop("notes")[0]
    assert "for_each" in letter.pop("stage")
    assert letter == {
        "value": {"n": 1},
        "error": "ValueError",
        "message": "no good",
        "attempts": 1,
        "created": "2023-11-14T22:13:20.000000+00:00",
        "failed": "2023-11-14T22:13:21.500000+00:00",
        "token": None,
    }


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


class Order(msgspec.Struct):
    number: Any


class Worse:
    def __repr__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"inner": Odd()}, {"inner": "Odd()"}),
        ({1: "int key"}, {"1": "int key"}),
        ({(1, 2): Odd()}, "{(1, 2): Odd()}"),
        (Odd(), "Odd()"),
        (Worse(), "<Worse whose repr raised RuntimeError>"),
        (b"bytes", "b'bytes'"),
        ("lone \ud800 surrogate", "'lone \\ud800 surrogate'"),
        (2**70, str(2**70)),
        (float("nan"), "nan"),
        ({"n": [None, -math.inf]}, "{'n': [None, -inf]}"),
        (Order(math.nan), "Order(number=nan)"),
        (Order(7), {"number": 7}),
        ({"inner": [Order(7), Odd()]}, {"inner": [{"number": 7}, "Odd()"]}),
        (Order(Odd()), "Order(number=Odd())"),
    ],
)
def test_what_json_cannot_hold_is_written_as_its_repr(
    run: Run, file: Path, value: Any, written: Any
) -> None:
    run(fail_all([value], file))
    assert [letter["value"] for letter in letters_in(file)] == [written]


def test_an_error_that_cannot_be_shown_does_not_lose_the_letter(run: Run, file: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    class Lone(Exception):
        def __str__(self) -> str:
            return "lone \ud800"

    from penstock.streams.failures.policy import DeadLetter
    from penstock.streams.io.letter_line import letter_line

    encode = letter_line(lambda: 0.0)
    mute = orjson.loads(encode(DeadLetter(1, Mute(), "stage", 1, 0.0, 0.0)))
    lone = orjson.loads(encode(DeadLetter(1, Lone(), "stage", 1, 0.0, 0.0)))
    assert "whose str raised RuntimeError" in mute["message"]
    assert lone["message"] == "lone \\ud800"


def test_an_error_that_several_events_share_is_noted_for_each_with_itself_alone(
    run: Run, file: Path
) -> None:
    refused = LookupError("no such product")
    refused.add_note("see the catalogue")
    run(fail_all(list(range(100)), file, refused))
    assert [letter["notes"] for letter in letters_in(file)] == [
        ["see the catalogue", f"in stage 2 'for_each', on the event {n}"] for n in range(100)
    ]
    assert len(refused.__notes__) == 2


def test_letters_of_an_earlier_run_stay(run: Run, file: Path) -> None:
    run(fail_all([1], file))
    run(fail_all([2], file))
    assert [letter["value"] for letter in letters_in(file)] == [1, 2]


def test_a_bad_line_becomes_a_letter_with_its_text_and_number(
    run: Run, file: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"n":1}\n{"n":\n')
    values: list[Any] = []
    report = run(
        read_jsonl(source, on_bad_line=route(dead_letters(file))).to(collect(values)).run()
    )
    (letter,) = letters_in(file)
    assert values == [{"n": 1}]
    assert (letter["value"], letter["error"], letter["token"]) == ('{"n":', "BadLine", 2)
    assert report.exit_status == 3


def test_a_line_that_a_full_disk_cut_off_spoils_no_letter_of_the_next_run(
    run: Run, file: Path
) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A write goes as far as the limit, as it does on a disk that is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            run(fail_all(["x" * 300] * 5, file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    whole = letters_in(file)
    assert 1 <= len(whole) < 5
    assert file.read_bytes().endswith(b"\n")

    run(fail_all(["a", "b"], file))
    assert letters_in(file)[:-2] == whole
    assert [letter["value"] for letter in letters_in(file)[-2:]] == ["a", "b"]


def test_nothing_comes_between_the_letters_of_two_runs(run: Run, file: Path) -> None:
    for value in ("a", "b"):
        run(fail_all([value], file))
    assert [letter["value"] for letter in letters_in(file)] == ["a", "b"]


def test_a_file_of_values_takes_letters_as_the_same_objects(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        def fail(value: int) -> None:
            raise ValueError("no good")

        for sink in (dead_letters(tmp_path / "letters"), write_jsonl(tmp_path / "values")):
            await from_iterable([1, 2]).to(for_each(fail, on_error=route(sink))).run()

    run(story())
    found = letters_in(tmp_path / "values"), letters_in(tmp_path / "letters")
    for letter in (*found[0], *found[1]):
        # Of two runs.
        del letter["created"], letter["failed"]
    assert found[0] == found[1]
