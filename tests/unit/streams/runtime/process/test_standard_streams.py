from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock import adaptive_flat_map, read_jsonl, read_lines, write_jsonl
from penstock.streams.io.paths import standard_streams_of
from penstock.streams.pipelines.pipeline import new_event_loop
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.runtime.process.standard_streams import Taken, standing_for, taken


@contextmanager
def pipes() -> Iterator[tuple[int, int]]:
    """Inside, standard input and output are pipes; the ends that feed the one and read the other.

    Not a fixture, because pytest puts its own files into their places before the test begins.
    """
    saved = [os.dup(number) for number in (0, 1)]
    (reader, feed), (result, writer) = os.pipe(), os.pipe()
    os.dup2(reader, 0)
    os.dup2(writer, 1)
    os.close(reader)
    os.close(writer)
    try:
        yield feed, result
    finally:
        for number, copy in enumerate(saved):
            os.dup2(copy, number)
            os.close(copy)
        os.close(feed)
        os.close(result)


def test_a_taken_stream_is_an_empty_file_for_others_until_its_last_user_has_closed_it() -> None:
    with pipes() as (feed, _):
        os.write(feed, b"abc")
        first, second = Taken(0), Taken(0)
        assert os.read(0, 1) == b""
        assert os.read(first.descriptor, 1) == b"a"
        first.close()
        first.close()
        assert os.read(0, 1) == b""
        assert os.read(second.descriptor, 1) == b"b"
        second.close()
        assert os.read(0, 1) == b"c"


def test_what_is_written_to_a_taken_standard_output_is_on_standard_error() -> None:
    with pipes() as (_, result):
        with taken([1]):
            assert os.path.sameopenfile(1, 2)
            os.write(standing_for(1), b"ours")
        os.write(1, b" theirs")
        assert os.read(result, 99) == b"ours theirs"


def test_no_program_inherits_the_copy_and_all_inherit_what_stands_in_its_place() -> None:
    with taken([0, 1]):
        assert not os.get_inheritable(standing_for(0))
        assert not os.get_inheritable(standing_for(1))
        assert os.get_inheritable(0)
        assert os.get_inheritable(1)


def test_a_stream_that_is_forgotten_is_the_programs_own_again() -> None:
    with pipes() as (feed, _):
        os.write(feed, b"a")
        stream = Taken(0)
        assert os.read(0, 1) == b""
        del stream
        gc.collect()
        assert os.read(0, 1) == b"a"


def test_a_forked_process_cannot_give_the_stream_back() -> None:
    with pipes() as (feed, _):
        os.write(feed, b"abc")
        stream = Taken(0)
        child = os.fork()
        if not child:
            stream.close()
            os._exit(len(os.read(0, 3)))
        assert os.waitpid(child, 0)[1] == 0
        stream.close()
        assert os.read(0, 3) == b"abc"


def test_a_closed_stream_is_left_alone() -> None:
    saved = os.dup(0)
    os.close(0)
    try:
        with taken([0]), pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)


@pytest.mark.parametrize("name", ["-", 0, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_a_handler_reads_nothing_of_standard_input_by_whatever_name_the_source_has_it(
    name: str | int,
) -> None:
    with pipes() as (feed, _):
        seen: list[tuple[str, bytes]] = []

        def handler(line: str) -> str:
            seen.append((line, os.read(0, 1)))
            return line

        async def story() -> None:
            os.write(feed, b"a\nb\n")
            async for line in read_lines(name).pipe(adaptive_flat_map(handler)):
                if line == "b":
                    break

        with new_loop() as runner:
            runner.run(story())
        assert seen == [("a", b""), ("b", b"")]
        os.write(feed, b"c")
        assert os.read(0, 1) == b"c"


@pytest.mark.parametrize("name", ["-", 1, "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_embedded_pipeline_has_standard_output_for_itself_and_gives_it_back(
    name: str | int,
) -> None:
    with pipes() as (feed, result):
        os.write(feed, b"1\n2\n")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, feed)
        os.close(nothing)

        def handler(line: str) -> int:
            os.write(1, b"printed\n")
            os.system("echo by a child")
            return int(line)

        async def story() -> None:
            await read_lines().pipe(adaptive_flat_map(handler)).to(write_jsonl(name)).run()

        with new_loop() as runner:
            runner.run(story())
        os.write(1, b"after\n")
        assert os.read(result, 999) == b"1\n2\nafter\n"


def test_a_pipeline_takes_only_the_streams_that_it_uses() -> None:
    def used(*words: object) -> set[int]:
        source, sink = words
        pipeline = read_jsonl(source).to(write_jsonl(sink))  # type: ignore[arg-type]
        return standard_streams_of(all_stages(pipeline.describe()))

    assert used("-", "-") == {0, 1}
    assert used("-", "out.jsonl") == {0}
    assert used("in.jsonl", 1) == {1}
    assert used("in.jsonl", "out.jsonl") == set()


def new_loop() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=new_event_loop)
