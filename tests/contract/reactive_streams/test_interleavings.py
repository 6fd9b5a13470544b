"""Any order of request, cancel, emit, complete, fail and waiting, against a model of two facts:
how much was requested, and whether the stream is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.streams.boundary.strict_subscriber import connect
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, Probe, VirtualTimeLoop
from tests.helpers.reactive_streams.between import Below, How, attached, end
from tests.helpers.reactive_streams.case import Case
from tests.helpers.reactive_streams.harness import Link, every_operator
from tests.helpers.walks import some_of

SETTINGS = settings(
    max_examples=some_of(10),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Interleaving(RuleBasedStateMachine):
    case: Case
    has_door: bool

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.publisher = ManualPublisher[int]()
        self.probe: Probe[Any] = Probe(hold=True) if self.has_door else Below(hold=True)
        self.requested = 0
        self.cancelled = False
        # Must not change any more: after a cancel, and above after the publisher's end.
        self.last_signals: list[Any] | None = None
        self.last_calls: list[Any] | None = None
        self.do(self._connect)

    def _connect(self) -> None:
        assert self.case.operator is not None
        self.run = Run()
        self.link = Link(self.run, self.case.calls_in_pool)
        stream = self.publisher.pipe(self.case.operator)
        if isinstance(self.probe, Below):
            attached(stream, self.probe, self.run)
        else:
            connect(stream, self.probe, self.run)

    def do(self, act: Callable[[], Any]) -> None:
        async def step() -> None:
            act()
            if self.case.calls_in_pool:
                # The speed of a thread varies: hypothesis needs the same story each time.
                await self.link.settle(0.0)

        self.loop.run_until_complete(step())

    @rule(n=st.integers(1, 5))
    def request(self, n: int) -> None:
        self.requested += n
        self.do(lambda: self.probe.request(n))

    @precondition(lambda self: self.publisher.active and self.publisher.demand)
    @rule(values=st.lists(st.integers(0, 6), min_size=1, max_size=6))
    def emit(self, values: list[int]) -> None:
        def send() -> None:
            for value in values:
                if self.publisher.active and self.publisher.demand:
                    self.publisher.send(value)

        self.do(send)

    @precondition(lambda self: self.publisher.active)
    @rule(error=st.none() | st.builds(ValueError))
    def end(self, error: ValueError | None) -> None:
        def say() -> None:
            self.last_calls = list(self.publisher.subscription.calls)
            if error is None:
                self.publisher.complete()
            else:
                self.publisher.fail(error)

        self.do(say)

    @precondition(lambda self: not self.cancelled)
    @rule()
    def cancel(self) -> None:
        def leave() -> None:
            self.probe.cancel()
            self.last_signals = list(self.probe.signals)

        self.do(leave)
        self.cancelled = True

    @precondition(lambda self: self.probe.events)
    @rule(data=st.data(), how=st.sampled_from(get_args(How)))
    def settle_event(self, data: st.DataObject, how: How) -> None:
        events = self.probe.events
        event = events.pop(data.draw(st.integers(0, len(events) - 1)))
        self.do(lambda: end([event], how))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(self.link.settle(seconds))

    @invariant()
    def no_more_values_than_requested(self) -> None:
        assert len(self.probe.values) <= self.requested

    @invariant()
    def one_end_and_nothing_after_it(self) -> None:
        names = self.probe.names()
        assert names[0] == "subscribe"
        assert set(names[1:-1]) <= {"next"}

    @invariant()
    def no_signal_inside_another(self) -> None:
        assert self.probe.depth == 1

    @invariant()
    def silence_after_cancel(self) -> None:
        assert self.last_signals is None or self.probe.signals == self.last_signals

    @invariant()
    def nothing_is_asked_of_a_publisher_that_has_ended(self) -> None:
        calls = self.publisher.subscription.calls
        assert self.last_calls is None or calls == self.last_calls
        assert all(n > 0 for n in self.publisher.requests)
        assert self.publisher.cancels <= 1

    @invariant()
    def nobody_is_told_of_an_error(self) -> None:
        assert self.link.told() == []

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(self._to_the_end())
            assert self.publisher.unsettled == []
        finally:
            self.loop.run_until_complete(self.run.close())
            assert asyncio.all_tasks(self.loop) == set()
            self.loop.close()

    async def _to_the_end(self) -> None:
        """With enough demand and every event finished, a stream that ends above ends below."""
        if self.publisher.active:
            self.publisher.complete()
        self.probe.request(1_000)
        for _ in range(60):
            if self.probe.ended and not self.probe.events:
                break
            while self.probe.events:
                end([self.probe.events.pop()], "finish")
            await self.link.settle(60)
        assert self.probe.ended or self.cancelled


@pytest.mark.walks
@pytest.mark.parametrize("has_door", [True, False], ids=["with a door", "directly"])
@every_operator
def test_rule_1_01_1_07_3_06_3_08_hold_in_any_order_of_calls(case: Case, has_door: bool) -> None:
    machine: Any = type("Interleaving", (Interleaving,), {"case": case, "has_door": has_door})
    run_state_machine_as_test(machine, settings=SETTINGS)
