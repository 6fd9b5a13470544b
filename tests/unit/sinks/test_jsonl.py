from __future__ import annotations

import asyncio
import bz2
import errno
import fcntl
import lzma
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import collect, from_async_iterable, read_jsonl, write_jsonl
from penstock.streams.base.errors import BuildError, CannotOpen, MissingExtra
from penstock.streams.failures.policy import DeadLetter, route
from penstock.streams.io.compression import compressor
from penstock.streams.io.paths import output_path
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.running import Report
from penstock.streams.testing import (
    CountedSource,
    ManualPublisher,
    VirtualTimeLoop,
    run_virtual,
)
from penstock.streams.testing.plugin import Run

Pipe = tuple[int, int]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


pytestmark = pytest.mark.usefixtures("no_open_files")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that holds 4,096 bytes, as small as one can be."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    if sys.platform == "linux":
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):  # A test may have closed it.
            os.close(descriptor)


async def turns(n: int = 20) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def available(reader: int) -> bytes:
    """What is in a pipe."""
    found = bytearray()
    while True:
        try:
            data = os.read(reader, 1 << 16)
        except BlockingIOError:
            return bytes(found)
        if not data:
            return bytes(found)
        found += data


def lines(n: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % i for i in range(n))


def numbers(n: int | None = None) -> CountedSource[dict[str, int]]:
    return CountedSource({"n": i} for i in (count() if n is None else range(n)))


def totals(report: Report) -> tuple[int, int, int]:
    numbers = report.statistics
    return numbers["in"], numbers["finished"], numbers["returned"]


# Files.


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2", ".xz"])
@settings(max_examples=15, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), max_size=6))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, values: list[dict[str, Any]]
) -> None:
    file = tmp_path_factory.mktemp("round") / f"events.jsonl{suffix}"
    again: list[dict[str, Any]] = []

    async def story() -> None:
        await Flowable.from_iterable(values).to(write_jsonl(file)).run()
        await read_jsonl(file).to(collect(again)).run()

    run_virtual(story())
    assert again == values


def test_a_file_is_emptied_first_and_ends_with_a_newline(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("what was here before\n" * 9)
    report = run(numbers(2).to(write_jsonl(file)).run())
    assert file.read_bytes() == lines(2)
    assert totals(report) == (2, 2, 0)


def test_writes_are_batched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = os.write, list[int]()

    def counted(descriptor: int, data: Any) -> int:
        written.append(len(data))
        return write(descriptor, data)

    file = tmp_path / "out.jsonl"
    monkeypatch.setattr(os, "write", counted)
    run(numbers(10_000).to(write_jsonl(file)).run())
    monkeypatch.undo()
    assert file.read_bytes() == lines(10_000)
    assert len([size for size in written if size > 10]) <= 40


def test_every_event_is_in_the_compressed_file_before_it_is_finished(
    run: Run, tmp_path: Path
) -> None:
    import zlib

    file = tmp_path / "out.jsonl.gz"

    async def story() -> None:
        async with numbers(3).to(write_jsonl(file)).start() as running:
            while running.statistics()["finished"] < 3:
                await turns(1)
            content = file.read_bytes()
        assert zlib.decompressobj(wbits=31).decompress(content) == lines(3)

    run(story())


COMPRESSED = pytest.mark.parametrize("suffix", [".gz", ".zst"])
WHOLE = pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])


