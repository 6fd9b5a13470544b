"""Several files as one input, compressed files with a position, and a position for each file."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Store,
    adaptive_flat_map,
    collect,
    for_each,
    read_jsonl,
    read_lines,
    write_jsonl,
)
from penstock.streams.base.errors import BadLine, BuildError, CannotOpen
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


async def read(source: Flowable[Any]) -> list[Any]:
    values: list[Any] = []
    await source.to(collect(values)).run()
    return values


def write(path: Path, *lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(PACKERS.get(path.suffix, bytes)(text))


async def interrupted(source: Flowable[str], fails_at: str, limit: int = 4) -> list[str]:
    """The events finished until the handler met `fails_at`, with `limit` at once."""
    done: list[str] = []

    async def handler(line: str) -> str:
        if line == fails_at:
            raise RuntimeError(line)
        return line

    with pytest.raises(RuntimeError):
        await source.pipe(adaptive_flat_map(handler, Fixed(limit))).to(for_each(done.append)).run()
    return done


def test_the_files_of_a_pattern_are_read_by_name_with_digits_as_numbers(
    run: Run, tmp_path: Path
) -> None:
    for number in (10, 2, 1):
        write(tmp_path / f"log.{number}.gz", f"of {number}")
    write(tmp_path / "log.3", "of 3")
    (tmp_path / "log.4").mkdir()
    values = run(read(read_lines(f"{tmp_path}/log.*")))
    assert values == ["of 1", "of 2", "of 3", "of 10"]


def test_files_are_read_by_the_times_of_their_last_changes(run: Run, tmp_path: Path) -> None:
    for age, number in enumerate((2, 10, 1)):
        write(tmp_path / f"log.{number}", f"of {number}")
        os.utime(tmp_path / f"log.{number}", (1_000_000 - age, 1_000_000 - age))
    values = run(read(read_lines(f"{tmp_path}/log.*", order="time")))
    assert values == ["of 1", "of 10", "of 2"]


def test_paths_of_a_list_are_read_in_its_order_each_file_once(run: Run, tmp_path: Path) -> None:
    b, a = tmp_path / "b.jsonl", tmp_path / "a.jsonl"
    b.write_text('{"n":1}\n{"n":2}')
    a.write_text('\ufeff{"n":3}\n')
    assert run(read(read_jsonl([b, a, b]))) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert run(read(read_jsonl([b, a], order="name"))) == [{"n": 3}, {"n": 1}, {"n": 2}]


def test_a_file_whose_own_name_is_a_pattern_is_that_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "log[1]", "it")
    write(tmp_path / "log1", "another")
    assert run(read(read_lines(f"{tmp_path}/log[1]"))) == ["it"]


def test_a_bad_line_is_named_by_its_file_and_its_number_there(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text('{"n":1}\n')
    two.write_text('{"n":1}\nx\n')
    with pytest.raises(BadLine, match=rf"{two}, line 2"):
        run(read(read_jsonl([one, two], on_bad_line="stop")))


def test_a_pattern_without_a_file_cannot_be_opened(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match="no file has such a name"):
        run(read(read_lines(f"{tmp_path}/*.gz")))


def test_an_output_that_a_pattern_would_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "{}")
    write(tmp_path / "out.jsonl")
    pipeline = read_jsonl(f"{tmp_path}/*.jsonl").to(write_jsonl(tmp_path / "out.jsonl"))
    with pytest.raises(BuildError, match="the same file"):
        pipeline.check_files()


@pytest.mark.parametrize("path", [[], ["a", 3], [""]])
def test_a_list_of_something_else_than_paths_is_refused(path: Any) -> None:
    with pytest.raises(BuildError, match="not the path"):
        read_lines(path)


def test_several_files_cannot_be_followed_and_an_unknown_order_is_refused() -> None:
    with pytest.raises(BuildError, match="can be followed"):
        read_lines(["a", "b"], follow=True)
    with pytest.raises(BuildError, match="order='size'"):
        read_lines(["a", "b"], order="size")  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_compressed_file_is_resumed_at_the_first_unfinished_line(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file, place = tmp_path / f"some.log{suffix}", tmp_path / "some.position"
    lines = [str(n) for n in range(100_000)]
    write(file, *lines)
    source = read_lines(file, position=place)
    done = run(interrupted(source, "70000"))
    again = run(read(source))
    assert sorted(done + again, key=int) == lines
    assert run(read(source)) == []


def test_a_compressed_file_of_which_all_is_done_is_not_decompressed_again(
    run: Run, tmp_path: Path
) -> None:
    file, place = tmp_path / "some.log.gz", tmp_path / "some.position"
    write(file, *map(str, range(100)))
    assert len(run(read(read_lines(file, position=place)))) == 100
    # Only its size and its last bytes are looked at.
    content = bytearray(gzip.compress(os.urandom(5000), 0))
    file.write_bytes(content)
    place.unlink()
    with pytest.raises(BadLine):
        run(read(read_lines(file, position=place, on_bad_line="stop", decode=_refuse)))
    place.unlink()
    run(read(read_lines(file, position=place, decode=bytes)))
    content[100] ^= 1
    with file.open("r+b") as damaged:
        damaged.write(content)
    assert run(read(read_lines(file, position=place, decode=bytes))) == []


def _refuse(line: bytes) -> bytes:
    raise ValueError("no")


def test_a_compressed_file_that_was_read_to_its_end_is_not_done_while_a_line_of_it_is_unfinished(
    run: Run, tmp_path: Path
) -> None:
    file, place = tmp_path / "some.log.gz", tmp_path / "some.position"
    write(file, "a", "b", "c")
    source = read_lines(file, position=place)

    async def handler(line: str) -> str:
        await asyncio.sleep(1_000_000 if line == "b" else 1)
        return line

    async def until_cancelled() -> None:
        running = source.pipe(adaptive_flat_map(handler, Fixed(8))).to(collect([])).start()
        await asyncio.sleep(10)
        running.cancel()
        await running.wait()

    run(until_cancelled())
    assert run(read(source)) == ["b"]


def test_members_that_are_appended_to_a_compressed_file_are_read_by_the_next_run(
    run: Run, tmp_path: Path
) -> None:
    file, place = tmp_path / "some.log.gz", tmp_path / "some.position"
    write(file, "a", "b")
    assert run(read(read_lines(file, position=place))) == ["a", "b"]
    with file.open("ab") as more:
        more.write(gzip.compress(b"c\n"))
    assert run(read(read_lines(file, position=place))) == ["c"]


def test_a_compressed_file_that_has_become_shorter_or_another_one_is_refused(
    run: Run, tmp_path: Path
) -> None:
    file, place = tmp_path / "some.log.gz", tmp_path / "some.position"
    write(file, "a", "b")
    run(read(read_lines(file, position=place)))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(CannotOpen, match="shorter"):
        run(read(read_lines(file, position=place)))
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(CannotOpen, match="other content"):
        run(read(read_lines(file, position=place)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(PACKERS)),
            st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), max_size=8),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(1, 12), max_size=6),
)
def test_however_it_is_cut_into_runs_each_line_of_each_file_is_read_once(
    tmp_path_factory: Any, files: list[tuple[str, list[bytes], bool]], cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    wanted: list[bytes] = []
    for number, (suffix, lines, ended) in enumerate(files):
        # Text, so that no compression is recognized by it.
        content = b"\n".join([b"text", *lines]) + (b"\n" if ended else b"")
        (folder / f"some.log.{number}{suffix}").write_bytes(PACKERS[suffix](content))
        found = content.split(b"\n")
        if found[-1] == b"":
            found.pop()
        wanted += [line.removesuffix(b"\r") for line in found]
    source = read_lines(f"{folder}/some.log.*", position=folder / "places", decode=bytes)

    def part(count: int) -> list[bytes]:
        values: list[bytes] = []

        async def first() -> None:
            async for value in source:
                values.append(value)
                if len(values) >= count:
                    break

        run_virtual(first())
        return values

    seen: list[bytes] = []
    for count in cuts:
        found = part(count)
        # The last one was not finished: its reader left the loop.
        seen += found[:-1] if len(found) >= count else found
    seen += run_virtual(read(source))
    assert seen == wanted


def test_each_file_of_a_pattern_has_a_position_and_may_be_renamed(run: Run, tmp_path: Path) -> None:
    source = read_lines(f"{tmp_path}/log.*.gz", position=tmp_path / "places", order="time")
    write(tmp_path / "log.2.gz", *(f"a{n}" for n in range(50)))
    write(tmp_path / "log.1.gz", *(f"b{n}" for n in range(50)))
    os.utime(tmp_path / "log.2.gz", (1_000_000, 1_000_000))
    done = run(interrupted(source, "b20"))
    # A rotation: each name goes to the next file.
    os.rename(tmp_path / "log.2.gz", tmp_path / "log.3.gz")
    os.rename(tmp_path / "log.1.gz", tmp_path / "log.2.gz")
    write(tmp_path / "log.1.gz", "c0", "c1")
    again = run(read(source))
    everything = [f"a{n}" for n in range(50)] + [f"b{n}" for n in range(50)] + ["c0", "c1"]
    assert sorted(done + again) == sorted(everything)
    assert run(read(source)) == []


def test_a_file_that_is_written_anew_is_read_from_its_start_with_a_warning(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = read_lines([tmp_path / "a", tmp_path / "b"], position=tmp_path / "places")
    write(tmp_path / "a", "one")
    write(tmp_path / "b", "two")
    run(read(source))
    write(tmp_path / "a", "six", "ten")
    assert run(read(source)) == ["six", "ten"]
    assert "other content than what was read" in caplog.text


def test_positions_in_files_that_are_gone_are_removed(run: Run, tmp_path: Path) -> None:
    places, logs = tmp_path / "places", tmp_path / "logs"
    logs.mkdir()
    source = read_lines(f"{logs}/*", position=places)
    for name in ("a", "b"):
        write(logs / name, name)
    run(read(source))
    assert len(list(places.glob("*.position"))) == 2
    (logs / "a").unlink()
    run(read(source))
    assert len(list(places.glob("*.position"))) == 1


def test_positions_in_several_files_need_a_folder(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a", "one")
    place = tmp_path / "place"
    place.write_text("")
    with pytest.raises(CannotOpen, match="need a folder"):
        run(read(read_lines([tmp_path / "a"], position=place)))


def test_a_store_has_a_mark_for_each_file(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.gz", "a0", "a1")
    write(tmp_path / "b", "b0", "b1")
    store = Store(tmp_path / "state.db")
    source = read_lines([tmp_path / "a.gz", tmp_path / "b"], position=store)
    done = run(interrupted(source, "b1", 1))
    assert done == ["a0", "a1", "b0"]
    assert run(read(source)) == ["b1"]
    assert run(read(source)) == []
