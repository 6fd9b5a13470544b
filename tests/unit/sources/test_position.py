from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    distinct_within,
    for_each,
    read_jsonl,
    read_lines,
    retry,
    write_jsonl,
)
from penstock.streams.base.errors import BadLine, BuildError, CannotOpen
from penstock.streams.delivery.text import body_in, text_of
from penstock.streams.failures.policy import route
from penstock.streams.io.compression import compression_of
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.running import Report
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "events.position"


BAD_RANGES = b'{"inode":1,"size":1,"offset":0,"checksum":0,"line":0,"finished":[3]}'


async def read(source: Flowable[Any]) -> tuple[list[Any], Report]:
    values: list[Any] = []
    report = await source.to(collect(values)).run()
    return values, report


def saved(place: Path) -> dict[str, Any]:
    body = body_in(place.read_text().removesuffix("\n"), ("position",))
    assert isinstance(body, str)
    found: dict[str, Any] = orjson.loads(body)
    return found


async def interrupted(source: Flowable[str], fails_at: str, limit: int = 4) -> list[str]:
    """The events finished until the handler met `fails_at`, with `limit` at once."""
    done: list[str] = []

    async def handler(line: str) -> str:
        if line == fails_at:
            raise RuntimeError(line)
        await asyncio.sleep(1 + len(line) % 3)
        return line

    with pytest.raises(RuntimeError):
        await source.pipe(adaptive_flat_map(handler, Fixed(limit))).to(for_each(done.append)).run()
    return done


def test_the_next_running_begins_where_everything_before_was_finished(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("a\nbb\nccc\n")
    assert run(read(read_lines(file, position=place)))[0] == ["a", "bb", "ccc"]
    assert saved(place) == {
        "path": str(file),
        "generation": saved(place)["generation"],
        "inode": file.stat().st_ino,
        "size": 9,
        "offset": 9,
        "read": 9,
        "checksum": crc32(b"a\nbb\nccc\n"),
        "line": 3,
        "finished": [],
        "unended": [],
    }
    with file.open("a") as more:
        more.write("d\ne\n")
    assert run(read(read_lines(file, position=place)))[0] == ["d", "e"]
    assert run(read(read_lines(file, position=place)))[0] == []


def test_what_was_unfinished_is_read_again_and_nothing_else(
    run: Run, file: Path, place: Path
) -> None:
    lines = [f"{n:0{n % 7 + 2}}" for n in range(40)]
    file.write_text("".join(f"{line}\n" for line in lines))
    done = run(interrupted(read_lines(file, position=place), lines[23]))
    again, _ = run(read(read_lines(file, position=place)))
    assert again[-1] == lines[-1]
    assert set(done) | set(again) == set(lines)
    assert set(done) & set(again) == set()


@given(
    st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=30),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.booleans(),
)
def test_however_it_is_cut_into_runs_each_line_is_read_once(
    tmp_path_factory: Any, lines: list[bytes], cuts: list[int], ended: bool
) -> None:
    """Lines that are bad, too long, empty and without a newline at the end are among them."""
    folder = tmp_path_factory.mktemp("cut")
    file, place = folder / "some.log", folder / "some.position"
    file.write_bytes(b"\n".join(lines) + (b"\n" if ended and lines else b""))
    assume(compression_of(file.read_bytes()) is None)

    def part(count: int) -> list[bytes]:
        source = read_lines(file, position=place, decode=bytes, max_line=8)
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
    seen += run_virtual(read(read_lines(file, position=place, decode=bytes, max_line=8)))[0]
    whole = file.read_bytes().split(b"\n")
    if whole[-1] == b"":
        whole.pop()
    wanted = [line.removesuffix(b"\r") for line in whole if len(line) <= 8]
    if wanted and wanted[0].startswith(b"\xef\xbb\xbf") and len(whole[0]) <= 8:
        wanted[0] = wanted[0][3:]
    assert seen == wanted


