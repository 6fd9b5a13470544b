"""How far a running is: what its source has read of all that there is."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from backports import zstd

from penstock import (
    Fixed,
    Flowable,
    adaptive_flat_map,
    collect,
    from_iterable,
    read_jsonl,
    read_lines,
)
from penstock.streams.pipelines.running import Running
from penstock.streams.testing import MemorySource, run_virtual
from penstock.streams.testing.plugin import Run

Numbers = dict[str, Any]

# More than is read at once.
LINES = [f"{n:06}" + "-" * 993 for n in range(1, 1001)]


def source_of(running: Running) -> Numbers:
    numbers: Numbers = running.statistics()["stages"][0]
    return numbers


async def watched(source: Flowable[Any], *times: float) -> list[tuple[Any, Any, float | None]]:
    """(bytes read, bytes in all, progress) at these times and at the end; 10 events a second."""
    seen: list[tuple[Any, Any, float | None]] = []

    def look(running: Running) -> None:
        numbers = source_of(running)
        progress = running.statistics()["progress"]
        seen.append((numbers.get("bytes_read"), numbers.get("bytes_total"), progress))

    pipeline = source.pipe(
        adaptive_flat_map(lambda value: asyncio.sleep(0.1, value), limit=Fixed(1))
    ).to(collect([]))
    async with pipeline.start() as running:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for time in times:
            await asyncio.sleep(began + time - loop.time())
            look(running)
    look(running)
    return seen


def test_a_file_has_the_bytes_read_of_the_bytes_in_all(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("\n".join(LINES) + "\n")
    first, half, end = run(watched(read_lines(file), 5.05, 50.05))
    assert first == (256 * 1024, 1_000_000, pytest.approx(0.05, abs=0.002))
    assert half == (512 * 1024, 1_000_000, pytest.approx(0.5, abs=0.002))
    assert end == (1_000_000, 1_000_000, 1.0)


def test_a_file_that_is_read_at_once_is_not_done_before_its_lines_are(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "some.txt"
    file.write_text("a\n\nb\nc\n")
    seen = run(watched(read_lines(file), 0.05, 0.15))
    assert seen == [(7, 7, 0.0), (7, 7, 0.25), (7, 7, 1.0)]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd.compress)])
def test_of_a_compressed_file_the_bytes_are_those_of_the_file(
    run: Run, tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / f"some.txt{suffix}"
    file.write_bytes(compress(b"a\nb\n"))
    size = file.stat().st_size
    assert run(watched(read_lines(file), 0.15)) == [(size, size, 0.5), (size, size, 1.0)]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd.compress)])
def test_what_of_a_compressed_file_is_not_decompressed_yet_is_left_of_it(
    run: Run, tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes], named: bool
) -> None:
    file = tmp_path / f"some.txt{suffix if named else ''}"
    noise = Random(17)
    lines = [f"{n:06}{noise.randbytes(200).hex():-<993}" for n in range(1, 1001)]
    file.write_bytes(compress("\n".join(lines).encode()))
    size = file.stat().st_size
    # The file is read at once.
    assert 200_000 < size < 256 * 1024
    first, half, end = run(watched(read_lines(file), 5.05, 50.05))
    assert size / 20 < first[0] < size / 2 < half[0] < size
    assert first[1:] == (size, pytest.approx(0.05, abs=0.02))
    assert half[1:] == (size, pytest.approx(0.5, abs=0.05))
    assert end == (size, size, 1.0)


def test_a_small_file_of_zstd_that_unpacks_to_much_is_not_done_while_it_is_decompressed(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "some.txt.zst"
    file.write_bytes(zstd.compress("\n".join(LINES).encode()))
    size = file.stat().st_size
    assert size < 16 * 1024
    assert run(watched(read_lines(file), 50.05)) == [(0, size, 0.0), (size, size, 1.0)]


def test_of_a_gzip_file_each_byte_that_is_decompressed_counts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.txt.gz"
    file.write_bytes(gzip.compress("\n".join(LINES).encode()))
    size = file.stat().st_size
    assert size < 16 * 1024
    first, half, end = run(watched(read_lines(file), 5.05, 50.05))
    assert 0 < first[0] < half[0] < size
    assert (first[2], half[2]) == (pytest.approx(0.05, abs=0.005), pytest.approx(0.5, abs=0.005))
    assert end == (size, size, 1.0)


def test_an_empty_file_is_done(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.touch()
    assert run(watched(read_lines(file))) == [(0, 0, 1.0)]


def test_a_file_that_is_continued_counts_from_its_start(run: Run, tmp_path: Path) -> None:
    file, position = tmp_path / "some.txt", tmp_path / "position"
    file.write_text("a\nb\n")
    run(watched(read_lines(file, position=position)))
    with file.open("a") as more:
        more.write("c\nd\n")
    seen = run(watched(read_lines(file, position=position), 0.15))
    assert seen == [(8, 8, 0.5), (8, 8, 1.0)]


def test_a_followed_file_says_how_far_it_is_behind(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("a\n")

    async def story() -> list[tuple[int, int | None]]:
        seen: list[tuple[int, int | None]] = []

        def look() -> None:
            numbers = source_of(running)
            seen.append((numbers["bytes_read"], numbers["bytes_total"]))

        running = read_lines(file, follow=True).to(collect([])).start()
        await asyncio.sleep(0.1)
        look()
        file.write_text("a\nbb\n")
        look()
        await asyncio.sleep(1)
        look()
        file.unlink()
        await running.drain()
        look()
        return seen

    assert run(story()) == [(2, 2), (2, 5), (5, 5), (5, 5)]


def test_a_pipe_has_the_bytes_read_and_no_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"{}\n{}\n")
    os.close(writing)
    try:
        # A pipe needs real time.
        report = asyncio.run(read_jsonl(reading).to(collect([])).run())
    finally:
        os.close(reading)
    numbers = report.statistics["stages"][0]
    assert (numbers["bytes_read"], numbers["bytes_total"]) == (6, None)
    assert (numbers["emitted"], report.statistics["progress"]) == (None, None)


@pytest.mark.parametrize(
    ("items", "total"),
    [
        ([1, 2, 3, 4], 4),
        ({"a": 1, "b": 2}, 2),
        (range(3), 3),
        (lambda: range(3), 3),
        (lambda: (n for n in range(3)), None),
        ([], 0),
    ],
    ids=["list", "dict", "range", "function", "generator", "nothing"],
)
def test_an_iterable_with_a_length_has_the_number_of_events(
    items: Iterable[Any], total: int | None
) -> None:
    async def story() -> tuple[Numbers, list[float | None]]:
        pipeline = from_iterable(items).pipe(
            adaptive_flat_map(lambda value: asyncio.sleep(1, value), limit=Fixed(1))
        )
        async with pipeline.to(collect([])).start() as running:
            await asyncio.sleep(1.5)
            half = running.statistics()["progress"]
        return source_of(running), [half, running.statistics()["progress"]]

    numbers, progress = run_virtual(story())
    assert numbers["events_total"] == total
    assert progress == ([None, None] if total is None else [1 / max(total, 1), 1.0])


def test_what_is_returned_at_the_end_is_not_done() -> None:
    async def story() -> float | None:
        pipeline = from_iterable(range(4)).pipe(
            adaptive_flat_map(lambda n: asyncio.sleep(n, n), limit=Fixed(4))
        )
        running = pipeline.to(collect([])).start()
        await asyncio.sleep(1.5)
        running.cancel()
        await running.wait()
        progress: float | None = running.statistics()["progress"]
        return progress

    assert run_virtual(story()) == 0.5


def test_a_source_without_a_size_has_no_progress() -> None:
    async def story() -> Numbers:
        report = await MemorySource([1, 2]).to(collect([])).run()
        return report.statistics

    assert run_virtual(story())["progress"] is None
