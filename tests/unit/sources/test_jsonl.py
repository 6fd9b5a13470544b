from __future__ import annotations

import asyncio
import bz2
import gzip
import logging
import lzma
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any

import orjson
import pytest
from backports import zstd as zstd_package
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    collect,
    dead_letters,
    for_each,
    ops,
    read_jsonl,
    read_lines,
    write_jsonl,
)
from penstock.streams.base.errors import (
    BadLine,
    BuildError,
    CannotOpen,
    InputCorrupt,
    LineTooLong,
    MissingExtra,
)
from penstock.streams.failures.policy import DeadLetter, route
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.running import Report
from penstock.streams.runtime.context import Run as SharedRun
from penstock.streams.testing import Probe, VirtualTimeLoop, run_virtual
from penstock.streams.testing.plugin import Run

Lines = Flowable[dict[str, Any]]


pytestmark = pytest.mark.usefixtures("no_open_files")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


async def read(source: Lines) -> tuple[list[dict[str, Any]], Report]:
    values: list[dict[str, Any]] = []
    report = await source.to(collect(values)).run()
    return values, report


async def until(true: Callable[[], bool]) -> None:
    for _ in range(100):
        for _ in range(100):
            if true():
                return
            await asyncio.sleep(0)
        # A thread that reads is not let in by a loop that is never idle.
        sleep(0.01)  # noqa: ASYNC251
    raise AssertionError("it did not become true")


def source_numbers(report: Report) -> dict[str, Any]:
    return dict(report.statistics["stages"][0])


# Lines.


@pytest.mark.parametrize(
    "text",
    [
        b'{"n":1}\n{"n":2}\n',
        b'{"n":1}\r\n{"n":2}\r\n',
        b'{"n":1}\n{"n":2}',
        b'\xef\xbb\xbf{"n":1}\n{"n":2}\n',
        b'\n  \n{"n":1}\n\r\n{"n":2}\n\t',
    ],
    ids=["newlines", "carriage returns", "no newline at the end", "byte-order mark", "blank lines"],
)
def test_each_line_gives_its_object(run: Run, file: Path, text: bytes) -> None:
    file.write_bytes(text)
    values, report = run(read(read_jsonl(file)))
    assert values == [{"n": 1}, {"n": 2}]
    assert report.exit_status == 0


def test_an_integer_beyond_64_bits_is_read_as_a_float(run: Run, file: Path) -> None:
    largest, smallest = 2**64 - 1, -(2**63)
    numbers = [largest, smallest, largest + 1, smallest - 1]
    file.write_text("".join(f'{{"n":{number}}}\n' for number in numbers))
    values, _ = run(read(read_jsonl(file)))
    assert [repr(value["n"]) for value in values] == [
        *map(repr, numbers[:2]),
        *map(repr, map(float, numbers[2:])),
    ]


def test_blank_lines_are_counted_and_numbered(run: Run, file: Path) -> None:
    file.write_bytes(b'\n{"n":1}\n \n')
    tokens: list[Any] = []
    probe = Probe[Any](100, on_event=lambda _, event: tokens.append(event.token))

    async def story() -> None:
        read_jsonl(file).connect(probe)

    run(story())
    assert tokens == [2]
    _, report = run(read(read_jsonl(file)))
    assert source_numbers(report)["blank_lines"] == 2


@pytest.mark.parametrize("text", [b"", b"\xef\xbb\xbf", b"\n\n"])
def test_an_input_without_lines_gives_nothing_and_is_not_a_failure(
    run: Run, file: Path, text: bytes
) -> None:
    file.write_bytes(text)
    values, report = run(read(read_jsonl(file)))
    assert (values, report.exit_status) == ([], 0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.integers(-99, 99), max_size=2), max_size=8),
    st.lists(st.integers(0, 200), max_size=6),
    st.booleans(),
)
def test_however_a_pipe_cuts_the_bytes_the_events_are_the_same(
    objects: list[dict[str, int]], cuts: list[int], newline_at_the_end: bool
) -> None:
    text = b"\n".join(map(orjson.dumps, objects)) + b"\n" * newline_at_the_end
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    async def story() -> None:
        reader, writer = os.pipe()
        try:
            values: list[dict[str, Any]] = []
            async with read_jsonl(reader).to(collect(values)).start():
                for start, end in pairwise(edges):
                    os.write(writer, text[start:end])
                    for _ in range(4):
                        await asyncio.sleep(0)
                os.close(writer)
            assert values == objects
        finally:
            os.close(reader)

    run_virtual(story())


