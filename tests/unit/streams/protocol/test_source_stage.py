from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams.protocol.event import Event, drop_all, fail_all, finish_all, give_back_all
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.testing.plugin import Run

Calls = list[tuple[str, list[int], BaseException | None]]
BROKEN = ValueError("broken")


class Numbers(SourceStage[int]):
    """0, 1, 2: with its acknowledgements in `calls`."""

    def __init__(self, downstream: Subscriber[int], run: StreamRun, calls: Calls) -> None:
        super().__init__(downstream, run, StageInfo("numbers"))
        self.ack = lambda events: calls.append(("ack", [one.value for one in events], None))
        self.nack = lambda events, error: calls.append(
            ("nack", [one.value for one in events], error)
        )

    def produce(self) -> None:
        self.emit_all(
            [0, 1, 2],
            self.run.now(),
        )


class Below:
    def __init__(self) -> None:
        self.events: list[Event[Any]] = []

    def on_subscribe(self, subscription: Any, /) -> None:
        subscription.request(3)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.events += events

    def on_completed(self) -> None: ...

    def on_error(self, error: BaseException, /) -> None: ...


ENDS: dict[str, tuple[Callable[[list[Event[Any]]], None], Calls, dict[str, Any]]] = {
    "finished": (finish_all, [("ack", [0, 1, 2], None)], {"finished": 3}),
    "dropped": (
        lambda events: drop_all(events, "test"),
        [("ack", [0, 1, 2], None)],
        {"dropped": {"test": 3}},
    ),
    "skipped": (
        lambda events: fail_all(events, BROKEN, acknowledged=True),
        [("ack", [0, 1, 2], None)],
        {"failed": 3},
    ),
    "failed": (
        lambda events: fail_all(events, BROKEN),
        [("nack", [0, 1, 2], BROKEN)],
        {"returned": 3},
    ),
    "returned": (give_back_all, [("nack", [0, 1, 2], None)], {"returned": 3}),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_source_acknowledges_a_list_or_takes_it_back_by_one_call(run: Run, how: str) -> None:
    end, expected, counts = ENDS[how]

    async def main() -> None:
        calls: Calls = []
        below, around = Below(), StreamRun()
        numbers = Numbers(below, around, calls)
        numbers.start()
        end(below.events)
        assert calls == expected
        statistics = numbers.statistics()
        none: dict[str, Any] = {"finished": 0, "dropped": {}, "failed": 0, "returned": 0}
        assert {name: statistics[name] for name in none} == {**none, **counts}
        await around.close()

    run(main())
