"""An event of a source that gives events again is the same event in each run, and no other is."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    adaptive_flat_map,
    collect,
    dead_letters,
    ops,
    read_lines,
    route,
)
from penstock.streams.protocol.identity import Identity, shown
from penstock.streams.testing.plugin import Run
from tests.helpers.identified import identified
from tests.helpers.spans import Spans, attributes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture
def lines(file: Path, run: Run) -> Callable[..., list[tuple[str, Identity]]]:
    """Read the lines of a file with the position beside it, for some seconds where followed."""

    def read(path: Path = file, **options: Any) -> list[tuple[str, Identity]]:
        found: list[tuple[str, Identity]] = []
        source = read_lines(path, position=file.with_suffix(".position"), **options)

        async def work() -> None:
            running = source.to(identified(found)).start()
            if options:
                await asyncio.sleep(30)
                await running.drain()
            else:
                await running.wait()

        run(work())
        return found

    return read


Lines = Callable[..., list[tuple[str, Identity]]]


def test_lines_of_one_file_go_on_in_the_generation_of_its_position(
    file: Path, lines: Lines
) -> None:
    file.write_text("a\nb\n")
    first = lines()
    with file.open("a") as more:
        more.write("c\n")
    found = [*first, *lines()]
    generation = found[0][1].generation
    assert found == [
        (value, Identity(str(file), generation, n)) for n, value in enumerate("abc", 1)
    ]


def test_a_line_that_comes_again_after_a_failure_is_the_same_event(
    file: Path, lines: Lines, run: Run
) -> None:
    file.write_text("a\nb\n")
    failed: list[tuple[Any, Identity]] = []

    def fails(line: str) -> str:
        raise ValueError(line)

    source = read_lines(file, position=file.with_suffix(".position"))
    with pytest.raises(ValueError, match="a") as caught:
        run(source.pipe(adaptive_flat_map(fails)).to(identified(failed)).run())
    (_, one), _ = lines()
    assert str(one) in "".join(caught.value.__notes__)


def test_line_1_of_a_rotated_file_is_another_event(file: Path, lines: Lines) -> None:
    file.write_text("same\n")
    (first,) = lines(follow=True)
    os.rename(file, file.with_suffix(".log.1"))
    file.write_text("same\n")
    (second,) = lines(follow=True)
    assert second[0] == first[0]
    assert second[1].sequence == first[1].sequence == 1
    assert second[1].partition == first[1].partition
    assert second[1].generation != first[1].generation


def test_what_was_not_read_of_a_rotated_file_keeps_its_generation_and_its_numbers(
    file: Path, lines: Lines
) -> None:
    file.write_text("a\n")
    ((_, first),) = lines(follow=True)
    with file.open("a") as more:
        more.write("b\n")
    os.rename(file, file.with_suffix(".log.1"))
    file.write_text("c\n")
    (_, second), (_, third) = lines(follow=True)
    assert second == Identity(str(file), first.generation, 2)
    assert third.sequence == 1
    assert third.generation != first.generation


def test_a_file_that_was_emptied_and_written_anew_has_a_generation_of_its_own(
    file: Path, run: Run
) -> None:
    found: list[tuple[Any, Identity]] = []

    file.write_text("a\n")

    async def story() -> None:
        source = read_lines(file, follow=True, position=file.with_suffix(".position"))
        running = source.to(identified(found)).start()
        await asyncio.sleep(2)
        await asyncio.to_thread(file.write_text, "b\n")
        await asyncio.sleep(10)
        await running.drain()

    run(story())
    (_, first), (_, second) = found
    assert (first.sequence, second.sequence) == (1, 1)
    assert first.generation != second.generation


def test_a_copy_has_the_generation_of_what_was_read(file: Path, lines: Lines) -> None:
    file.write_text("a\n")
    ((_, first),) = lines()
    copy = file.with_name("copy.log")
    shutil.copy(file, copy)
    with copy.open("a") as more:
        more.write("b\n")
    ((_, second),) = lines(copy)
    assert (second.generation, second.sequence) == (first.generation, 2)


def test_a_file_without_a_position_gives_no_event_again_and_has_no_identities(
    file: Path, run: Run, tmp_path: Path
) -> None:
    file.write_text("a\n")
    letters = tmp_path / "letters.jsonl"

    def fails(line: str) -> str:
        raise ValueError(line)

    policy = route(dead_letters(letters))
    run(read_lines(file).pipe(adaptive_flat_map(fails, on_error=policy)).to(collect([])).run())
    assert "identities" not in orjson.loads(letters.read_text())


def test_dead_letters_have_the_identities_of_all_events_that_the_failed_one_was_made_of(
    file: Path, run: Run, tmp_path: Path
) -> None:
    file.write_text("a\nb\n")
    letters = tmp_path / "letters.jsonl"

    def fails(lines: list[str]) -> str:
        raise ValueError(lines)

    run(
        read_lines(file, position=file.with_suffix(".position"))
        .pipe(
            ops.buffer_with_count(2),
            adaptive_flat_map(fails, on_error=route(dead_letters(letters))),
        )
        .to(collect([]))
        .run()
    )
    found = orjson.loads(letters.read_text())["identities"]
    assert [(one["partition"], one["sequence"]) for one in found] == [
        (str(file), 1),
        (str(file), 2),
    ]
    assert len({one["generation"] for one in found}) == 1


def test_the_span_of_an_event_and_the_log_of_one_that_failed_name_its_identity(
    file: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("a\n")
    found: list[tuple[Any, Identity]] = []
    spans = Spans()

    def fails(line: str) -> str:
        raise ValueError(line)

    async def work() -> None:
        lines = read_lines(file, position=file.with_suffix(".position"))
        kept = lines.pipe(adaptive_flat_map(fails, on_error="skip"))
        running = kept.to(identified(found)).start()
        running.trace(spans.provider)
        await running.wait()

    run(work())
    (span,) = spans.named("event of read_lines")
    name = attributes(span)["penstock.identity"]
    assert name.startswith(f"{file}@")
    assert name.endswith(":1")
    assert name in caplog.text


def test_a_bad_line_has_an_identity(file: Path, run: Run, tmp_path: Path) -> None:
    file.write_bytes(b"good\n" + b"x" * 99 + b"\n")
    letters = tmp_path / "letters.jsonl"
    source = read_lines(
        file,
        max_line=10,
        position=file.with_suffix(".position"),
        on_bad_line=route(dead_letters(letters)),
    )
    run(source.to(collect([])).run())
    (one,) = orjson.loads(letters.read_text())["identities"]
    assert (one["partition"], one["sequence"]) == (str(file), 2)


KILLED = """
import asyncio, sys, time
from penstock import adaptive_flat_map, read_lines
from tests.helpers.identified import identified
from tests.helpers.spans import Spans, attributes

