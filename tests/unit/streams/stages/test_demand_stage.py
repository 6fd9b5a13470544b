"""Stages that count demand do one thing after the other, whatever happens inside of another."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Event, Flowable, from_iterable
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.stage import Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import DemandStage
from penstock.streams.testing import ManualPublisher


class OneByOne(DemandStage):
    """Passes events on singly, and notes how deep its steps are nested."""

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo) -> None:
        super().__init__(downstream, run, info)
        self.depths: list[int] = []
        self._depth = 0
        self._held: list[Event[Any]] = []

    def take(self, events: list[Event[Any]], /) -> None:
        self._depth += 1
        self._held += events
        if self.demand:
            self.send(self._held.pop(0))
        self._depth -= 1

    def step(self) -> bool:
        self._depth += 1
        self.depths.append(self._depth)
        more = self._do_one()
        self._depth -= 1
        return more

    def _do_one(self) -> bool:
        if self._held and self.demand:
            self.send(self._held.pop(0))
        elif self.state and not self._held:
            self.complete()
        elif not self._held and self.demand and not self.asked and not self.state:
            self.ask(1)
        else:
            return False
        return True

    def release(self) -> None:
        while self._held:
            self._held.pop().give_back()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self._held)}


class Reader:
    """Subscribes as a stage does; asks for one more event inside of each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.ends: list[BaseException | None] = []

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            self.values.append(event.value)
            event.finish()
            self.subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append(None)


def read(source: Flowable[Any]) -> tuple[OneByOne, Reader]:
    """A stage behind a source, and its reader."""
    made: list[OneByOne] = []
    reader = Reader()

    def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> OneByOne:
        made.append(OneByOne(downstream, run, info))
        return made[0]

    source.then(make, StageInfo("one by one", "", 1)).attach(reader, Run())
    return made[0], reader


def test_steps_are_not_nested_where_requests_and_events_come_inside_of_them() -> None:
    stage, reader = read(from_iterable(range(1_000)))
    reader.subscription.request(1)
    assert reader.values == list(range(1_000))
    assert reader.ends == [None]
    assert set(stage.depths) == {1}


def test_what_comes_of_a_list_goes_on_in_order_where_more_is_requested_inside() -> None:
    source = ManualPublisher[int]()
    stage, reader = read(source)
    stage.asked = 3
    reader.subscription.request(1)
    stage.on_events([Event(n, 0.0, Nobody()) for n in (1, 2, 3)])
    assert reader.values == [1, 2, 3]
    assert set(stage.depths) == {1}


def test_a_stage_that_is_cancelled_returns_what_it_holds_and_what_still_comes() -> None:
    source = ManualPublisher[int](misbehaving=True)
    stage, reader = read(source)
    reader.subscription.request(1)
    stage.demand = 0
    source.send(1)
    reader.subscription.cancel()
    source.send(2)
    assert source.cancels == 1
    assert (reader.values, source.returned) == ([], [1, 2])


def test_the_second_error_of_a_stage_is_reported_and_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = ManualPublisher[int]()
    stage, reader = read(source)
    first = ValueError("first")
    stage.fail(first)
    stage.fail(ValueError("second"))
    assert reader.ends == [first]
    assert stage.error is first
    assert caplog.messages == ["after the first error: ValueError: second"]
