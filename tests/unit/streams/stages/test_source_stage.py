from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams.protocol.event import (
    Ending,
    Event,
    drop_all,
    end_all,
    finish_all,
    give_back_all,
)
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run as StreamRun
from penstock.streams.stages.own import SourceStage
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
        lambda events: end_all(events, Ending.FORGIVEN, BROKEN),
        [("ack", [0, 1, 2], None)],
        {"failed": 3},
    ),
    "failed": (
        lambda events: end_all(events, Ending.FAILED, BROKEN),
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


class Pushed(SourceStage[int]):
    """Sends values when it is told to, as one that gets them from elsewhere does."""

    def __init__(self, downstream: Subscriber[int], run: StreamRun) -> None:
        super().__init__(downstream, run, StageInfo("pushed"))
        self.values: deque[int] = deque()
        self.released = 0

    def produce(self) -> None:
        while self.demand and self.values:
            self.emit(self.values.popleft(), self.run.now())

    def release(self) -> None:
        self.released += 1


class Asking(Below):
    """Requests one more event in each list, and writes down how its signals nest."""

    def __init__(self, then: Callable[[Pushed], object] = lambda _: None) -> None:
        super().__init__()
        self.log: list[str] = []
        self.source: Any = None
        self._then = then

    def on_subscribe(self, subscription: Any, /) -> None:
        self.source = subscription
        subscription.request(1)

    def on_events(self, events: list[Event[Any]], /) -> None:
        values = [event.value for event in events]
        self.log.append(f"begin {values}")
        give_back_all(events)
        self.source.request(1)
        self._then(self.source)
        self.log.append(f"end {values}")

    def on_completed(self) -> None:
        self.log.append("completed")

    def on_error(self, error: BaseException, /) -> None:
        self.log.append(f"failed {error}")


def _signals(then: Callable[[Pushed], object], *, within_produce: bool) -> tuple[list[str], int]:
    below = Asking(then)
    pushed = Pushed(below, StreamRun())
    pushed.start()
    if within_produce:
        pushed.values.extend([1, 2])
        pushed.wake()
    else:
        pushed.values.append(2)
        pushed.emit(1, 0.0)
    return below.log, pushed.released


LISTS = [f"{word} [{value}]" for value in (1, 2) for word in ("begin", "end")]


@pytest.mark.parametrize("within_produce", [True, False])
def test_demand_that_comes_while_a_source_sends_is_served_after_the_list(
    within_produce: bool,
) -> None:
    log, released = _signals(lambda _: None, within_produce=within_produce)
    assert (log, released) == (LISTS, 0)


@pytest.mark.parametrize("within_produce", [True, False])
@pytest.mark.parametrize(
    ("end", "signal"),
    [
        (lambda source: source.stop(), "completed"),
        (lambda source: source.fail(BROKEN), "failed broken"),
        (lambda source: (source.stop(), source.fail(BROKEN)), "failed broken"),
        (lambda source: (source.fail(BROKEN), source.fail(KeyError())), "failed broken"),
        (lambda source: (source.stop(), source.cancel(), source.stop()), ""),
        (lambda source: (source.cancel(), source.cancel()), ""),
    ],
    ids=["stop", "fail", "stop and fail", "fail twice", "stop and cancel", "cancel twice"],
)
def test_a_source_that_ends_while_it_sends_ends_once_after_the_list(
    end: Callable[[Pushed], object], signal: str, within_produce: bool
) -> None:
    log, released = _signals(end, within_produce=within_produce)
    assert (log, released) == ([*LISTS[:2], *([signal] if signal else [])], 1)


def test_a_source_that_is_paused_while_it_sends_goes_on_with_the_demand_that_it_had() -> None:
    below = Asking(lambda source: source.pause())
    pushed = Pushed(below, StreamRun())
    pushed.start()
    pushed.values.extend([1, 2])
    pushed.wake()
    assert below.log == LISTS[:2]
    pushed.resume()
    assert below.log == LISTS


def test_what_a_source_sends_while_it_is_paused_is_taken_from_its_demand() -> None:
    below = Below()
    pushed = Pushed(below, StreamRun())
    pushed.start()
    pushed.pause()
    pushed.emit(1, 0.0)
    pushed.values.extend([2, 3, 4])
    pushed.resume()
    assert [event.value for event in below.events] == [1, 2, 3]
    give_back_all(below.events)