def test_lines_that_were_finished_behind_an_unfinished_one_are_not_read_again(
    run: Run, file: Path, place: Path
) -> None:
    lines = [str(n) for n in range(60)]
    file.write_text("".join(f"{line}\n" for line in lines))
    done: list[str] = []

    async def handler(line: str) -> str:
        # Lines 5 and 20 do not end.
        await asyncio.sleep(1_000_000 if line in ("5", "20") else 1)
        return line

    async def until_cancelled() -> None:
        source = read_lines(file, position=place).pipe(adaptive_flat_map(handler, Fixed(4)))
        running = source.to(for_each(done.append)).start()
        await asyncio.sleep(10.5)
        running.cancel()
        await running.wait()

    run(until_cancelled())
    again, _ = run(read(read_lines(file, position=place)))
    assert (done[:6], "20" in done) == (["0", "1", "2", "3", "4", "6"], False)
    assert again[:2] == ["5", "20"]
    assert sorted(done + again, key=int) == lines


async def cancelled_at(seconds: float, source: Flowable[str], limit: int = 4) -> list[str]:
    """The events finished until then; those of the lines 1 to 3 take longer."""
    done: list[str] = []

    async def handler(line: str) -> str:
        await asyncio.sleep(1_000_000 if line in ("1", "2", "3") else 1)
        return line

    work = adaptive_flat_map(handler, Fixed(limit))
    running = source.pipe(work).to(for_each(done.append)).start()
    await asyncio.sleep(seconds)
    running.cancel()
    await running.wait()
    return done


def test_a_run_that_ends_early_keeps_what_an_earlier_one_had_finished(
    run: Run, file: Path, place: Path
) -> None:
    lines = [str(n) for n in range(10)]
    file.write_text("".join(f"{line}\n" for line in lines))
    done = run(cancelled_at(10.0, read_lines(file, position=place)))
    assert done == ["0", *lines[4:]]
    for _ in range(2):
        assert run(cancelled_at(0.5, read_lines(file, position=place), limit=1)) == []
    assert run(read(read_lines(file, position=place)))[0] == ["1", "2", "3"]


