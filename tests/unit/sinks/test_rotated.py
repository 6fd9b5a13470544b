from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    adaptive_flat_map,
    collect,
    from_async_iterable,
    from_iterable,
    read_csv,
    read_jsonl,
    route,
    write_csv,
    write_jsonl,
)
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.walks import examples

pytestmark = pytest.mark.usefixtures("no_open_files")

UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


class Step(NamedTuple):
    """Values that come after some seconds."""

    seconds: float
    values: list[Any]


def numbers(n: int) -> Flowable[dict[str, int]]:
    return from_iterable({"n": i} for i in range(n))


async def played(steps: list[Step]) -> AsyncIterator[Any]:
    for step in steps:
        await asyncio.sleep(step.seconds)
        for value in step.values:
            yield value


def ended(folder: Path) -> list[str]:
    """The names of files that were ended, in order."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("out-"))


ROW = st.fixed_dictionaries(
    {"a": st.text('ab",\n é', max_size=60), "b": st.integers(-(2**53), 2**53)}
)
VALUES = st.lists(ROW, max_size=30)
STEPS = st.lists(st.builds(Step, st.floats(0, 30), VALUES), max_size=3)


@pytest.mark.parametrize("suffix", UNPACKED)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
@examples(60)
@given(steps=STEPS, size=st.integers(1, 1000), seconds=st.none() | st.integers(1, 40))
def test_each_ended_file_is_whole_within_its_size_and_all_are_read_again_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    suffix: str,
    steps: list[Step],
    size: int,
    seconds: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("rotated")
    file = folder / f"out.{form}{suffix}"
    rotate = f"{size}B" if seconds is None else f"{size}B,{seconds}s"
    write, read = (write_jsonl, read_jsonl) if form == "jsonl" else (write_csv, read_csv)
    again: list[Any] = []

    async def story() -> None:
        await from_async_iterable(played(steps)).to(write(str(file), rotate=rotate)).run()
        names = [str(folder / f"out-*.{form}{suffix}"), str(file)]
        await read(names).to(collect(again)).run()

    run_virtual(story())
    values = [value for step in steps for value in step.values]
    if form == "csv":
        values = [{"a": value["a"], "b": str(value["b"])} for value in values]
    assert again == values
    for name in ended(folder):
        content = (folder / name).read_bytes()
        text = UNPACKED[suffix](content)
        if form == "jsonl":
            assert text.endswith(b"\n")
            rows = text.count(b"\n")
        else:
            assert text.startswith((b"a,b\n", b"b,a\n"))
            rows = len(run_virtual(rows_of(folder / name)))
        assert rows == 1 or (rows and len(content) <= size)


async def rows_of(path: Path) -> list[Any]:
    found: list[Any] = []
    await read_csv(str(path)).to(collect(found)).run()
    return found


def test_a_file_is_ended_before_the_line_that_it_has_no_room_for(run: Run, tmp_path: Path) -> None:
    report = run(numbers(7).to(write_jsonl(tmp_path / "out.jsonl", rotate="30B")).run())
    texts = [(tmp_path / name).read_text() for name in [*ended(tmp_path), "out.jsonl"]]
    assert texts == ['{"n":0}\n{"n":1}\n{"n":2}\n', '{"n":3}\n{"n":4}\n{"n":5}\n', '{"n":6}\n']
    assert report.statistics["stages"][-1]["rotated"] == 2


def test_a_line_that_is_longer_than_a_file_has_one_of_its_own(run: Run, tmp_path: Path) -> None:
    values = [{"n": 1}, {"n": "x" * 50}, {"n": 2}]
    run(from_iterable(values).to(write_jsonl(tmp_path / "out.jsonl", rotate="20B")).run())
    sizes = [(tmp_path / name).stat().st_size for name in [*ended(tmp_path), "out.jsonl"]]
    assert sizes == [8, 59, 8]


def test_a_file_is_ended_when_its_period_is_over_also_if_nothing_comes(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    seen: list[tuple[float, list[str], bool]] = []

    async def values() -> AsyncIterator[int]:
        yield 1
        for _ in range(2):
            await asyncio.sleep(1800)
            yield 2
        await asyncio.sleep(3 * 3600)

    async def look(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, ended(tmp_path), file.stat().st_size > 0))

    async def story() -> None:
        async with from_async_iterable(values()).to(write_jsonl(file, rotate="1h")).start():
            await asyncio.gather(*map(look, (1900, 3599, 3601, 7199, 7201, 10900)))

    run_virtual(story())
    first, second = (f"out-1970-01-01T{hour}-00-00.000.jsonl" for hour in ("01", "02"))
    assert seen == [
        (1900, [], True),
        (3599, [], True),
        (3601, [first], True),
        (7199, [first], True),
        (7201, [first, second], False),
        # Where nothing was written, there is nothing to end.
        (10900, [first, second], False),
    ]


def test_a_file_of_an_earlier_period_is_ended_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text('{"n":0}\n')
    os.utime(file, (7200, 7200))

    async def story() -> None:
        await asyncio.sleep(10_900)
        await numbers(1).to(write_jsonl(file, rotate="1h")).run()

    run_virtual(story())
    assert file.read_text() == '{"n":0}\n'
    assert ended(tmp_path) == ["out-1970-01-01T03-01-40.000.jsonl"]


def test_a_file_of_the_same_period_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text('{"n":5}\n')
    os.utime(file, (7200, 7200))

    async def story() -> None:
        await asyncio.sleep(7300)
        await numbers(1).to(write_jsonl(file, rotate="1h")).run()

    run_virtual(story())
    assert (file.read_text(), ended(tmp_path)) == ('{"n":5}\n{"n":0}\n', [])


def test_names_go_on_after_those_that_are_there_also_where_the_clock_was_set_back(
    run: Run, tmp_path: Path
) -> None:
    for name in (
        "out-2026-11-30T21-00-00.999.jsonl.gz",
        "out-9.jsonl",
        "out-x.jsonl",
        "more.jsonl",
    ):
        (tmp_path / name).touch()
    run(numbers(3).to(write_jsonl(tmp_path / "out.jsonl", rotate="8B")).run())
    assert [name for name in ended(tmp_path) if name.startswith("out-20")][1:] == [
        "out-2026-11-30T21-00-01.000.jsonl",
        "out-2026-11-30T21-00-01.001.jsonl",
    ]


def test_the_first_file_is_mended_and_keeps_its_columns(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "out.csv"
    file.write_text("n,m\n1,2\n3,")
    run(numbers(2).to(write_csv(file, rotate="12B")).run())
    assert "its last 2 bytes were removed" in caplog.text
    texts = [(tmp_path / name).read_text() for name in [*ended(tmp_path), "out.csv"]]
    assert texts == ["n,m\n1,2\n0,\n", "n,m\n1,\n"]


@pytest.mark.parametrize("write", [write_jsonl, write_csv])
def test_what_cannot_be_rotated_is_refused(run: Run, write: Any, tmp_path: Path) -> None:
    for wrong in ("100M", "0B", "1", "", "1h,2h", "-1h", 5, "10 minutes"):
        with pytest.raises(BuildError, match=r"rotate=.*give a size such as 100MB"):
            write("out.jsonl", rotate=wrong)
    with pytest.raises(BuildError, match="descriptor 7 has no name"):
        write(7, rotate="1h")
    with pytest.raises(BuildError, match="standard output cannot be rotated"):
        run(numbers(1).to(write(rotate="1h")).run())
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(CannotOpen, match="not a regular file"):
        run(numbers(1).to(write(fifo, rotate="1h")).run())
    os.close(reader)


def test_a_file_that_another_run_writes_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"

    async def story(**options: Any) -> None:
        async with (
            from_async_iterable(played([Step(9, [])])).to(write_jsonl(file, **options)).start()
        ):
            with pytest.raises(CannotOpen, match="another run writes to it"):
                await numbers(1).to(write_jsonl(file, rotate="1KB")).run()

    run(story(append=True))
    run(story(rotate="8B"))
    both = numbers(1).to(write_jsonl(file, rotate="1h"), write_jsonl(file, append=True))
    with pytest.raises(BuildError, match="would write over each other"):
        run(both.run())


def test_a_file_that_was_renamed_by_others_is_left_and_the_next_one_begun(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "out.jsonl"

    async def values() -> AsyncIterator[dict[str, int]]:
        yield {"n": 0}
        await asyncio.sleep(1)
        file.rename(tmp_path / "elsewhere")
        file.write_text("of others\n")
        yield {"n": 1}

    run(from_async_iterable(values()).to(write_jsonl(file, rotate="8B")).run())
    assert (tmp_path / "elsewhere").read_text() == '{"n":0}\n'
    assert "was renamed or removed by another program" in caplog.text
    assert [(tmp_path / name).read_text() for name in ended(tmp_path)] == ["of others\n"]
    assert file.read_text() == '{"n":1}\n'


def test_a_folder_in_which_nothing_can_be_made_ends_the_pipeline_and_gives_the_rest_back(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = folder / "out.jsonl"

    async def values() -> AsyncIterator[dict[str, int]]:
        yield {"n": 0}
        await asyncio.sleep(1)
        file.unlink()
        folder.rmdir()
        yield {"n": 1}

    async def story() -> tuple[int, int, int]:
        running = from_async_iterable(values()).to(write_jsonl(file, rotate="8B")).start()
        with pytest.raises(CannotOpen, match="Cannot write"):
            await running.wait()
        numbers = running.statistics()
        return numbers["in"], numbers["finished"], numbers["returned"]

    assert run(story()) == (2, 1, 1)


def test_a_reader_with_a_position_goes_from_each_ended_file_to_the_next(
    run: Run, tmp_path: Path
) -> None:
    file, done = tmp_path / "out.jsonl", list[Any]()

    def read() -> None:
        run(read_jsonl(file, position=tmp_path / "position").to(collect(done)).run())

    file.touch()
    for n in range(0, 30, 5):
        if n % 2 == 0:
            read()
        values = [{"n": one} for one in range(n, n + 5)]
        run(from_iterable(values).to(write_jsonl(file, rotate="40B")).run())
    read()
    assert [one["n"] for one in done] == list(range(30))


def test_letters_are_rotated_by_the_sink_of_a_route(run: Run, tmp_path: Path) -> None:
    def fail(n: int) -> None:
        raise ValueError(n)

    sink = write_jsonl(tmp_path / "dead.jsonl", rotate="10KB")
    stage = adaptive_flat_map(fail, on_error=route(sink))
    report = run(from_iterable(range(200)).pipe(stage).to(collect([])).run())
    assert report.statistics["failed"] == 200
    files = [*sorted(tmp_path.glob("dead-*.jsonl")), tmp_path / "dead.jsonl"]
    assert len(files) > 2
    assert max(file.stat().st_size for file in files) <= 10_000
    letters = [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]
    assert [letter["value"] for letter in letters] == list(range(200))
    assert {letter["error"] for letter in letters} == {"ValueError"}
