"""Chapter 3 of Reactive Streams 1.0.4, the rules on demand, for every source and operator."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from penstock import from_iterable
from penstock.streams.testing import ManualPublisher, Probe
from tests.helpers.reactive_streams.case import Case, Numbers
from tests.helpers.reactive_streams.harness import (
    CASES,
    connected,
    every,
    every_case,
    every_failing_case,
    every_operator,
    manual,
    virtual,
)

MANY = 1_000
LARGEST = 2**63 - 1


def demanding(everywhere: list[Any], others: list[Any]) -> Any:
    """Demands for every case, and for one case others that differ only for `StrictSubscriber`."""
    (plain,) = [case for case in CASES if case.name == "from_iterable"]
    pairs = [(case, demand) for case in CASES for demand in everywhere]
    pairs += [(plain, demand) for demand in others]
    return every(case__demand=pairs)


def one_more(probe: Probe[Any], _: Any) -> None:
    probe.request(1)


def test_rule_3_01_only_on_subscribe_hands_out_the_subscription() -> None:
    probe = Probe[int]()
    connect: Any = from_iterable([1]).connect
    assert connect(probe) is None
    assert probe.subscription is not None
    probe.cancel()


@every_case
@virtual
async def test_rule_3_02_request_may_be_called_inside_on_subscribe_and_on_next(case: Case) -> None:
    probe = Probe[Any](request=1, on_event=one_more)
    n = 30 if case.name == "rate_limit" else 300
    async with connected(case.of(n), probe, case=case) as link:
        await link.settle(60)
        assert probe.completed
        if case.lossless:
            assert case.seen(probe.values) == case.wanted(n)


@every_case
@virtual
async def test_rule_3_03_request_and_on_next_do_not_call_each_other_deeper_and_deeper(
    case: Case,
) -> None:
    # Python gives up at 1,000 calls within each other; no operator keeps more than 1,024 events.
    n = 1_024
    probe = Probe[Any](request=1, on_event=one_more)
    async with connected(case.of(n), probe, case=case) as link:
        await link.settle(1_200)
        assert (probe.completed, probe.depth) == (True, 1)
        assert not case.lossless or len(probe.values) == len(case.outputs(n))


@every_case
@virtual
async def test_rule_3_08_demand_adds_up(case: Case) -> None:
    class Asking(Probe[Any]):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            self.request(2)
            self.request(3)

    probe = Asking()
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        wanted = min(5, len(case.outputs(20)))
        assert len(probe.values) == wanted
        for _ in range(3):
            probe.request(1)
        await link.settle()
        wanted = min(8, len(case.outputs(20)))
        assert len(probe.values) == wanted or not case.lossless


@demanding([0], others=[-1, -(2**70)])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@virtual
async def test_rule_3_09_a_demand_below_1_is_answered_by_value_error(
    case: Case, inside: bool, demand: int
) -> None:
    def ask(probe: Probe[Any], _: Any) -> None:
        probe.request(demand)

    probe = Probe[Any](request=5 if inside else None, on_event=ask if inside else None)
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        if not inside:
            probe.request(demand)
        assert probe.names() == (
            ["subscribe", "next", "error"] if inside else ["subscribe", "error"]
        )
        assert isinstance(probe.error, ValueError)
        assert "non-positive" in str(probe.error)
        probe.request(1)
        await link.settle()
        assert probe.names()[-1] == "error"


@demanding([1.5], others=["1", True, None])
@virtual
async def test_rule_3_09_a_demand_that_is_not_a_whole_number_is_answered_by_type_error(
    case: Case, demand: Any
) -> None:
    probe = Probe[Any]()
    async with connected(case.of(5), probe, case=case) as link:
        await link.settle()
        probe.request(demand)
        await link.settle()
        assert probe.names() == ["subscribe", "error"]
        assert isinstance(probe.error, TypeError)


@every_operator
@virtual
async def test_rule_3_09_a_refused_demand_cancels_the_upstream(case: Case) -> None:
    publisher, probe = ManualPublisher[int](), Probe[Any]()
    async with manual(case, probe, publisher):
        probe.request(0)
        assert publisher.cancels == 1


@every_case
@virtual
async def test_rule_3_10_request_calls_on_next_before_it_returns_where_that_is_declared(
    case: Case,
) -> None:
    probe = Probe[Any]()
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        probe.request(2)
        assert bool(probe.values) is case.synchronous
        await link.settle()
        assert probe.values


@every_case
@virtual
async def test_rule_3_11_request_calls_a_terminal_signal_before_it_returns_where_declared(
    case: Case,
) -> None:
    probe = Probe[Any]()
    async with connected(case.of(4), probe, case=case) as link:
        await link.settle()
        probe.request(MANY)
        assert probe.completed is case.synchronous
        await link.settle()
        assert probe.completed


@every_failing_case
@virtual
async def test_rule_3_16_request_never_raises(case: Case) -> None:
    error = ValueError("at once")
    probe = Probe[Any]()
    numbers = Numbers(0, error)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle()
        probe.request(5)
        await link.settle()
        assert probe.error is error


@demanding([(LARGEST, 1)], others=[(LARGEST, LARGEST), (2**70,), (1, 2**70)])
@virtual
async def test_rule_3_17_any_demand_up_to_unbounded_is_honoured(
    case: Case, demand: tuple[int, ...]
) -> None:
    probe = Probe[Any]()
    async with connected(case.of(20), probe, case=case) as link:
        await link.settle()
        for n in demand:
            probe.request(n)
        await link.settle()
        assert probe.completed
        assert len(probe.values) == len(case.outputs(20)) or not case.lossless


@virtual
async def test_rule_3_17_any_number_of_requests_is_honoured() -> None:
    probe = Probe[int]()
    async with connected(from_iterable(count()), probe):
        for _ in range(10_000):
            probe.request(1)
        assert len(probe.values) == 10_000