def test_lines_finished_at_the_end_of_a_file_are_not_taken_for_those_of_the_next_one(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("0\n1\n4\n5\n")
    assert run(cancelled_at(1.5, read_lines(file, position=place))) == ["0", "4", "5"]

    def rotate() -> None:
        file.rename(file.with_suffix(".1"))
        file.write_text("a\nb\nc\nd\ne\n")

    async def story() -> list[str]:
        done: list[str] = []
        running = read_lines(file, follow=True, position=place).to(collect(done)).start()
        await asyncio.sleep(1)
        rotate()
        await asyncio.sleep(6)
        await running.drain()
        return done

    assert run(story()) == ["1", "a", "b", "c", "d", "e"]


def test_a_line_that_begins_as_a_compressed_file_does_is_a_line(
    run: Run, file: Path, place: Path
) -> None:
    file.write_bytes(b"a\n")
    run(read(read_lines(file, position=place)))
    with file.open("ab") as more:
        more.write(b"\x1f\x8b is not gzip\n")
    values, _ = run(read(read_lines(file, position=place, decode=bytes)))
    assert values == [b"\x1f\x8b is not gzip"]


def test_the_numbers_of_lines_go_on(run: Run, file: Path, place: Path) -> None:
    file.write_text('{"n":1}\n{"n":2}\n')
    run(read(read_jsonl(file, position=place)))
    with file.open("a") as more:
        more.write('{"n":3}\nbad\n')
    with pytest.raises(BadLine, match="line 4 "):
        run(read(read_jsonl(file, position=place, on_bad_line="stop")))
    # The bad line is met again.
    with pytest.raises(BadLine, match="line 4 "):
        run(read(read_jsonl(file, position=place, on_bad_line="stop")))


def test_dropped_skipped_bad_and_blank_lines_are_passed(run: Run, file: Path, place: Path) -> None:
    def fails(value: dict[str, Any]) -> dict[str, Any]:
        if value["n"] == 2:
            raise ValueError(2)
        return value

    file.write_text('{"n":1}\n{"n":1}\n\nbad\n{"n":2}\n')
    source = read_jsonl(file, position=place).pipe(
        distinct_within(10, by="n"), adaptive_flat_map(fails, on_error="skip")
    )
    run(read(source))
    assert saved(place)["offset"] == file.stat().st_size


def test_a_bad_line_is_passed_when_its_dead_letter_is_written(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text('bad\n{"n":1}\n')

    def broken(letter: object) -> None:
        raise OSError("the disk is full")

    source = read_jsonl(file, position=place, on_bad_line=route(for_each(broken)))
    with pytest.raises(OSError, match="full"):
        run(read(source))
    assert saved(place)["offset"] == 0
    letters: list[Any] = []
    source = read_jsonl(file, position=place, on_bad_line=route(collect(letters)))
    run(read(source))
    assert ([letter.value for letter in letters], saved(place)["line"]) == (["bad"], 2)


def test_a_retry_that_waits_holds_the_position(run: Run, file: Path, place: Path) -> None:
    file.write_text("a\nb\nc\n")
    offsets: list[int] = []
    attempts = 0

    async def handler(line: str) -> str:
        nonlocal attempts
        if line == "a":
            attempts += 1
            offsets.append(saved(place)["offset"])
            if attempts < 3:
                raise ValueError(line)
        return line

    run(
        read(
            read_lines(file, position=place).pipe(
                adaptive_flat_map(handler, Fixed(2), on_error=retry(5))
            )
        )
    )
    assert offsets == [0, 0, 0]
    assert saved(place)["offset"] == 6


def rewritten_shorter(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(2)


def replaced(file: Path) -> None:
    other = file.with_suffix(".other")
    other.write_bytes(b"xx\nyy\nzz\n")
    os.replace(other, file)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def rewritten(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"cc\ndd\nee\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rewritten_shorter, "shorter than what was read"),
        (emptied, "shorter than what was read"),
        (replaced, "other content than the file that was read"),
        (rewritten, "other content than the file that was read"),
    ],
)
def test_another_or_a_shorter_file_is_refused(
    run: Run, file: Path, place: Path, change: Callable[[Path], None], said: str
) -> None:
    file.write_text("aa\nbb\n")
    run(read(read_lines(file, position=place)))
    change(file)
    for follow in (False, True):
        with pytest.raises(CannotOpen) as raised:
            run(read(read_lines(file, position=place, follow=follow)))
        assert f"about {file}: " in str(raised.value)
        assert f"{said}, and no file beside it has what was read" in str(raised.value)
        assert f"To read {file} from its start, remove {place}" in str(raised.value)


def test_a_file_that_was_rotated_while_nothing_ran_can_be_finished_under_its_new_name(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("aa\nbb\n")
    run(interrupted(read_lines(file, position=place), "bb", limit=1))
    old = file.rename(file.with_suffix(".1"))
    file.write_text("cc\n")
    assert run(read(read_lines(old, position=place)))[0] == ["bb"]
    with pytest.raises(CannotOpen, match=r"shorter.*remove .*position"):
        run(read(read_lines(file, position=place)))
    place.unlink()
    assert run(read(read_lines(file, position=place)))[0] == ["cc"]


@pytest.mark.parametrize("after", [b"", b"new\n", b"new\n" * 9], ids=["empty", "short", "long"])
def test_the_copy_of_a_file_that_was_emptied_while_nothing_ran_can_be_finished_first(
    run: Run, file: Path, place: Path, after: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("aa\nbb\n")
    run(interrupted(read_lines(file, position=place), "bb", limit=1))
    copy = file.with_suffix(".1")
    copy.write_bytes(file.read_bytes() + b"cc\n")
    file.write_bytes(after)
    assert run(read(read_lines(copy, position=place)))[0] == ["bb", "cc"]
    assert "another file than the one that was read, but the same before byte 6" in caplog.text
    assert "going on at byte 3" in caplog.text
    assert saved(place)["path"] == str(copy)
    # Its successor is not the copy, and is not taken for it.
    with pytest.raises(CannotOpen, match="renamed or copied"):
        run(read(read_lines(file, position=place, follow=True)))
    place.unlink()
    assert run(read(read_lines(file, position=place)))[0] == after.decode().split()


def test_a_copy_is_not_taken_for_the_file_where_that_is_followed_or_nothing_of_it_was_read(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("aa\n")
    copy = file.with_suffix(".1")
    copy.write_bytes(file.read_bytes())
    run(read(read_lines(file, position=place)))
    with pytest.raises(CannotOpen, match="not the file that was read"):
        run(read(read_lines(copy, position=place, follow=True)))
    place.unlink()
    file.write_text("")
    run(read(read_lines(file, position=place)))
    with pytest.raises(CannotOpen, match="not the file that was read"):
        run(read(read_lines(copy, position=place)))


@pytest.mark.parametrize("seconds", [0.15, 0.5], ids=["before", "after"])
def test_lines_of_a_file_that_was_written_anew_are_not_taken_for_those_that_were_read(
    run: Run, file: Path, place: Path, seconds: float
) -> None:
    """A run that is killed while it waits for lines of the old content must not leave a position in
    the new content, also if a line finished before it was known that the content is new."""
    file.write_text("aa\nbb\n")

    async def story() -> None:
        never = asyncio.Event()

        async def handler(line: str) -> None:
            await asyncio.sleep(seconds)
            if line == "bb":
                await never.wait()

        pipeline = read_lines(file, follow=True, position=place).pipe(adaptive_flat_map(handler))
        running = pipeline.to(collect([])).start()
        await asyncio.sleep(0.1)
        rewritten(file)
        await asyncio.sleep(1)
        running.cancel()
        await running.wait()

    run(story())
    with pytest.raises(CannotOpen, match="other content than the file that was read"):
        run(read(read_lines(file, position=place)))


def test_a_last_line_that_was_read_without_its_end_may_get_it_later(
    run: Run, file: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("aa\nbb")
    assert run(read(read_lines(file, position=place)))[0] == ["aa", "bb"]
    assert run(read(read_lines(file, position=place)))[0] == []
    with file.open("ab") as more:
        more.write(b"\r\ncc")
    assert run(read(read_lines(file, position=place)))[0] == ["cc"]
    assert caplog.messages == []


def test_a_last_line_that_was_half_written_is_read_again_when_it_has_grown(
    run: Run, file: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text('{"n":1}\n{"n":2')
    assert run(read(read_jsonl(file, position=place)))[0] == [{"n": 1}]
    (bad,) = caplog.messages
    assert "line 2 is not valid JSON" in bad
    with file.open("a") as more:
        more.write('3}\n{"n":3}\n')
    caplog.clear()
    assert run(read(read_jsonl(file, position=place)))[0] == [{"n": 23}, {"n": 3}]
    assert caplog.messages == [
        f"{file}, line 2 had no newline when it was read, and has changed since: it is read again."
    ]
    assert run(read(read_jsonl(file, position=place)))[0] == []


def test_a_last_line_that_grows_is_read_again_though_earlier_lines_are_unfinished(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("a\nb\nc")
    assert run(interrupted(read_lines(file, position=place), "a")) == []

    async def last_one_only() -> None:
        done: list[str] = []

        async def handler(line: str) -> str:
            await asyncio.sleep(1 if line == "c" else 1_000_000)
            return line

        work = adaptive_flat_map(handler, Fixed(4))
        running = read_lines(file, position=place).pipe(work).to(for_each(done.append)).start()
        await asyncio.sleep(2)
        running.cancel()
        await running.wait()
        assert done == ["c"]

    run(last_one_only())
    with file.open("a") as more:
        more.write("c\nd\n")
    assert run(read(read_lines(file, position=place)))[0] == ["a", "b", "cc", "d"]


def test_a_half_written_line_that_its_writer_removes_is_no_obstacle(
    run: Run, file: Path, place: Path
) -> None:
    """A writer that was killed within a line removes it when it is started again."""
    file.write_text('{"n":1}\n{"n":')
    run(read(read_jsonl(file, position=place)))
    file.write_text('{"n":1}\n')
    assert run(read(read_jsonl(file, position=place)))[0] == []
    with file.open("a") as more:
        more.write('{"n":2')
    run(read(read_jsonl(file, position=place)))
    # As long as before, and another one.
    file.write_text('{"n":1}\n[1, 2]\n')
    assert run(read(read_lines(file, position=place)))[0] == ["[1, 2]"]


def test_a_follower_goes_on_in_the_line_that_a_run_before_has_read_half(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("aa\nb")
    run(read(read_lines(file, position=place)))
    done: list[str] = []

    async def follow() -> None:
        source = read_lines(file, position=place, follow=True)
        running = source.to(for_each(done.append)).start()
        await asyncio.sleep(1)
        with file.open("a") as more:
            more.write("b")
        await asyncio.sleep(1)
        assert done == []
        with file.open("a") as more:
            more.write("b\ncc\n")
        await asyncio.sleep(1)
        await running.drain()

    run(follow())
    assert done == ["bbb", "cc"]
    assert run(read(read_lines(file, position=place)))[0] == []


@given(st.lists(st.text("a\r\n", min_size=1, max_size=6), min_size=1, max_size=12))
def test_whole_lines_of_a_file_that_grows_by_any_pieces_are_read_once_each(
    tmp_path_factory: Any, pieces: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    file, place = folder / "some.log", folder / "some.position"
    seen: list[bytes] = []
    whole: list[bytes] = []
    # What was read of lines that were not whole.
    halves = 0
    for piece in pieces:
        with file.open("ab") as more:
            more.write(piece.encode())
        source = read_lines(file, position=place, decode=bytes)
        before = len(seen)
        seen += run_virtual(read(source))[0]
        last = file.read_bytes().rpartition(b"\n")[2]
        halves += len(seen) > before and last != b"" and not piece.endswith("\n")
        whole = file.read_bytes().split(b"\n")
        if whole[-1] == b"":
            whole.pop()
        assert {line.removesuffix(b"\r") for line in whole} <= set(seen)
        assert seen[-1] == whole[-1].removesuffix(b"\r")
    assert len(whole) <= len(seen) <= len(whole) + halves


def test_pipes_are_refused(run: Run, file: Path, place: Path) -> None:
    reader, writer = os.pipe()
    with pytest.raises(CannotOpen, match="not a regular file"):
        run(read(read_lines(reader, position=place)))
    os.close(reader)
    os.close(writer)
    assert list(place.parent.glob(f"{place.name}*")) == []


@pytest.mark.parametrize("position", [3, True, b"some.position", ""])
def test_a_position_that_is_not_a_path_is_refused(position: Any) -> None:
    with pytest.raises(BuildError, match=r"read_lines\(position=.*path of a file"):
        read_lines("some.log", position=position)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"inode": 1}',
        BAD_RANGES,
        b"\x00" * 100,
        b"null",
    ],
)
def test_a_position_that_penstock_did_not_write_is_refused(
    run: Run, file: Path, place: Path, content: bytes
) -> None:
    file.write_text("a\n")
    place.write_bytes(content)
    with pytest.raises(CannotOpen, match=r"go on from .*start, remove .*events\.position"):
        run(read(read_lines(file, position=place)))
    assert place.read_bytes() == content


def test_a_position_that_is_damaged_anywhere_is_refused(run: Run, file: Path, place: Path) -> None:
    file.write_text("aa\nbb\n")
    run(read(read_lines(file, position=place)))
    good = place.read_bytes()
    for at in range(len(good) - 1):
        place.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CannotOpen, match="Put a whole copy"):
            run(read(read_lines(file, position=place)))
    for size in range(len(good) - 2):
        place.write_bytes(good[:size])
        with pytest.raises(CannotOpen, match="Put a whole copy"):
            run(read(read_lines(file, position=place)))
    place.write_text(text_of(("offsets", 3), "{}"))
    with pytest.raises(CannotOpen, match="written for offsets/3, not for position"):
        run(read(read_lines(file, position=place)))
    place.write_bytes(good)
    assert run(read(read_lines(file, position=place)))[0] == []


def test_a_position_from_before_positions_had_a_version_is_read(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("aa\nbb\n")
    run(read(read_lines(file, position=place)))
    newer = ("path", "read")
    old = {name: value for name, value in saved(place).items() if name not in newer}
    old |= {"offset": 3, "line": 1, "checksum": crc32(b"aa\n")}
    place.write_bytes(orjson.dumps(old))
    assert run(read(read_lines(file, position=place)))[0] == ["bb"]
    assert saved(place)["path"] == str(file)


def test_a_position_that_cannot_be_written_is_said_before_anything_is_read(
    run: Run, file: Path, tmp_path: Path
) -> None:
    file.write_text("a\n")
    with pytest.raises(CannotOpen, match="Cannot write"):
        run(read(read_lines(file, position=tmp_path / "no" / "such" / "folder")))


def test_a_followed_file_that_is_replaced_is_finished_before_the_next_is_begun(
    run: Run, file: Path, place: Path
) -> None:
    done: list[str] = []

    async def slowly(line: str) -> str:
        await asyncio.sleep(5 if line == "a2" else 0.1)
        return line

    file.write_text("a1\na2\n")
    old = file.stat().st_ino

    def rotate() -> None:
        file.rename(file.with_suffix(".1"))
        file.write_text("b1\n")

    async def story() -> list[str]:
        source = read_lines(file, follow=True, position=place).pipe(
            adaptive_flat_map(slowly, Fixed(4))
        )
        running = source.to(for_each(done.append)).start()
        await asyncio.sleep(1)
        rotate()
        await asyncio.sleep(1)
        assert (done, saved(place)["inode"], saved(place)["line"]) == (["a1"], old, 1)
        await asyncio.sleep(6)
        assert (saved(place)["inode"] != old, saved(place)["offset"]) == (True, 3)
        await running.drain()
        return done

    assert run(story()) == ["a1", "a2", "b1"]


def rotate(file: Path, content: str) -> None:
    file.rename(file.with_suffix(".1"))
    file.write_text(content)


def test_a_file_that_waits_for_lines_of_the_earlier_one_is_said_once_and_measured(
    run: Run, file: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    async def slowly(line: str) -> str:
        await asyncio.sleep(60 if line.startswith("slow") else 0.1)
        return line

    file.write_text("quick\nslow 1\nquick\nslow 2\n")

    async def story() -> list[tuple[int, float]]:
        source = read_lines(file, follow=True, position=place).pipe(
            adaptive_flat_map(slowly, Fixed(4))
        )
        running = source.to(for_each(done.append)).start()
        seen: list[tuple[int, float]] = []

        async def look(seconds: float) -> None:
            await asyncio.sleep(seconds)
            said = sum(" waits until " in record.getMessage() for record in caplog.records)
            seen.append((said, running.stage_statistics(1)["waited"]))

        await look(10)
        rotate(file, "next\n")
        await look(3)
        await look(8)
        await look(30)
        await look(14)
        await running.drain()
        await look(0)
        return seen

    before, begun, said, still, over, drained = run(story())
    assert (before, begun[0], said[0], still[0], over[0]) == ((0, 0.0), 0, 1, 1, 1)
    assert still[1] == pytest.approx(said[1] + 30)
    assert still[1] < over[1] == drained[1] < 60
    assert sorted(done) == ["next", "quick", "quick", "slow 1", "slow 2"]
    assert (
        f"{file} waits until the file that was read before it is finished, because a position is "
        "that of one file: 2 lines of that file unfinished, the first is line 2." in caplog.text
    )


def test_a_file_that_need_not_wait_long_is_not_said_to_wait(
    run: Run, file: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def slowly(line: str) -> str:
        await asyncio.sleep(9)
        return line

    file.write_text("one\n")

    async def story() -> dict[str, Any]:
        source = read_lines(file, follow=True, position=place).pipe(
            adaptive_flat_map(slowly, Fixed(4))
        )
        running = source.to(collect([])).start()
        await asyncio.sleep(1)
        rotate(file, "two\n")
        await asyncio.sleep(30)
        await running.drain()
        return running.stage_statistics(1)

    numbers = run(story())
    assert numbers["finished"] == 2
    assert 0 < numbers["waited"] < 5
    assert " waits until " not in caplog.text


def test_a_drain_ends_the_wait_for_an_earlier_file(
    run: Run, file: Path, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("one\n")

    async def story() -> float:
        gate = asyncio.Event()

        async def slowly(line: str) -> str:
            await gate.wait()
            return line

        source = read_lines(file, follow=True, position=place).pipe(
            adaptive_flat_map(slowly, Fixed(4))
        )
        running = source.to(collect([])).start()
        await asyncio.sleep(1)
        rotate(file, "two\n")
        await asyncio.sleep(8)
        draining = asyncio.ensure_future(running.drain())
        await asyncio.sleep(30)
        gate.set()
        await draining
        waited: float = running.stage_statistics(1)["waited"]
        return waited

    assert 0 < run(story()) < 5
    assert " waits until " not in caplog.text


def test_a_second_running_with_the_same_position_is_refused(
    run: Run, file: Path, place: Path
) -> None:
    file.write_text("a\n")

    async def story() -> None:
        first = read_lines(file, follow=True, position=place).to(collect([])).start()
        await asyncio.sleep(1)
        with pytest.raises(CannotOpen, match="another run keeps its position"):
            await read(read_lines(file, position=place))
        await first.drain()
        await read(read_lines(file, position=place))

    run(story())


def test_results_of_earlier_runs_are_appended_to_and_never_emptied(
    run: Run, file: Path, place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    file.write_text("a\n")
    run(read_lines(file, position=place).to(write_jsonl(out, append=True)).run())
    with file.open("a") as more:
        more.write("b\n")
    with pytest.raises(BuildError, match="append=True"):
        read_lines(file, position=place).to(write_jsonl(out)).start()
    run(read_lines(file, position=place).to(write_jsonl(out, append=True)).run())
    assert out.read_text() == '"a"\n"b"\n'


def test_outputs_that_have_nothing_to_be_emptied_are_accepted(
    run: Run, file: Path, place: Path, tmp_path: Path
) -> None:
    file.write_text("a\n")
    run(read_lines(file, position=place).to(write_jsonl("/dev/null")).run())
    assert saved(place)["line"] == 1
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, "/dev/null", "/dev/full"):
        read_lines(file, position=place).to(write_jsonl(path)).check_files()
    for path in (tmp_path / "new.jsonl", tmp_path / "events.log.1"):
        with pytest.raises(BuildError, match="append=True"):
            read_lines(file, position=place).to(write_jsonl(path)).check_files()


def test_the_offset_is_shown(run: Run, file: Path, place: Path) -> None:
    file.write_text("a\nb\n")
    pipeline = read_lines(file, position=place).to(collect([]))
    assert f"position in {place}" in pipeline.describe()[0].detail
    _, report = run(read(read_lines(file, position=place)))
    assert report.statistics["stages"][0]["offset"] == 4
