from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.streams.delivery.lease import Lease
from penstock.streams.nats.streams.reading import Reading, ReadingSettings
from penstock.streams.nats.streams.replies import Replies
from penstock.streams.protocol.event import (
    Ending,
    end_all,
    finish_all,
    give_back_all,
    new_events,
)
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import Probe, run_virtual


class Sent(Replies):
    """The replies of each call, which go to no server."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, bytes]]] = []

    def send_all(self, replies: Any) -> None:
        self.calls.append(list(replies))


@pytest.mark.parametrize(
    ("end", "reply"),
    [
        (finish_all, b"+ACK"),
        (lambda events: end_all(events, Ending.FORGIVEN, ValueError()), b"+ACK"),
        (
            lambda events: end_all(events, Ending.FAILED, ValueError()),
            b'-NAK {"delay": 3000000000}',
        ),
        (give_back_all, b"-NAK"),
    ],
    ids=["finished", "skipped", "failed", "returned"],
)
def test_a_list_is_acknowledged_by_one_call_and_failures_come_again_after_a_while(
    end: Callable[[list[Any]], None], reply: bytes
) -> None:
    async def story() -> list[list[tuple[str, bytes]]]:
        settings = ReadingSettings("s", None, (), True, False, "first", 30.0, 3.0, "report")
        run, sent = Run(), Sent()
        reading = Reading(Probe[Any](), run, StageInfo("read_jetstream"), settings)
        reading._replies = sent  # pyright: ignore[reportPrivateUsage]
        reading._leases = cast(Any, SimpleNamespace(held={}))  # pyright: ignore[reportPrivateUsage]
        lease = Lease(run.now, run.now() + 1)
        messages = [SimpleNamespace(reply=f"reply {n}", key=n, lease=lease) for n in range(3)]
        end(new_events([0, 1, 2], 0.0, reading, messages))
        await run.close()
        return sent.calls

    assert run_virtual(story()) == [[(f"reply {n}", reply) for n in range(3)]]
