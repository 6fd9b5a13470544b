"""Chapter 3 of Reactive Streams 1.0.4, the rules on cancel."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from penstock.streams.testing import ManualPublisher, Probe
from tests.helpers.reactive_streams.case import Case, Numbers
from tests.helpers.reactive_streams.harness import (
    connected,
    every_case,
    every_operator,
    every_pulling_case,
    manual,
    virtual,
)

MANY = 1_000


def cancel(probe: Probe[Any], _: Any) -> None:
    probe.cancel()


@every_case
@virtual
async def test_rule_3_05_cancel_may_be_repeated_from_anywhere(case: Case) -> None:
    def cancel_twice(probe: Probe[Any], _: Any) -> None:
        probe.cancel()
        probe.cancel()

    probe = Probe[Any](request=5, on_event=cancel_twice)
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        probe.cancel()
        assert probe.names() == ["subscribe", "next"]


@every_case
@virtual
async def test_rule_3_05_cancel_may_come_before_the_first_request(case: Case) -> None:
    class Leaving(Probe[Any]):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            self.cancel()

    probe = Leaving()
    async with connected(case.of(5), probe, case=case) as link:
        await link.settle()
        assert probe.names() == ["subscribe"]


@every_case
@virtual
async def test_rule_3_06_a_request_after_cancel_does_nothing(case: Case) -> None:
    probe = Probe[Any](request=1)
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        probe.cancel()
        before = list(probe.signals)
        for n in (5, 0, -1):
            probe.request(n)
        await link.settle()
        assert probe.signals == before


@every_operator
@virtual
async def test_rule_3_07_a_cancel_after_cancel_does_nothing(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=2)
    async with manual(case, probe, publisher) as link:
        publisher.send(0)
        await link.settle()
        probe.cancel()
        probe.cancel()
        assert publisher.cancels == 1


@every_pulling_case
@virtual
async def test_rule_3_12_cancel_makes_the_source_stop(case: Case) -> None:
    numbers = Numbers()
    probe = Probe[Any](request=2)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle(2)
        probe.cancel()
        await link.settle(2)
        assert numbers.opened == numbers.closed == 1


@every_operator
@virtual
async def test_rule_3_12_a_cancel_in_the_middle_returns_what_is_in(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=MANY)
    async with manual(case, probe, publisher) as link:
        for number in range(8):
            if publisher.active and publisher.demand:
                publisher.send(number)
        await link.settle(0.05)
        probe.cancel()
        # Timers and tasks that are left fail the test, too; a thread ends when it has done.
        await link.settle(0.0)
        assert publisher.unsettled == []


@every_case
@virtual
async def test_rule_3_13_after_cancel_the_subscriber_is_let_go(case: Case) -> None:
    # Existing objects need not be searched, which takes longer than the test.
    gc.freeze()
    probe = Probe[Any](request=2)
    stream = case.of(20)
    async with connected(stream, Probe[Any](), case=case) as link:
        stream.connect(probe)
        await link.settle()
        probe.cancel()
        await link.settle()
        gone = weakref.ref(probe)
        del probe
        gc.collect()
        gc.unfreeze()
        assert gone() is None


@every_pulling_case
@virtual
async def test_rule_3_15_cancel_never_raises(case: Case) -> None:
    error = OSError("the clean-up failed")
    numbers = Numbers(closing_error=error)
    probe = Probe[Any](request=2)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle(1)
        probe.cancel()
        await link.settle(1)
        assert numbers.closed == 1
        # It had to end the stream by itself (take), or was told after the cancel.
        assert probe.error is error or link.told() == [error]
