from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, dead_letters, for_each, latency_histogram, write_jsonl
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.running.broadcast import Broadcast
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.sink_stage import Closed, Sink
from penstock.streams.testing import MemorySink
from penstock.streams.testing.plugin import Run

Opened = Callable[[StreamRun, Closed, Path], Subscriber[Any]]


async def later(value: object) -> None:
    await asyncio.sleep(1)


def opened(make: Callable[[Path], Sink[Any]]) -> Opened:
    return lambda run, closed, folder: make(folder).open(run, closed)


SINKS: dict[str, Opened] = {
    "collect": opened(lambda folder: collect([])),
    "for_each": opened(lambda folder: for_each(print)),
    "for_each, async": opened(lambda folder: for_each(later)),
    "write_jsonl": opened(lambda folder: write_jsonl(folder / "out.jsonl")),
    "dead_letters": opened(lambda folder: dead_letters(folder / "dead.jsonl")),
    "latency_histogram": opened(lambda folder: latency_histogram(report=None)),
    "memory": opened(lambda folder: MemorySink()),
    "slow memory": opened(lambda folder: MemorySink(seconds=1)),
    "several": lambda run, closed, folder: Broadcast(
        [MemorySink().open(run, closed), MemorySink(seconds=1).open(run, closed)]
    ),
}


class Asked:
    """A subscription that records requests."""

    def __init__(self) -> None:
        self.requested = self.cancelled = 0

    def request(self, n: int, /) -> None:
        self.requested += n

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_cancels_a_second_subscription_and_keeps_the_first(
    run: Run, tmp_path: Path, name: str
) -> None:
    async def story() -> None:
        stream_run = StreamRun()
        stage = SINKS[name](stream_run, lambda error: None, tmp_path)
        first, second = Asked(), Asked()
        stage.on_subscribe(first)
        asked = first.requested
        assert asked > 0
        stage.on_subscribe(second)
        assert (second.requested, second.cancelled) == (0, 1)
        assert (first.requested, first.cancelled) == (asked, 0)
        stage.on_completed()
        await stream_run.close()

    run(story())
