"""Chapter 2 of Reactive Streams 1.0.4: every operator as the subscriber of a publisher.

The publisher is driven by hand. Events are what it sends, so None is as good a value as any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import Fixed, adaptive_flat_map, distinct_within, from_iterable, group_by, spread
from penstock.streams.testing import ManualPublisher, MemorySink, Probe, no_leaks
from tests.helpers.reactive_streams.case import Case
from tests.helpers.reactive_streams.harness import (
    connected,
    every_case,
    every_failing_operator,
    every_operator,
    manual,
    virtual,
)

MANY = 1_000

both_ends = pytest.mark.parametrize("end", ["complete", "fail"])


def finish(publisher: ManualPublisher[int], end: str) -> None:
    if end == "complete":
        publisher.complete()
    else:
        publisher.fail(ValueError("the publisher failed"))


@every_operator
@virtual
async def test_rule_2_01_values_are_asked_for_before_they_come(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any]()
    async with manual(case, probe, publisher) as link:
        probe.request(2)
        await link.settle()
        assert publisher.demand > 0
        assert all(type(n) is int and n > 0 for n in publisher.requests)
        publisher.send(0)
        await link.settle()
        assert publisher.active


@virtual
async def test_rule_2_01_the_doors_of_plain_rx_and_async_for_ask_first() -> None:
    publisher = ManualPublisher[int](on_request=lambda n: None)
    seen: list[int] = []
    subscription = publisher.subscribe(seen.append)
    assert publisher.demand > 0
    publisher.send(1)
    subscription.dispose()
    assert (seen, publisher.cancels, publisher.unsettled) == ([1], 1, [])
    async for value in from_iterable([1, 2]):
        seen.append(value)
    assert seen == [1, 1, 2]


@virtual
async def test_rule_2_01_a_pipeline_and_its_sinks_ask_first() -> None:
    publisher: ManualPublisher[int] = ManualPublisher()

    def answer(n: int) -> None:
        publisher.send(*range(3))
        publisher.complete()

    publisher.on_request = answer
    sinks = MemorySink(), MemorySink()
    async with no_leaks():
        await publisher.to(*sinks).run()
    assert [sink.values for sink in sinks] == [[0, 1, 2]] * 2


@every_operator
@both_ends
@virtual
async def test_rule_2_03_a_terminal_signal_calls_nothing_above(case: Case, end: str) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=2)
    async with manual(case, probe, publisher):
        publisher.send(0)
        if not publisher.active:
            return
        before = list(publisher.subscription.calls)
        finish(publisher, end)
        assert publisher.subscription.calls == before


@every_operator
@both_ends
@virtual
async def test_rule_2_04_after_a_terminal_signal_the_subscription_is_cancelled(
    case: Case, end: str
) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=1)
    async with manual(case, probe, publisher) as link:
        publisher.send(*range(min(3, publisher.demand)))
        finish(publisher, end)
        before = list(publisher.subscription.calls)
        probe.request(5)
        await link.settle()
        probe.request(5)
        probe.cancel()
        await link.settle()
        assert publisher.subscription.calls == before


@every_operator
@virtual
async def test_rule_2_05_a_second_subscription_is_cancelled(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=2)
    async with manual(case, probe, publisher) as link:
        again = publisher.subscribe_again()
        assert again.calls == ["cancel"]
        publisher.send(0)
        asked = sum(publisher.requests)
        for number in range(1, 40):
            probe.request(9)
            await link.settle()
            if publisher.active and publisher.demand:
                publisher.send(number)
        assert not publisher.active or sum(publisher.requests) > asked
        assert (again.calls, probe.names().count("subscribe")) == (["cancel"], 1)


@pytest.mark.parametrize(
    "operator",
    [
        ops.take(2),
        ops.first(),
        ops.take_while(lambda number: number < 1),
        ops.map(lambda number: 1 // (1 - number)),
        ops.filter(lambda number: 1 // (1 - number)),
        ops.flat_map(lambda number: [1 // (1 - number)]),
        ops.scan(lambda _, number: 1 // (1 - number), 0),
        distinct_within(10, by=lambda number: 1 // (1 - number)),
        lambda source: source.pipe(
            group_by(lambda number: 1 // (1 - number)), spread()
        ),
        adaptive_flat_map(lambda number: 1 // (1 - number), Fixed(1)),
        spread(),
    ],
    ids=["take", "first", "take_while", "map", "filter", "flat_map", "scan", "distinct_within",
         "group_by", "adaptive_flat_map", "spread"],
)  # fmt: skip
@virtual
async def test_rule_2_06_a_subscription_that_is_no_longer_needed_is_cancelled(
    operator: Callable[[Any], Any],
) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=9)
    async with connected(publisher.pipe(operator), probe) as link:
        for number in range(3):
            if publisher.active:
                publisher.send(number)
            await link.settle()
        assert publisher.cancels == 1
        assert probe.ended


@every_operator
@virtual
async def test_rule_2_06_a_cancel_from_below_reaches_the_publisher_once(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any](request=1)
    async with manual(case, probe, publisher) as link:
        publisher.send(*range(min(2, publisher.demand)))
        await link.settle()
        probe.cancel()
        await link.settle()
        assert publisher.cancels == 1


@every_operator
@virtual
async def test_rule_2_08_values_that_come_after_cancel_are_tolerated_and_returned(
    case: Case,
) -> None:
    publisher, probe = ManualPublisher[int](misbehaving=True), Probe[Any](request=3)
    async with manual(case, probe, publisher) as link:
        publisher.send(0)
        await link.settle()
        probe.cancel()
        before = list(probe.signals)
        publisher.send(1, 2, 3)
        await link.settle()
        assert probe.signals == before
        assert publisher.unsettled == []


@every_operator
@virtual
async def test_rule_2_09_completion_without_any_request_is_tolerated(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any]()
    async with manual(case, probe, publisher) as link:
        publisher.complete()
        await link.settle()
        probe.request(1)
        await link.settle()
        assert probe.completed


@every_failing_operator
@virtual
async def test_rule_2_10_an_error_without_any_request_is_tolerated(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any]()
    error = ValueError("early")
    async with manual(case, probe, publisher) as link:
        publisher.fail(error)
        await link.settle()
        assert (probe.error, probe.values) == (None if case.early else error, [])


@every_case
@virtual
async def test_rule_2_12_on_subscribe_comes_at_most_once(case: Case) -> None:
    probe = Probe[Any](request=MANY)
    async with connected(case.of(8), probe, case=case) as link:
        await link.settle()
        assert probe.names().count("subscribe") == 1
