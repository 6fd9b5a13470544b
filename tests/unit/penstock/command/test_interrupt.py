from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from penstock.command.interrupt import Interrupted, raising
from penstock.streams.pipelines.pipeline import new_event_loop


class Signalled(asyncio.Protocol):
    """A connection during whose callback a signal comes."""

    def data_received(self, data: bytes) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop])
def test_a_signal_in_a_callback_of_a_connection_ends_the_loop_and_is_no_error_of_the_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        ours, theirs = socket.socketpair()
        transport, _ = await loop.connect_accepted_socket(Signalled, ours)
        try:
            with theirs:
                theirs.sendall(b"something")
                async with asyncio.timeout(10):
                    await asyncio.Event().wait()
        finally:
            transport.close()

    with (
        raising(),
        asyncio.Runner(loop_factory=new_loop) as runner,
        pytest.raises(Interrupted, match="SIGTERM"),
    ):
        runner.run(main())
    assert (reported, caplog.text) == ([], "")


def test_a_signal_outside_a_loop_is_raised_where_it_comes() -> None:
    with raising(), pytest.raises(Interrupted) as caught:
        signal.raise_signal(signal.SIGINT)
    assert caught.value.exit_status == 128 + signal.SIGINT