class Printed(list):
    def append(self, found):
        print(f"{found[0]} {found[1]}\\n", end="", flush=True)

def handler(line):
    time.sleep(0.002)
    return line

lines = read_lines(sys.argv[1], position=sys.argv[2])
asyncio.run(lines.pipe(adaptive_flat_map(handler)).to(identified(Printed())).run())
"""


def test_a_line_has_one_identity_whenever_its_reader_is_killed(file: Path) -> None:
    file.write_text("".join(f"line{n}\n" for n in range(60)))
    seen: dict[str, set[str]] = {}
    command = [sys.executable, "-c", KILLED, str(file), str(file.with_suffix(".position"))]
    for until in (5, 11, 17, 1000):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for count, entry in enumerate(reader.stdout):
                line, identity = entry.split()
                seen.setdefault(line, set()).add(identity)
                if count == until:
                    reader.kill()
    generation = next(iter(seen["line0"])).rpartition(":")[0]
    assert seen == {f"line{n}": {f"{generation}:{n + 1}"} for n in range(60)}


@settings(max_examples=30, deadline=None)
@given(
    runs=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    draw=st.randoms(use_true_random=False),
)
def test_identities_of_a_partition_are_in_the_order_of_its_events(
    runs: list[int], draw: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("ordered") / "app.log"
    place, written = file.with_suffix(".position"), 0
    found: list[tuple[Any, Identity]] = []
    for count in runs:
        with file.open("a") as more:
            more.writelines(f"{written + n}\n" for n in range(count))
        written += count

        def fails(line: str, limit: int = written - draw.randrange(3)) -> str:
            if int(line) >= limit:
                raise ValueError(line)
            return line

        source = read_lines(file, position=place).pipe(adaptive_flat_map(fails))
        with suppress(ValueError):
            asyncio.run(source.to(identified(found)).run())
    assert [int(value) + 1 for value, _ in found] == [one.sequence for _, one in found]
    assert all(one < other for (_, one), (_, other) in pairwise(found))


def test_an_identity_is_one_word_and_several_are_the_first_and_a_number() -> None:
    one, other = Identity("orders/3", "5f3a", 17), Identity("numbers", "", (4, 1))
    assert (str(one), str(other)) == ("orders/3@5f3a:17", "numbers@:4.1")
    assert [shown(of) for of in ((), (one,), (one, other, one))] == [
        "",
        "orders/3@5f3a:17",
        "orders/3@5f3a:17 and 2 more",
    ]