# Demand.


def test_demand_is_honoured_exactly_and_bad_lines_cost_none(run: Run, file: Path) -> None:
    file.write_text("".join(f'{{"n":{n}}}\nbad\n' for n in range(600)))
    probe = Probe[Any](2)

    async def story() -> None:
        read_jsonl(file).connect(probe)
        assert [value["n"] for value in probe.values] == [0, 1]
        probe.request(500)
        assert len(probe.values) == 502
        probe.cancel()

    run(story())


def test_nothing_is_opened_before_the_first_request(run: Run, file: Path) -> None:
    probe = Probe[Any]()

    async def connect() -> None:
        read_jsonl(file).connect(probe)

    async def request() -> None:
        probe.request(1)
        probe.cancel()

    run(connect())
    file.write_text('{"n":1}\n')
    run(request())
    assert probe.values == [{"n": 1}]


def test_a_pipe_is_not_read_while_nobody_asks(run: Run) -> None:
    async def story() -> None:
        reader, writer = os.pipe()
        probe = Probe[Any](1)
        read_jsonl(reader).connect(probe)
        os.write(writer, b'{"n":1}\n')
        await until(lambda: bool(probe.values))
        os.write(writer, b'{"n":2}\n')
        for _ in range(5):
            await asyncio.sleep(0)
        probe.cancel()
        assert os.read(reader, 100) == b'{"n":2}\n'
        os.close(reader)
        os.close(writer)

    run(story())


def test_the_loop_gets_turns_while_a_large_file_is_read(run: Run, file: Path) -> None:
    file.write_bytes(b'{"n":1}\n' * 100_000)
    turns = 0

    async def story() -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        # Virtual time passes with the events, as real time would.
        probe = Probe[Any](2**60, on_event=lambda *_: loop.advance(0.0001))
        read_jsonl(file).connect(probe)
        while not probe.completed:
            turns += 1
            await asyncio.sleep(0)

    run(story())
    assert turns > 100


