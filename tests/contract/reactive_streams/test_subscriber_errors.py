"""Chapter 2 of Reactive Streams 1.0.4: a subscriber that raises, and None."""

from __future__ import annotations

from typing import Any, cast

import pytest
from reactivex import operators as ops

from penstock import Event, Fixed, adaptive_flat_map, distinct_within, group_by, spread
from penstock.streams.boundary.strict_subscriber import StrictSubscriber
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, Probe
from tests.helpers.reactive_streams.case import Case, Numbers
from tests.helpers.reactive_streams.harness import connected, every_pulling_case, virtual


@every_pulling_case
@virtual
async def test_rule_2_13_a_subscriber_that_raises_counts_as_cancelled_and_is_reported(
    case: Case,
) -> None:
    error = KeyError("the subscriber's own")

    def fail(probe: Probe[Any], event: Event[Any]) -> None:
        raise error

    numbers = Numbers()
    probe, other = Probe[Any](request=5, on_event=fail), Probe[Any](request=1)
    async with connected(case.over(numbers), probe, case=case) as link:
        await link.settle(2)
        assert probe.names() == ["subscribe", "next"]
        assert numbers.opened == numbers.closed
        assert link.told() == [error]
    async with connected(case.over(Numbers(9)), other, case=case) as link:
        await link.settle(2)
        assert len(other.values) == 1


@pytest.mark.parametrize("method", ["on_subscribe", "on_error", "on_completed"])
@virtual
async def test_rule_2_13_the_other_signals_of_a_subscriber_may_raise_too(method: str) -> None:
    error = KeyError("the subscriber's own")

    class Raising(Probe[int]):
        pass

    def fail(*_: Any) -> None:
        raise error

    setattr(Raising, method, fail)
    publisher, probe = ManualPublisher[int](), Raising(request=1)
    async with connected(publisher, probe) as link:
        if method == "on_error":
            publisher.fail(ValueError())
        elif method == "on_completed":
            publisher.complete()
        else:
            assert publisher.cancels == 1
        assert link.told() == [error]


@virtual
async def test_rule_2_13_none_is_refused_where_a_subscription_or_an_error_is_due() -> None:
    door = StrictSubscriber(Probe[int](), Run())
    with pytest.raises(TypeError):
        door.on_subscribe(cast(Any, None))
    with pytest.raises(TypeError):
        door.on_error(cast(Any, None))


@virtual
async def test_none_is_a_value_like_any_other() -> None:
    publisher, probe = ManualPublisher[None](), Probe[Any](request=9)

    async def nothing(value: None) -> None:
        return value

    stream = publisher.pipe(
        distinct_within(1, by=lambda value: value),
        group_by(lambda value: value),
        spread(),
        adaptive_flat_map(nothing, Fixed(2)),
        ops.map(lambda value: value),
        ops.pairwise(),
    )
    async with connected(stream, probe) as link:
        publisher.send(None)
        await link.settle(2)
        publisher.send(None)
        await link.settle(2)
        publisher.complete()
        await link.settle(2)
        assert (probe.values, probe.completed) == ([(None, None)], True)
