"""The rules that each source and operator keeps towards the next stage, without correction.

`StrictSubscriber` forgives: it holds back what was not requested, and drops what comes after the
end or after a cancel. Between two stages nothing does.
"""

from __future__ import annotations

import threading

import pytest

from penstock.streams.testing import ManualPublisher
from tests.helpers.reactive_streams.between import Below, absorbs, end, finished, threads_above
from tests.helpers.reactive_streams.case import Case, Numbers
from tests.helpers.reactive_streams.harness import (
    every_case,
    every_operator,
    every_pulling_case,
    standing_below,
    virtual,
)

MANY = 1_000

both_ends = pytest.mark.parametrize("end", ["complete", "fail"])


@every_case
@virtual
async def test_rule_1_01_1_05_a_stage_sends_no_more_than_asked_for_and_ends_once(
    case: Case,
) -> None:
    below = Below()
    async with standing_below(case.of(20), below, case) as link:
        await link.settle()
        assert below.values == []
        for n in (1, 3, 5, MANY):
            below.request(n)
            assert len(below.values) <= below.requested
            await link.settle()
            assert len(below.values) <= below.requested
        assert not case.lossless or case.seen(below.values) == case.wanted(20)
        assert below.names()[:-1] == ["subscribe", *["next"] * len(below.values)]
        assert below.completed or (below.ended and not case.lossless)


@every_operator
@both_ends
@pytest.mark.parametrize("demand", [None, 1, MANY])
@virtual
async def test_rule_1_07_a_stage_ends_once_and_says_nothing_afterwards(
    case: Case, end: str, demand: int | None
) -> None:
    publisher, below = ManualPublisher[int](), Below(demand)
    async with standing_below(publisher.pipe(case.operator), below, case) as link:
        for number in range(5):
            if publisher.active and publisher.demand:
                publisher.send(number)
        if publisher.active:
            publisher.complete() if end == "complete" else publisher.fail(ValueError())
        for _ in range(3):
            await link.settle()
            below.request(5)
        below.request(MANY)
        await link.settle()
        assert below.ended
        assert below.names()[1:-1] == ["next"] * len(below.values)
        assert publisher.cancels == 0 or not publisher.active
        assert publisher.unsettled == []


@every_case
@virtual
async def test_rule_1_08_2_08_a_stage_is_silent_once_it_is_cancelled_inside_a_signal(
    case: Case,
) -> None:
    """Inside each of the first eight: chunks have grown to eight by then."""
    # A pool of processes takes a second to start.
    for place in (1, 2, 5) if case.calls_in_pool else range(1, 9):
        after: list[int] = []

        def cancel(below: Below, place: int = place, after: list[int] = after) -> None:
            if len(below.values) == place:
                below.cancel()
                after.append(len(below.signals))

        below = Below(MANY, on_value=cancel)
        async with standing_below(case.of(20), below, case) as link:
            await link.settle()
            assert (place, after) == (place, [len(below.signals)] if below.left else [])
            assert below.left or len(below.values) < place
            assert (place, link.unfinished()) == (place, 0)


@every_operator
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.15])
@pytest.mark.parametrize("demand", [None, 1, MANY])
@virtual
async def test_rule_2_06_3_12_a_stage_that_is_cancelled_cancels_once_and_gives_back_what_it_has(
    case: Case, demand: int | None, seconds: float
) -> None:
    publisher, below = ManualPublisher[int](), Below(demand)
    async with standing_below(publisher.pipe(case.operator), below, case) as link:
        for number in range(8):
            if publisher.active and publisher.demand:
                publisher.send(number)
        await link.settle(seconds)
        had_ended = below.ended
        below.cancel()
        before = list(below.signals)
        # Timers and tasks that are left fail the test, too; a thread ends when it has done.
        await link.settle()
        assert below.signals == before
        assert publisher.cancels == 1 or had_ended
        assert publisher.unsettled == []


@every_case
@virtual
async def test_rule_3_02_3_03_a_stage_that_is_asked_inside_signals_does_not_go_deeper_and_deeper(
    case: Case,
) -> None:
    n = 300
    below = Below(on_value=lambda below: below.request(1))
    async with standing_below(case.of(n), below, case) as link:
        await link.settle()
        below.request(1)
        await link.settle(1_200)
        assert below.depth <= 2
        assert below.completed
        assert not case.lossless or len(below.values) == len(case.outputs(n))


@every_pulling_case
@virtual
async def test_rule_3_12_a_source_is_read_no_further_than_it_was_asked_for(case: Case) -> None:
    numbers = Numbers()
    below = Below(2)
    async with standing_below(case.over(numbers), below, case) as link:
        await link.settle(2)
        assert len(below.values) <= 2
        below.cancel()
        await link.settle(2)
        assert numbers.opened == numbers.closed == 1


@every_operator
@virtual
async def test_rule_2_07_a_stage_asks_and_cancels_on_its_own_thread_alone(case: Case) -> None:
    publisher, below = ManualPublisher[int](), Below(1)
    async with standing_below(publisher.pipe(case.operator), below, case) as link:
        threads = threads_above(publisher)
        for number in range(20):
            if publisher.active and publisher.demand:
                publisher.send(number)
            below.request(1)
            await link.settle()
        below.cancel()
        assert not publisher.active
        assert threads <= {threading.get_ident()}


@every_operator
@virtual
async def test_a_stage_finishes_nothing_that_has_not_been_accepted_below(case: Case) -> None:
    publisher, below = ManualPublisher[int](), Below(MANY, hold=True)
    stream = publisher.pipe(case.operator)
    async with standing_below(stream, below, case) as link:
        for number in range(5):
            if publisher.active and publisher.demand:
                publisher.send(number)
        await link.settle()
        assert absorbs(stream) or finished(publisher) == []
        while below.events:
            end([below.events.pop()], "finish")
            await link.settle()