def test_the_loop_gets_turns_while_a_line_of_many_reads_is_read(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_bytes(b'{"n":1}' + b" " * 10_000)
    monkeypatch.setattr("penstock.streams.io.reader.CHUNK", 16)
    turns = 0

    async def story() -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        read_file = os.read

        def slowly(descriptor: int, size: int) -> bytes:
            loop.advance(0.001)
            return read_file(descriptor, size)

        monkeypatch.setattr(os, "read", slowly)
        probe = Probe[Any](9)
        read_jsonl(file).connect(probe)
        while not probe.ended:
            turns += 1
            await asyncio.sleep(0)
        assert probe.values == [{"n": 1}]

    run(story())
    assert turns > 100


# Bad lines.

BAD = [
    b'{"broken":',
    b"[1]",
    b"null",
    b"17",
    b'"text"',
    b"true",
    b'{"latin-1":"\xe9"}',
    '{"n":1}'.encode("utf-16"),
    b'{"nul":"\x00"}',
    b"\x00" * 10,
    b"NaN",
    b'{"n":1}{"n":2}',
]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_reported_with_its_number_and_counted(
    run: Run, file: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b'{"n":1}\n' + line + b'\n{"n":3}\n')
    with caplog.at_level(logging.WARNING, "penstock"):
        values, report = run(read(read_jsonl(file)))
    assert values == [{"n": 1}, {"n": 3}]
    assert source_numbers(report)["bad_lines"] == report.statistics["bad_lines"] == 1
    assert (report.statistics["in"], report.exit_status) == (2, 3)
    assert f"{file}, line 2 " in caplog.text


@pytest.mark.parametrize("is_users", [False, True])
def test_a_lack_of_memory_stops_the_pipeline_and_makes_no_line_a_bad_one(
    run: Run,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_users: bool,
) -> None:
    loads = orjson.loads

    def without_memory(line: bytes) -> Any:
        if b"2" not in line:
            return loads(line)
        if is_users:
            raise MemoryError
        # As orjson says it.
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    if not is_users:
        monkeypatch.setattr("penstock.streams.io.body.loads", without_memory)
        monkeypatch.setattr("penstock.sources.jsonl.loads", without_memory)
    file.write_bytes(b'{"n":1}\n{"n":2}\n{"n":3}\n')
    source = read_jsonl(file, decode=without_memory) if is_users else read_jsonl(file)
    with pytest.raises(MemoryError):
        run(read(source))
    assert caplog.text == ""


def test_only_the_first_bad_lines_are_reported_but_all_are_counted(
    run: Run, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b"bad\n" * 1000)
    with caplog.at_level(logging.WARNING, "penstock"):
        _, report = run(read(read_jsonl(file)))
    assert report.statistics["bad_lines"] == 1000
    assert "line 10 " in caplog.text
    assert "line 11 " not in caplog.text
    assert caplog.records[-1].getMessage().startswith("there are more bad lines")
    assert len(caplog.records) == 11


def test_bytes_that_are_not_text_are_escaped_once(
    run: Run, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(b"\xff\xfe broken\n")
    with caplog.at_level(logging.WARNING, "penstock"):
        run(read(read_jsonl(file)))
    assert r": b'\xff\xfe broken'" in caplog.text


def test_stop_ends_the_stream_at_a_bad_line_after_the_events_before_it(
    run: Run, file: Path
) -> None:
    file.write_bytes(b'{"n":1}\nbad\n{"n":3}\n')
    values: list[Any] = []
    with pytest.raises(BadLine, match="line 2"):
        run(read_jsonl(file, on_bad_line="stop").to(collect(values)).run())
    assert values == [{"n": 1}]


def test_route_sends_the_raw_line_to_the_dead_letters(run: Run, file: Path) -> None:
    file.write_bytes(b'{"n":1}\nb\xe4d\r\n{"n":3}\n')
    letters: list[DeadLetter] = []
    values, report = run(read(read_jsonl(file, on_bad_line=route(collect(letters)))))
    assert values == [{"n": 1}, {"n": 3}]
    (letter,) = letters
    assert (letter.value, letter.token, letter.attempts) == ("b\\xe4d", 2, 1)
    assert isinstance(letter.error, BadLine)
    assert report.exit_status == 3


def test_a_line_of_a_gigabyte_is_skipped_without_being_held(run: Run) -> None:
    # 1 GB in a pipe would take seconds: 64 MB against a bound of 1 MB show the same.
    block = b"x" * (1 << 16)
    letters: list[DeadLetter] = []

    def write(descriptor: int) -> None:
        os.write(descriptor, b'{"n":1}\n')
        for _ in range(1 << 10):
            os.write(descriptor, block)
        os.write(descriptor, b'\n{"n":3}\n')
        os.close(descriptor)

    async def story() -> list[dict[str, Any]]:
        reader, writer = os.pipe()
        thread = threading.Thread(target=write, args=(writer,))
        thread.start()
        tracemalloc.start()
        values, _ = await read(
            read_jsonl(reader, max_line=1 << 20, on_bad_line=route(collect(letters)))
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20
        thread.join()
        os.close(reader)
        return values

    assert run(story()) == [{"n": 1}, {"n": 3}]
    (letter,) = letters
    assert isinstance(letter.error, LineTooLong)
    assert letter.token == 2


def test_an_overlong_line_is_reported_with_its_number_the_bound_and_its_beginning(
    run: Run, file: Path
) -> None:
    file.write_text('{"n":1}\n"' + "long" * 5000 + '"\n{"n":3}\n')
    with pytest.raises(LineTooLong) as refused:
        run(read(read_jsonl(file, max_line=10_000, on_bad_line="stop")))
    begins = '"' + "long" * 19 + "lon"
    assert str(refused.value) == (
        f"{file}, line 2 is longer than max_line (10,000 bytes): it begins with {begins!r}"
    )


# Inputs.


def test_a_directory_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    with pytest.raises(CannotOpen, match=r"is a directory"):
        run(read(read_jsonl(tmp_path)))


def test_a_missing_file_is_refused_by_name(run: Run, file: Path) -> None:
    with pytest.raises(CannotOpen, match=r"events\.jsonl: No such file"):
        run(read(read_jsonl(file)))


def test_a_closed_descriptor_is_refused(run: Run) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    with pytest.raises(CannotOpen, match="descriptor"):
        run(read(read_jsonl(reader)))


def test_the_null_device_is_an_empty_input(run: Run) -> None:
    values, _ = run(read(read_jsonl(os.devnull)))
    assert values == []


def test_a_fifo_is_read_until_its_writer_closes_it(run: Run, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def story() -> list[Any]:
        values: list[Any] = []
        async with read_jsonl(fifo).to(collect(values)).start():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writer, b'{"n":1}\n')
            os.close(writer)
        return values

    assert run(story()) == [{"n": 1}]


def test_a_loop_that_cannot_watch_pipes_reads_through_a_thread(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(VirtualTimeLoop, "add_reader", refuse)

    async def story() -> list[Any]:
        reader, writer = os.pipe()
        values: list[Any] = []
        async with read_jsonl(reader).to(collect(values)).start():
            for n in range(3):
                os.write(writer, b'{"n":%d}\n' % n)
                await until(lambda n=n: len(values) > n)
            os.close(writer)
        os.close(reader)
        return values

    assert run(story()) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_stream_of_a_file_needs_no_loop(file: Path) -> None:
    file.write_text('{"n":1}\n')
    values: list[Any] = []
    read_jsonl(file).subscribe(values.append)
    assert values == [{"n": 1}]


# Compression.

MANY = b"".join(b'{"n":%d}\n' % n for n in range(60_000))


def zstd(data: bytes) -> bytes:
    options = {zstd_package.CompressionParameter.checksum_flag: 1}
    return zstd_package.compress(data, options=options)


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd)])
def test_compressed_files_are_read_by_suffix_all_members_of_them(
    run: Run, tmp_path: Path, suffix: str, compress: Any
) -> None:
    file = tmp_path / f"events.jsonl{suffix}"
    file.write_bytes(compress(MANY) + compress(b"") + compress(b'{"last":1}'))
    values, _ = run(read(read_jsonl(file)))
    assert len(values) == 60_001
    assert values[59_999] == {"n": 59_999}
    assert values[-1] == {"last": 1}


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_of_a_compressed_file_known_by_its_first_bytes_all_members_are_read(
    run: Run, tmp_path: Path, compress: Any
) -> None:
    file = tmp_path / "events.jsonl"
    # Many begin in one read, and some between two pieces that are decompressed at once.
    members = [MANY[start : start + 20_000] for start in range(0, len(MANY), 20_000)]
    file.write_bytes(b"".join(map(compress, members)))
    values, _ = run(read(read_jsonl(file)))
    assert values == [{"n": n} for n in range(60_000)]


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
@pytest.mark.parametrize("padding", [1, 20_000, 600_000])
def test_members_of_a_gzip_file_may_be_padded(
    run: Run, tmp_path: Path, name: str, padding: int
) -> None:
    file = tmp_path / name
    zeros = bytes(padding)
    file.write_bytes(gzip.compress(b'{"n":1}\n') + zeros + gzip.compress(b'{"n":2}\n') + zeros)
    values, _ = run(read(read_jsonl(file)))
    assert values == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd)])