@COMPRESSED
def test_nothing_is_appended_to_a_compressed_file_whose_cut_off_member_has_finished_lines(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    run(numbers(3).to(write_jsonl(file)).run())
    cut = file.read_bytes()[:-4]
    file.write_bytes(cut)
    source = numbers(3)
    with pytest.raises(CannotOpen, match=rf"Cannot append: .*out.jsonl{suffix} is a truncated"):
        run(source.to(write_jsonl(file, append=True)).run())
    assert (file.read_bytes(), source.emitted) == (cut, 0)


@WHOLE
def test_a_batch_that_was_cut_off_in_a_compressed_file_is_removed_wherever_it_was_cut(
    run: Run, tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    run(numbers(2).to(write_jsonl(file, append=True)).run())
    whole = file.stat().st_size
    run(numbers(60).to(write_jsonl(file, append=True)).run())
    content = file.read_bytes()
    for end in range(whole + 1, len(content)):
        file.write_bytes(content[:end])
        caplog.clear()
        run(numbers(0).to(write_jsonl(file, append=True)).run())
        assert file.read_bytes() == content[:whole]
        assert f"ended within a batch, as after a full disk or a kill: its last {end - whole} " in (
            caplog.text
        )
    for end in range(1, whole):
        file.write_bytes(content[:end])
        run(numbers(0).to(write_jsonl(file, append=True)).run())
        assert file.read_bytes() == b""


@WHOLE
def test_a_compressed_file_that_others_have_made_and_cut_off_is_left_as_it_is(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    (tmp_path / "lines").write_bytes(lines(1000))
    if suffix == ".gz":
        subprocess.run(["gzip", "-k", tmp_path / "lines"], check=True)
        content = (tmp_path / "lines.gz").read_bytes()
    elif suffix == ".bz2":
        content = bz2.compress(lines(1000))
    elif suffix == ".xz":
        content = lzma.compress(lines(1000))
    else:
        packed = compressor("x.zst")
        content = bytes(packed.block(lines(1000)) + packed.end())
    run(numbers(1).to(write_jsonl(file, append=True)).run())
    before = file.read_bytes()
    for damaged in (content[:-20], content[:200] + b"damaged" + content[207:]):
        file.write_bytes(before + damaged)
        with pytest.raises(CannotOpen, match="Cannot append"):
            run(numbers(1).to(write_jsonl(file, append=True)).run())
        assert file.read_bytes() == before + damaged


@WHOLE
def test_what_another_run_is_writing_into_a_compressed_file_is_not_removed(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"

    run(numbers(1).to(write_jsonl(file, append=True)).run())
    whole = file.read_bytes()

    def write_half() -> None:
        with file.open("ab") as half:
            half.write(whole[:-5])

    async def never() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async def story() -> None:
        first = from_async_iterable(never()).to(write_jsonl(file, append=True)).start()
        await turns()
        write_half()
        await numbers(0).to(write_jsonl(file, append=True)).run()
        first.cancel()
        await first.wait()

    run(story())
    assert file.read_bytes() == whole + whole[:-5]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst", ".bz2", ".xz"])
def test_what_is_appended_to_a_file_is_read_after_what_was_there(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    again: list[dict[str, Any]] = []
    for n in (0, 2, 3):
        run(numbers(n).to(write_jsonl(file, append=True)).run())
    run(read_jsonl(file).to(collect(again)).run())
    assert again == [{"n": n} for n in (0, 1, 0, 1, 2)]


@pytest.mark.parametrize("append", [False, True])
def test_a_file_that_is_truncated_while_it_is_written_goes_on_at_its_beginning(
    run: Run, tmp_path: Path, append: bool
) -> None:
    file = tmp_path / "out.jsonl"

    async def values() -> AsyncIterator[dict[str, int]]:
        yield {"n": 0}
        await asyncio.sleep(1)
        # As a rotation by copytruncate does.
        os.truncate(file, 0)
        yield {"n": 1}

    run(from_async_iterable(values()).to(write_jsonl(file, append=append)).run())
    assert file.read_bytes() == b'{"n":1}\n'


@WHOLE
def test_a_compressed_file_is_continued_after_a_kill_of_the_run_that_appended_to_it(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    again: list[dict[str, Any]] = []

    async def killed() -> bytes:
        source, sink = ManualPublisher[dict[str, int]](), write_jsonl(file, append=True)
        async with source.to(sink).start():
            await turns(1)
            for n in range(2):
                source.send({"n": n})
                await turns(2)
            left = file.read_bytes()
            source.complete()
        return left

    left = run(killed())
    file.write_bytes(left)
    run(numbers(2).to(write_jsonl(file, append=True)).run())
    run(read_jsonl(file).to(collect(again)).run())
    assert again == [{"n": n} for n in (0, 1, 0, 1)]


@WHOLE
def test_two_runs_may_append_to_one_compressed_file_at_the_same_time(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    again: list[dict[str, Any]] = []

    async def story() -> None:
        source = ManualPublisher[dict[str, int]]()
        async with source.to(write_jsonl(file, append=True)).start():
            await turns(1)
            for n in (7, 8):
                source.send({"n": n})
                await turns(2)
                await numbers(2).to(write_jsonl(file, append=True)).run()
            source.complete()

    run(story())
    run(read_jsonl(file).to(collect(again)).run())
    assert again == [{"n": n} for n in (7, 0, 1, 8, 0, 1)]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (b'{"n":', b""),
        (b'{"n":7}\n{"n":"' + b"x" * 200_000, b'{"n":7}\n'),
        (b'{"n":7}\n1', b'{"n":7}\n'),
        (b'{"n":7}', b'{"n":7}\n'),
        (b'"text"', b'"text"\n'),
        (b"a note of somebody", b"a note of somebody\n"),
        (b'{"n":7}\n', b'{"n":7}\n'),
        (b"", b""),
    ],
    ids=["first", "long", "number", "object", "text", "foreign", "whole", "empty"],
)
@pytest.mark.parametrize("opened", ["by its name", "by the command", "by the shell"])
def test_what_is_appended_follows_the_last_whole_line(
    run: Run,
    tmp_path: Path,
    before: bytes,
    kept: bytes,
    opened: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(before)
    sink: Any = write_jsonl(file, append=True)
    token = output_path.set(str(file) if opened == "by the command" else output_path.get())
    if opened == "by the command":
        sink = write_jsonl(append=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    if opened == "by the shell":
        sink = write_jsonl(descriptor)
    try:
        run(numbers(1).to(sink).run())
    finally:
        output_path.reset(token)
        os.close(descriptor)
    assert file.read_bytes() == kept + b'{"n":0}\n'
    assert ("bytes were removed" in caplog.text) == (len(kept) < len(before))


def test_a_line_that_another_run_may_be_writing_is_not_removed(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"

    async def never() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    def write_half() -> None:
        with file.open("ab") as half:
            half.write(b'{"half')

    async def story() -> None:
        first = from_async_iterable(never()).to(write_jsonl(file, append=True)).start()
        await turns()
        write_half()
        await numbers(1).to(write_jsonl(file, append=True)).run()
        first.cancel()
        await first.wait()

    run(story())
    assert file.read_bytes() == b'{"half\n{"n":0}\n'


class Disk:
    """Takes so many bytes of each file, then raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int, code: int) -> None:
        self._write, self._room, self._code = os.write, room, code
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, data: Any) -> int:
        if self._room == 0:
            raise OSError(self._code, os.strerror(self._code))
        written = self._write(descriptor, bytes(data)[: self._room])
        self._room -= written
        return written


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_disk_that_is_full_within_a_line_leaves_whole_lines_and_counts_them(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, code: int
) -> None:
    file = tmp_path / f"out.jsonl{suffix}"
    run(numbers(2).to(write_jsonl(file, append=True)).run())
    before = file.stat().st_size
    reports: list[Report] = []

    async def story() -> None:
        running = numbers(20).to(write_jsonl(file, append=True)).start()
        with pytest.raises(OSError, match=r"out\.jsonl") as raised:
            await running.wait()
        assert raised.value.errno == code
        reports.append(running.report())

    with monkeypatch.context() as patch:
        Disk(patch, 20, code)
        run(story())
    again: list[Any] = []
    run(read_jsonl(file).to(collect(again)).run())
    finished = 0 if suffix else 2
    assert again == [{"n": n} for n in (0, 1, *range(finished))]
    assert totals(reports[0]) == (20, finished, 20 - finished)
    assert reports[0].statistics["stages"][-1]["bytes"] == file.stat().st_size - before
    run(numbers(1).to(write_jsonl(file, append=True)).run())
    run(read_jsonl(file).to(collect(again)).run())


def test_a_line_that_was_cut_off_is_not_removed_from_behind_one_of_another_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.jsonl"

    class Shared(Disk):
        def write(self, descriptor: int, data: Any) -> int:
            if self._room == 0:
                with file.open("ab") as other:
                    other.write(b"of another\n")
            return super().write(descriptor, data)

    with monkeypatch.context() as patch:
        Shared(patch, 3, errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            run(numbers(2).to(write_jsonl(file)).run())
    assert file.read_bytes() == b'{"nof another\n'


def test_a_full_disk_is_an_error_that_names_the_output_and_gives_back_the_rest(run: Run) -> None:
    full = Path("/dev/full")
    report: list[Report] = []

    async def story() -> None:
        running = numbers(100).to(write_jsonl(full)).start()
        try:
            await running.wait()
        finally:
            report.append(running.report())

    with pytest.raises(OSError, match="/dev/full") as caught:
        run(story())
    assert caught.value.errno == errno.ENOSPC
    assert totals(report[0]) == (100, 0, 100)
    assert report[0].exit_status == 1


def test_a_folder_or_a_path_that_is_not_there_is_refused(run: Run, tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        await numbers(1).to(write_jsonl(path)).run()

    with pytest.raises(CannotOpen, match="directory"):
        run(story(tmp_path))
    with pytest.raises(CannotOpen, match="No such file"):
        run(story(tmp_path / "missing" / "out.jsonl"))


def test_a_fifo_that_nobody_reads_is_refused_instead_of_waited_for(
    run: Run, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def story() -> None:
        await numbers(1).to(write_jsonl(fifo)).run()

    with pytest.raises(CannotOpen, match="nobody reads"):
        run(story())


# Pipes.


def test_a_line_is_written_as_soon_as_nothing_more_comes(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe
    seen: list[tuple[float, bytes]] = []

    async def values() -> Any:
        for n in range(3):
            await asyncio.sleep(1)
            yield {"n": n}
            await turns()
            seen.append((asyncio.get_running_loop().time(), available(reader)))

    run(Flowable.from_async_iterable(values).to(write_jsonl(writer)).run())
    assert seen == [(1.0, b'{"n":0}\n'), (2.0, b'{"n":1}\n'), (3.0, b'{"n":2}\n')]


def test_a_reader_who_does_not_read_stops_the_pipeline(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe
    source = numbers()

    async def story() -> Report:
        async with source.to(write_jsonl(writer)).start() as running:
            await turns(200)
            stuck = source.emitted
            await turns(200)
            assert source.emitted == stuck <= 1024 + 4096 // 8
            assert running.statistics()["finished"] == available(reader).count(b"\n")
            await turns(200)
            assert source.emitted > stuck
            running.cancel()
        return running.report()

    came_in, finished, returned = totals(run(story()))
    assert came_in == finished + returned


def test_a_slow_reader_gets_every_line(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe
    got = bytearray()

    async def story() -> None:
        async with numbers(3000).to(write_jsonl(writer)).start() as running:
            while running.statistics()["finished"] < 3000:
                got.extend(available(reader)[:])
                await turns(3)
        got.extend(available(reader))

    run(story())
    assert bytes(got) == lines(3000)


def test_a_shared_output_stays_blocking(run: Run, pipe: Pipe) -> None:
    run(numbers(2).to(write_jsonl(pipe[1])).run())
    assert os.get_blocking(pipe[1])


def test_a_reader_who_goes_away_ends_the_pipeline_without_a_failure(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe

    async def story() -> tuple[Report, bytes]:
        async with numbers().to(write_jsonl(writer)).start() as running:
            await turns()
            head = available(reader)
            await turns()
            head += available(reader)
            os.close(reader)
        return running.report(), head

    report, head = run(story())
    assert (report.outcome, report.exit_status) == ("output closed", 0)
    came_in, finished, returned = totals(report)
    assert came_in == finished + returned
    assert finished >= head.count(b"\n") > 0


def test_lines_up_to_the_pipes_unit_are_never_cut_by_a_cancel(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe

    async def story() -> bytes:
        async with numbers().to(write_jsonl(writer)).start() as running:
            await turns()
            got = available(reader)
            await turns()
            running.cancel()
        return got + available(reader)

    got = run(story())
    assert got
    assert got == lines(got.count(b"\n"))


def test_on_cancel_a_long_line_that_is_partly_out_is_finished(run: Run, pipe: Pipe) -> None:
    reader, writer = pipe
    long = {"text": "x" * 20_000}
    got = bytearray()

    async def story() -> Report:
        running = Flowable.from_iterable([long] * 9).to(write_jsonl(writer)).start()
        await turns()
        got.extend(available(reader))
        assert 0 < len(got) < 20_000
        running.cancel()
        for _ in range(100):
            got.extend(available(reader))
            await turns(1)
        try:
            await running.wait()
        finally:
            got.extend(available(reader))
        return running.report()

    report = run(story())
    assert bytes(got) == orjson.dumps(long) + b"\n"
    assert totals(report) == (9, 0, 9)


def test_a_cancel_does_not_wait_for_ever_for_a_reader(
    run: Run, pipe: Pipe, virtual_loop: VirtualTimeLoop
) -> None:
    async def story() -> None:
        values = Flowable.from_iterable([{"text": "x" * 20_000}])
        async with values.to(write_jsonl(pipe[1])).start() as running:
            await turns()
            running.cancel()

    run(story())
    assert virtual_loop.time() == 1.0


def test_a_loop_that_cannot_watch_pipes_writes_through_a_thread(
    run: Run, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(VirtualTimeLoop, "add_reader", refuse)
    reader, writer = pipe
    got = bytearray()

    async def story() -> None:
        async with numbers(2000).to(write_jsonl(writer)).start() as running:
            while running.statistics()["finished"] < 2000:
                got.extend(available(reader))
                await turns(1)
        got.extend(available(reader))

    run(story())
    assert bytes(got) == lines(2000)


# Values that cannot be encoded.

STRANGE: list[Any] = [{"n": 0}, {"n": object()}, {"n": 2}]


def strange() -> CountedSource[Any]:
    return CountedSource(STRANGE)


def test_a_value_that_cannot_be_encoded_stops_the_pipeline_and_is_named(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    with pytest.raises(TypeError, match="not JSON serializable") as caught:
        run(strange().to(write_jsonl(file)).run())
    (note,) = caught.value.__notes__
    assert "write_jsonl" in note
    assert "<object object" in note
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert file.read_bytes().startswith(b'{"n":0}\n')


class Order(msgspec.Struct):
    number: Any


class Model(pydantic.BaseModel):
    number: int


@dataclass
class Data:
    number: int


def test_records_are_written_by_their_fields(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    orders = [Order(0), Model(number=1), Data(2), Order(object()), Order([Data(4)])]
    report = run(CountedSource(orders).to(write_jsonl(file, on_error="skip")).run())
    numbers = [0, 1, 2, [{"number": 4}]]
    assert [*map(orjson.loads, file.read_bytes().splitlines())] == [{"number": n} for n in numbers]
    assert report.statistics["failed"] == 1


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_an_integer_beyond_64_bits_cannot_be_encoded(run: Run, tmp_path: Path, number: int) -> None:
    source = CountedSource([{"n": number}])
    with pytest.raises(TypeError, match="Integer exceeds 64-bit range"):
        run(source.to(write_jsonl(tmp_path / "out.jsonl")).run())


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_fails_its_event_alone(
    run: Run, tmp_path: Path, number: float
) -> None:
    file = tmp_path / "out.jsonl"
    values: list[Any] = [{"n": None}, {"n": [number]}, {"n": 1.5}]
    report = run(CountedSource(values).to(write_jsonl(file, on_error="skip")).run())
    assert file.read_bytes() == b'{"n":null}\n{"n":1.5}\n'
    assert report.statistics["failed"] == 1


def test_skip_goes_on_after_a_value_that_cannot_be_encoded(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    report = run(strange().to(write_jsonl(file, on_error="skip")).run())
    assert file.read_bytes() == b'{"n":0}\n{"n":2}\n'
    assert (report.statistics["failed"], report.exit_status) == (1, 3)


def test_route_sends_a_value_that_cannot_be_encoded_to_the_dead_letters(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    letters: list[DeadLetter] = []
    run(strange().to(write_jsonl(file, on_error=route(collect(letters)))).run())
    assert file.read_bytes() == b'{"n":0}\n{"n":2}\n'
    assert [letter.value for letter in letters] == [STRANGE[1]]


def test_more_refused_values_than_the_window_do_not_stall_the_pipeline(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    values = [{"n": object()}] * 3000 + [{"n": 1}]
    run(CountedSource(values).to(write_jsonl(file, on_error="skip")).run())
    assert file.read_bytes() == b'{"n":1}\n'


# Together.


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_at_any_interruption_every_event_is_accounted_for_and_no_line_is_cut(
    data: st.DataObject,
) -> None:
    size = data.draw(st.sampled_from([1, 100, 3000]))
    act: Callable[[Any], Any] = data.draw(
        st.sampled_from([lambda running: running.cancel(), lambda r: r.begin_drain(5.0)])
    )
    before = data.draw(st.integers(0, 30))
    reads = data.draw(st.booleans())

    async def story() -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        got = bytearray()
        source = CountedSource({"text": "y" * size, "n": n} for n in count())
        running = source.to(write_jsonl(writer)).start()
        for _ in range(before):
            await turns(1)
            if reads:
                got.extend(available(reader))
        act(running)
        for _ in range(3000):
            got.extend(available(reader))
            await turns(1)
            if running.statistics()["state"] == "closed":
                break
        report = running.report()
        got.extend(available(reader))
        assert report.statistics["state"] == "closed"
        came_in, finished, returned = totals(report)
        assert came_in == finished + returned
        assert not got or got.endswith(b"\n")
        assert [orjson.loads(line)["n"] for line in got.splitlines()] == list(range(finished))
        os.close(reader)
        os.close(writer)

    run_virtual(story())


def test_wrong_options_are_refused_when_the_sink_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="on_error"):
        write_jsonl("out.jsonl", on_error="ignore")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(MissingExtra, match=r"\[zstd\]"):
        write_jsonl("out.jsonl.zst")
