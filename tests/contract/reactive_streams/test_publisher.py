"""Chapter 1 of Reactive Streams 1.0.4, for every source and every operator."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.streams.testing import ManualPublisher, Probe
from tests.helpers.reactive_streams.between import broken
from tests.helpers.reactive_streams.case import Case, Numbers
from tests.helpers.reactive_streams.harness import (
    connected,
    every_case,
    every_failing_case,
    every_operator,
    every_pulling_case,
    manual,
    virtual,
)

MANY = 1_000


@every_case
@virtual
async def test_rule_1_01_never_more_values_come_than_were_requested(case: Case) -> None:
    probe = Probe[Any]()
    wanted = len(case.outputs(20))
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        assert probe.values == []
        for n in (1, 3, 5):
            probe.request(n)
            await link.settle()
            expected = min(probe.requested, wanted)
            assert len(probe.values) == expected or (
                not case.lossless and len(probe.values) <= expected
            )


@every_case
@virtual
async def test_rule_1_02_fewer_values_than_requested_may_come_and_then_the_end(case: Case) -> None:
    probe = Probe[Any](request=MANY)
    async with connected(case.of(5), probe, case=case) as link:
        await link.settle()
        assert case.seen(probe.values) == case.wanted(5)
        assert probe.completed


@every_case
@virtual
async def test_rule_1_03_signals_to_one_subscriber_never_overlap(case: Case) -> None:
    probe = Probe[Any](request=1, on_event=lambda probe, _: probe.request(2))
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        assert probe.completed
        assert probe.depth == 1


@every_failing_case
@virtual
async def test_rule_1_04_a_failure_is_signalled_by_on_error(case: Case) -> None:
    error = ValueError("at the fourth")
    probe = Probe[Any](request=MANY)
    async with connected(case.over(Numbers(4, error)), probe, case=case) as link:
        await link.settle()
        if probe.completed:
            # It had seen enough before the failure.
            assert len(case.outputs(MANY)) <= len(case.outputs(4))
            return
        assert probe.error is error
        assert probe.names().count("error") == 1
        assert all(value in case.wanted(4) for value in case.seen(probe.values))


@pytest.mark.parametrize("n", [0, 1, 7])
@every_case
@virtual
async def test_rule_1_05_a_finished_stream_is_signalled_by_on_completed(case: Case, n: int) -> None:
    probe = Probe[Any](request=MANY)
    async with connected(case.of(n), probe, case=case) as link:
        await link.settle()
        assert (probe.names().count("completed"), probe.error) == (1, None)
        assert probe.names()[-1] == "completed"


@every_case
@virtual
async def test_rule_1_05_a_stream_completes_with_the_last_value_that_was_asked_for(
    case: Case,
) -> None:
    wanted = len(case.outputs(7))
    probe = Probe[Any](request=wanted)
    async with connected(case.of(7), probe, case=case) as link:
        await link.settle()
        assert not case.lossless or len(probe.values) == wanted
        assert probe.completed is case.sees_end


@every_case
@virtual
async def test_rule_1_06_after_the_end_the_subscription_counts_as_cancelled(case: Case) -> None:
    probe = Probe[Any](request=MANY)
    async with connected(case.of(5), probe, case=case) as link:
        await link.settle()
        before = list(probe.signals)
        probe.request(1)
        probe.request(-1)
        probe.cancel()
        await link.settle()
        assert probe.signals == before


@every_pulling_case
@virtual
async def test_rule_1_06_what_a_source_holds_is_released_at_its_end(case: Case) -> None:
    numbers = Numbers(5)
    probe = Probe[Any](request=MANY)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle()
        assert (numbers.opened, numbers.closed) == (1, 1)


@every_operator
@pytest.mark.parametrize("end", ["complete", "fail"])
@virtual
async def test_rule_1_07_nothing_follows_a_terminal_signal(case: Case, end: str) -> None:
    publisher, probe = ManualPublisher[int](misbehaving=True), Probe[Any](request=MANY)
    async with manual(case, probe, publisher) as link:
        publisher.send(0)
        if end == "complete":
            publisher.complete()
        else:
            publisher.fail(ValueError())
        await link.settle()
        assert probe.ended
        before = list(probe.signals)
        publisher.send(1, 2)
        publisher.complete()
        publisher.fail(KeyError())
        await link.settle()
        assert probe.signals == before


@every_pulling_case
@virtual
async def test_rule_1_08_after_cancel_signals_stop(case: Case) -> None:
    numbers = Numbers()
    wanted = min(10, len(case.outputs(MANY)))
    probe = Probe[Any](request=10 * MANY)
    after: list[int] = []

    def cancel_at_the_last(probe: Probe[Any], _: Any) -> None:
        if len(probe.values) == wanted:
            probe.cancel()
            after.append(len(probe.signals))

    probe = Probe[Any](request=10 * MANY, on_event=cancel_at_the_last)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle(5)
        assert after == [len(probe.signals)]
        assert numbers.opened == numbers.closed == 1


@every_case
@virtual
async def test_rule_1_09_on_subscribe_comes_first(case: Case) -> None:
    probe = Probe[Any](request=3)
    async with connected(case.of(5), probe, case=case) as link:
        await link.settle()
        assert probe.names()[0] == "subscribe"
        assert probe.names().count("subscribe") == 1


@every_case
@virtual
async def test_rule_1_09_a_missing_subscriber_is_refused_to_the_caller(case: Case) -> None:
    with pytest.raises(TypeError, match="subscriber"):
        case.of(5).connect(cast(Any, None))


@every_operator
@virtual
async def test_rule_1_09_any_other_refusal_is_on_subscribe_and_then_on_error(case: Case) -> None:
    error = OSError("the factory failed")
    assert case.operator is not None
    probe = Probe[Any](request=1)
    async with connected(broken(error).pipe(case.operator), probe, case=case) as link:
        await link.settle()
        before = ["next"] if case.early else []
        assert (probe.names(), probe.error) == (["subscribe", *before, "error"], error)


@every_case
@virtual
async def test_rule_1_10_each_subscriber_gets_a_sequence_of_its_own(case: Case) -> None:
    stream = case.of(6)
    probes = [Probe[Any](request=MANY) for _ in range(3)]
    if case.name == "MemorySource":
        probes = probes[:1]  # Its connections share the items, as a queue's consumers do.
    for probe in probes:
        async with connected(stream, probe, case=case) as link:
            await link.settle()
    assert [case.seen(probe.values) for probe in probes] == [case.wanted(6)] * len(probes)


@every_case
@virtual
async def test_rule_1_10_a_subscriber_that_comes_twice_is_served_once(case: Case) -> None:
    probe = Probe[Any](request=MANY)
    async with connected(case.of(6), probe, probe, case=case) as link:
        await link.settle()
        assert case.seen(probe.values) == case.wanted(6)
        assert probe.names().count("completed") == 1


@every_case
@virtual
async def test_rule_1_11_no_subscriber_gets_more_than_its_own_demand(case: Case) -> None:
    slow, fast = Probe[Any](request=2), Probe[Any](request=MANY)
    async with connected(case.of(6), slow, fast, case=case) as link:
        await link.settle()
        assert len(slow.values) <= 2
        # Of a store, what one has seen is a duplicate for the other.
        if case.name not in ("MemorySource", "distinct_within in a store"):
            assert case.seen(fast.values) == case.wanted(6)