@pytest.mark.parametrize("damage", ["cut", "garbage", "scrambled"])
def test_a_damaged_compressed_file_is_an_error_that_names_it(
    run: Run, tmp_path: Path, suffix: str, compress: Any, damage: str
) -> None:
    data = bytearray(compress(MANY))
    if damage == "cut":
        del data[-5:]
    elif damage == "garbage":
        data = bytearray(b"this is plain text, whatever its name says")
    else:
        middle = len(data) // 2
        data[middle : middle + 50] = bytes(50)
    file = tmp_path / f"events.jsonl{suffix}"
    file.write_bytes(data)
    with pytest.raises(InputCorrupt, match=r"events\.jsonl"):
        run(read(read_jsonl(file, on_bad_line="report")))


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_a_small_file_that_unpacks_to_much_is_read_in_bounded_memory(
    run: Run, tmp_path: Path, compress: Any
) -> None:
    suffix = ".gz" if compress is gzip.compress else ".zst"
    file = tmp_path / f"events.jsonl{suffix}"
    file.write_bytes(compress((b'{"n":1}' + b" " * 65_000 + b"\n") * 3000))
    tracemalloc.start()
    values, _ = run(read(read_jsonl(file)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(values) == 3000
    assert peak < 64 << 20


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_compressed_pipe_is_noticed_by_its_first_bytes(
    run: Run, compress: Any, size: int
) -> None:
    data = compress(b'{"n":1}\n{"n":2}\n') + compress(b'{"n":3}')

    async def story() -> list[Any]:
        reader, writer = os.pipe()
        values: list[Any] = []
        async with read_jsonl(reader).to(collect(values)).start():
            for start in range(0, len(data), size):
                os.write(writer, data[start : start + size])
                await asyncio.sleep(0)
            os.close(writer)
        os.close(reader)
        return values

    assert run(story()) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_compressed_fifo_is_read(run: Run, tmp_path: Path) -> None:
    fifo = tmp_path / "events.gz"
    os.mkfifo(fifo)
    # Open for both, so that neither end waits for the other.
    both = os.open(fifo, os.O_RDWR)

    async def story() -> list[Any]:
        values: list[Any] = []
        async with read_jsonl(fifo).to(collect(values)).start():
            os.write(both, gzip.compress(b'{"n":1}\n'))
            await until(lambda: len(values) == 1)
            os.close(both)
        return values

    assert run(story()) == [{"n": 1}]


def test_a_pipe_that_begins_like_a_compressed_one_is_read_as_it_is(run: Run) -> None:
    async def story() -> list[Any]:
        reader, writer = os.pipe()
        values: list[Any] = []
        async with read_jsonl(reader, on_bad_line="report").to(collect(values)).start():
            os.write(writer, b"\x1f")
            await asyncio.sleep(0)
            os.write(writer, b'\n{"n":1}\n')
            os.close(writer)
        os.close(reader)
        return values

    assert run(story()) == [{"n": 1}]


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_a_drain_loses_nothing_of_a_compressed_pipe_that_was_read(run: Run, compress: Any) -> None:
    # One read of the pipe gives ten reads of the decompressed bytes.
    lines = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"x" * 1000) for n in range(2600))

    async def story() -> tuple[int, int]:
        reader, writer = os.pipe()
        os.write(writer, compress(lines)[:-1])
        values: list[Any] = []

        async def slowly(value: Any) -> None:
            await asyncio.sleep(0.001)
            values.append(value)

        running = read_jsonl(reader).to(for_each(slowly)).start()
        await asyncio.sleep(0.01)
        assert 0 < len(values) < 100
        report = await running.drain()
        os.close(writer)
        os.close(reader)
        return len(values), report.statistics["finished"]

    assert run(story()) == (2600, 2600)


