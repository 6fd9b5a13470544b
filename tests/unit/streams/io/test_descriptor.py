from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from penstock.streams.io.descriptor import Watch
from penstock.streams.pipelines.pipeline import new_event_loop

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def run_on_the_pipelines_loop(story: object) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story)  # type: ignore[arg-type]


def test_watching_leaves_a_shared_descriptor_blocking(pipe: Pipe) -> None:
    async def story() -> None:
        reading = Watch(asyncio.get_running_loop(), pipe[0], lambda: None, writing=False)
        writing = Watch(asyncio.get_running_loop(), pipe[1], lambda: None, writing=True)
        assert os.get_blocking(pipe[0])
        assert os.get_blocking(pipe[1])
        reading.close()
        writing.close()

    run_on_the_pipelines_loop(story())


def test_each_arming_gives_one_call(pipe: Pipe) -> None:
    async def story() -> None:
        calls: list[int] = []
        woken = asyncio.Event()

        def ready() -> None:
            calls.append(1)
            woken.set()

        watched = Watch(asyncio.get_running_loop(), pipe[0], ready, writing=False)
        os.write(pipe[1], b"x")
        await woken.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(calls) == 1
        woken.clear()
        watched.arm()
        await woken.wait()
        assert len(calls) == 2
        watched.close()

    run_on_the_pipelines_loop(story())


def test_what_never_makes_a_reader_wait_cannot_be_watched() -> None:
    async def story() -> None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        try:
            with pytest.raises(OSError, match="not permitted"):
                Watch(asyncio.get_running_loop(), descriptor, lambda: None, writing=False)
        finally:
            os.close(descriptor)

    run_on_the_pipelines_loop(story())
