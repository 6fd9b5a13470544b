from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, read_jsonl, read_lines
from penstock.streams.base.errors import BadLine, BuildError
from penstock.streams.failures.policy import DeadLetter, route
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.running import Report
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run


async def read(source: Flowable[Any]) -> tuple[list[Any], Report]:
    values: list[Any] = []
    report = await source.to(collect(values)).run()
    return values, report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb", ["a", "b"]),
        (b"\n\na\n", ["", "", "a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("\u00e9\u2028\x0b\x85\n".encode(), ["\u00e9\u2028\x0b\x85"]),
        (b"", []),
    ],
    ids=["newlines", "carriage returns", "empty lines", "byte-order mark", "odd breaks", "nothing"],
)
def test_each_line_is_a_text(run: Run, file: Path, text: bytes, lines: list[str]) -> None:
    file.write_bytes(text)
    values, report = run(read(read_lines(file)))
    assert values == lines
    assert report.exit_status == 0


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"))))
def test_what_is_written_as_lines_is_read(tmp_path_factory: Any, texts: list[str]) -> None:
    file = tmp_path_factory.mktemp("lines") / "some.txt"
    file.write_bytes("".join(f"{text}\n" for text in texts).encode())
    first_is_marked = bool(texts) and texts[0].startswith("\ufeff")
    wanted = [texts[0][1:], *texts[1:]] if first_is_marked else texts
    assert run_virtual(read(read_lines(file)))[0] == [text.removesuffix("\r") for text in wanted]


def test_what_is_not_utf_8_is_a_bad_line_and_its_neighbours_are_not(run: Run, file: Path) -> None:
    file.write_bytes(b"a\ncaf\xe9\nb\n")
    values, report = run(read(read_lines(file)))
    assert values == ["a", "b"]
    assert (report.statistics["bad_lines"], report.exit_status) == (1, 3)


def test_a_bad_last_line_without_a_newline_is_shown_as_any_other(
    run: Run, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b"caf\xe9\ncaf\xe9")
    run(read(read_lines(file)))
    shown = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert shown == [repr(b"caf\xe9")] * 2


def test_another_encoding_is_a_decode(run: Run, file: Path) -> None:
    file.write_bytes(b"caf\xe9\r\n\n")
    values, _ = run(read(read_lines(file, decode=lambda line: line.decode("latin-1"))))
    assert values == ["caf\u00e9", ""]


def test_a_line_that_is_too_long_is_reported_and_skipped(run: Run, file: Path) -> None:
    file.write_bytes(b"a\n" + b"x" * 1000 + b"\nb\n")
    values, report = run(read(read_lines(file, max_line=100)))
    assert (values, report.statistics["bad_lines"]) == (["a", "b"], 1)


class Order(msgspec.Struct):
    id: int
    amount: float = 0.0


class Model(pydantic.BaseModel):
    id: int
    amount: float = 0.0


@pytest.mark.parametrize(
    "decode",
    [Order, Model, msgspec.json.Decoder(Order), pydantic.TypeAdapter(Model)],
    ids=["Struct", "model", "Decoder", "TypeAdapter"],
)
def test_json_lines_are_decoded_into_the_users_types(run: Run, file: Path, decode: Any) -> None:
    file.write_text('{"id": 1, "amount": 2.5}\n\n{"id": "one"}\nno JSON\n{"id": 2}\n')
    values, report = run(read(read_jsonl(file, decode=decode)))
    assert [(value.id, value.amount) for value in values] == [(1, 2.5), (2, 0.0)]
    kind = type(decode) if not isinstance(decode, type) else decode
    assert isinstance(values[0], Order if "msgspec" in str(kind) or kind is Order else Model)
    assert report.statistics["bad_lines"] == 2


def test_what_decode_raises_makes_a_bad_line_with_its_number(run: Run, file: Path) -> None:
    file.write_text("1\n2\nthree\n4\n")
    with pytest.raises(BadLine, match=r"line 3 cannot be decoded \(ValueError: .*'three'"):
        run(read(read_lines(file, decode=int, on_bad_line="stop")))
    letters: list[DeadLetter] = []
    values, _ = run(read(read_lines(file, decode=int, on_bad_line=route(collect(letters)))))
    assert values == [1, 2, 4]
    assert [letter.value for letter in letters] == ["three"]


def test_decode_sees_every_line_once_whatever_it_raises(run: Run, file: Path) -> None:
    seen: list[bytes] = []

    def note(line: bytes) -> int:
        seen.append(line)
        return int(line)

    file.write_text("1\nx\n2\ny\n")
    run(read(read_jsonl(file, decode=note)))
    assert seen == [b"1", b"x", b"2", b"y"]
    assert set(map(type, seen)) == {bytes}


async def later(line: bytes) -> bytes:
    return line


def several(line: bytes) -> Iterator[bytes]:
    yield line


@dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


@pytest.mark.parametrize("decode", [later, several, 3, "utf-8", list[int], Point, Named])
def test_what_cannot_decode_bytes_is_refused_when_the_source_is_made(decode: Any) -> None:
    with pytest.raises(BuildError, match="decode"):
        read_lines(decode=decode)
    with pytest.raises(BuildError, match="decode"):
        read_jsonl(decode=decode)