def test_zstd_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(MissingExtra, match=r"\[zstd\]"):
        read_jsonl("events.jsonl.zst")


# Time.


def test_events_are_stamped_with_the_time_their_bytes_were_read(run: Run) -> None:
    created: list[float] = []
    probe = Probe[Any](100, on_event=lambda _, event: created.append(event.created))

    async def story() -> None:
        reader, writer = os.pipe()
        read_jsonl(reader).connect(probe)
        for time in (1.0, 3.0):
            await asyncio.sleep(time - asyncio.get_running_loop().time())
            os.write(writer, b'{"n":1}\n{"n":2}\n')
            await until(lambda time=time: created[-2:] == [time, time])
        probe.cancel()
        os.close(reader)
        os.close(writer)

    run(story())
    assert created == [1.0, 1.0, 3.0, 3.0]


def test_created_is_the_events_own_time_and_odd_ones_are_counted(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.streams.base.clock.wall", lambda: 1000.0)
    file.write_text('{"at":990}\n{"at":1e9}\n{}\n{"at":"1970-01-01T00:16:35Z"}\n')
    created: list[float] = []
    probe = Probe[Any](100, on_event=lambda _, event: created.append(event.created))

    async def story() -> None:
        await asyncio.sleep(100)
        read_jsonl(file, created="at").connect(probe)

    run(story())
    assert created == [90.0, 100.0, 100.0, 95.0]
    _, report = run(read(read_jsonl(file, created="at")))
    numbers = source_numbers(report)
    assert (numbers["created_in_future"], numbers["created_unknown"]) == (1, 1)
    assert [text.partition(" is ")[0] for text in caplog.messages] == [
        "stage 1 'read_jsonl': the time of creation 1000000000.0"
    ] * 2


# The end.


def test_a_drain_emits_what_was_read_of_a_pipe_the_unfinished_line_too(run: Run) -> None:
    async def story() -> tuple[list[Any], Report]:
        reader, writer = os.pipe()
        os.write(writer, b'{"n":1}\n{"n":2}\n{"n":3}')
        values: list[Any] = []
        running = read_jsonl(reader).to(collect(values)).start()
        await until(lambda: bool(values))
        report = await running.drain(5)
        os.close(reader)
        os.close(writer)
        return values, report

    values, report = run(story())
    assert values == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert report.statistics["in"] == report.statistics["finished"] == 3


@pytest.mark.parametrize("lasting", [True, False])
def test_after_a_drain_a_file_gives_no_more_and_a_pipe_what_cannot_be_read_again(
    run: Run, file: Path, lasting: bool
) -> None:
    text = b"".join(b'{"n":%d}\n' % n for n in range(5))
    file.write_bytes(text)
    probe = Probe[Any](2)

    async def story() -> None:
        reader, writer = os.pipe()
        os.write(writer, text)
        shared = SharedRun()
        read_jsonl(file if lasting else reader).attach(probe, shared)
        await until(lambda: len(probe.values) == 2)
        shared.nesting.sources[0].stop()
        assert probe.completed == lasting
        probe.request(10)
        assert probe.completed
        os.close(reader)
        os.close(writer)

    run(story())
    assert len(probe.values) == (2 if lasting else 5)


def test_after_a_cancel_every_line_that_was_read_is_accounted_for(run: Run, file: Path) -> None:
    file.write_text("".join(f'{{"n":{n}}}\n' for n in range(10)))

    async def story() -> dict[str, Any]:
        shared = SharedRun()
        probe = Probe[Any](2**60, on_event=lambda probe, _: probe.cancel())
        read_jsonl(file).attach(probe, shared)
        return shared.nesting.sources[0].statistics()

    numbers = run(story())
    assert numbers["in"] == numbers["finished"] + numbers["returned"]
    assert numbers["in"] + numbers["read_ahead"] == 10


# Options.


@pytest.mark.parametrize(
    "options",
    [
        {"max_line": 0},
        {"on_bad_line": "ignore"},
        {"follow": True},
        {"path": 0, "follow": True},
        {"path": "events.jsonl.gz", "follow": True},
        {"path": 3.5},
        {"path": b"events.jsonl"},
        {"path": None},
    ],
)
def test_options_that_make_no_sense_are_refused_when_the_source_is_made(
    options: dict[str, Any],
) -> None:
    with pytest.raises(BuildError):
        read_jsonl(**options)


def test_an_error_about_an_event_names_the_file_and_the_line_of_it_or_of_what_it_was_made_from(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")

    def fails(value: Any) -> Any:
        if value == {"n": 2}:
            raise ValueError("no")
        return value

    stream = read_jsonl(path).pipe(ops.merge(read_jsonl(other)), ops.flat_map(lambda one: [one]))
    with pytest.raises(ValueError, match="no") as raised:
        run(stream.pipe(ops.map(fails)).to(collect([])).run())
    (note,) = [one for one in raised.value.__notes__ if "on the event" in one]
    assert note == f"in stage 5 'map', on the event {{'n': 2}} ({path}, line 2)"


@pytest.mark.parametrize("depth", [255, 1000])
def test_a_line_that_is_nested_too_deep_to_be_written_is_a_bad_line_whose_letter_has_its_bytes(
    run: Run, tmp_path: Path, depth: int
) -> None:
    file = tmp_path / "deep.jsonl"
    deep = '{"n":' * depth + "1" + "}" * depth
    file.write_text(f'{{"n":1}}\n{deep}\n{{"n":2}}\n')
    letters: list[Any] = []
    values: list[Any] = []
    run(read_jsonl(file, on_bad_line=route(collect(letters))).to(collect(values)).run())
    assert values == [{"n": 1}, {"n": 2}]
    assert [letter.value for letter in letters] == [deep]
    assert "254 levels" in str(letters[0].error)


def test_a_byte_order_mark_before_any_line_is_ignored(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "joined.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"n":1}\n\xef\xbb\xbf{"n":2}\n')
    values: list[Any] = []
    run(read_jsonl(file).to(collect(values)).run())
    assert values == [{"n": 1}, {"n": 2}]


OTHERS = {
    "zip": b"PK\x03\x04\x14\x00\x00\x00",
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04",
    "lz4": b"\x04\x22\x4d\x18\x64",
    "Z": b"\x1f\x9d\x90",
}


@pytest.mark.parametrize("suffix", OTHERS)
def test_other_compressions_are_recognized_by_name_and_by_content(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    named, file = tmp_path / f"events.jsonl.{suffix}", tmp_path / "events.jsonl"
    makers: list[Any] = [read_jsonl, read_lines, write_jsonl, dead_letters]
    for make in makers:
        with pytest.raises(BuildError, match=r"Only gzip, zstd, .*decompress it first"):
            make(named)
    sources: list[Any] = [read_lines, read_jsonl]
    ways: list[dict[str, Any]] = [{}, {"follow": True}, {"position": tmp_path / "some.position"}]
    for source in sources:
        for options in ways:
            file.write_bytes(OTHERS[suffix])
            with pytest.raises(CannotOpen, match="it is compressed"):
                run(source(file, **options).to(collect([])).run())


@pytest.mark.parametrize(("suffix", "compress"), [("xz", lzma.compress), ("bz2", bz2.compress)])
def test_bzip2_and_xz_are_read_by_name_and_by_content(
    run: Run, tmp_path: Path, suffix: str, compress: Any
) -> None:
    # Two streams in a row, of which one read gives more than its room.
    content = compress(b'{"n":1}\n' * 100_000) + compress(b'{"n":2}\n')
    named, file = tmp_path / f"events.jsonl.{suffix}", tmp_path / "events.jsonl"
    for path in (named, file):
        path.write_bytes(content)
        values: list[Any] = []
        run(read_jsonl(path).to(collect(values)).run())
        assert values == [{"n": 1}] * 100_000 + [{"n": 2}]
    named.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputCorrupt, match=r"is a truncated"):
        run(read_jsonl(named).to(collect([])).run())


@pytest.mark.parametrize("text", ["BZh", "BZh9 is no magic", "PK", "7z", "x", "\x04", "B"])
def test_text_that_begins_nearly_as_a_compressed_file_is_text(
    run: Run, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "some.log"
    file.write_text(text)
    values: list[Any] = []
    run(read_lines(file).to(collect(values)).run())
    assert values == [text]
