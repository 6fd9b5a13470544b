"""Messages over a socket, between two ends in one loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams.pipelines.pipeline import new_event_loop
from penstock.streams.workers.processes import wire
from penstock.streams.workers.processes.wire import Wire, framed


def ignore(message: Any) -> None:
    """For an end that is sent nothing of interest."""


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop])
def test_what_was_sent_before_the_end_arrives_although_the_other_side_writes_meanwhile(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    arrived: list[Any] = []

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ended = [asyncio.Event(), asyncio.Event()]
        worker = Wire(ignore, ended[0].set)
        worker.connect(theirs)
        await asyncio.sleep(0.01)
        worker.send("a result")
        worker.send("the last message")
        worker.close()
        # Until all of it is done that closing begins.
        await asyncio.sleep(0.01)
        parent = Wire(arrived.append, ended[1].set)
        parent.send("a message that nobody waits for")
        parent.connect(ours)
        async with asyncio.timeout(10):
            for end in ended:
                await end.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert arrived == ["a result", "the last message"]


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop])
def test_nothing_is_sent_after_the_end(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    arrived: list[Any] = []

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ended = asyncio.Event()
        worker, parent = Wire(ignore, ignore_end), Wire(arrived.append, ended.set)
        worker.connect(theirs)
        parent.connect(ours)
        await asyncio.sleep(0.01)
        worker.send("the last message")
        worker.close()
        worker.close()
        worker.send("too late")
        async with asyncio.timeout(10):
            await ended.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert arrived == ["the last message"]


def ignore_end() -> None:
    """For an end that is waited for at the other side."""


class FiveGiB(bytes):
    def __len__(self) -> int:
        return 5 << 30


def test_a_message_may_be_longer_than_four_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "packed", FiveGiB)
    whole = framed(b"the beginning")
    assert whole.endswith(b"the beginning")
    assert int.from_bytes(whole[:8], "little") == 5 << 30
