"""No stage that calls the user's code begins an event whose lease the source has lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from reactivex import operators as ops

from penstock import Flowable, adaptive_flat_map, batch, chunk, collect, for_each, group_by, spread
from penstock.streams.failures.backoff import Backoff
from penstock.streams.failures.policy import retry
from penstock.streams.limits import Fixed, Shared
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import VirtualTimeLoop, run_virtual


class Lending(SourceStage[int]):
    """Numbers, each its own token; those in `lost` are another reader's by now."""

    def __init__(
        self, downstream: Subscriber[int], run: Run, info: StageInfo, count: int, lost: set[int]
    ) -> None:
        super().__init__(downstream, run, info)
        self._left = list(range(count))
        self._lost = lost
        self.given_back: list[int] = []
        self.nack = self._take_back
        run.lessors.append(self)

    def holds(self, token: int, /) -> bool:
        return token not in self._lost

    def _take_back(self, events: list[Event[int]], error: BaseException | None) -> None:
        self.given_back += [event.token for event in events]

    def take_away(self) -> None:
        """Lose what is left, and withdraw what has not begun."""
        self._lost |= set(range(100))
        self.run.withdraw()

    def produce(self) -> None:
        while self.demand and self._left:
            number = self._left.pop(0)
            self.emit(number, self.run.now(), number)
        if not self._left:
            self.complete()


class Case:
    """A stream of numbers, the handler that loses the leases of some, and what was begun."""

    def __init__(self, count: int = 6, lost: set[int] | None = None) -> None:
        self.begun: list[int] = []
        self.lost: set[int] = set()
        self.loses = {3, 4} if lost is None else lost
        self._count = count
        self.stream = Flowable[int](self._attach, StageInfo("lending"))

    def _attach(self, downstream: Subscriber[int], run: Run) -> None:
        self.source = Lending(downstream, run, self.stream.info, self._count, self.lost)
        self.source.start()

    def begin(self, number: int) -> int:
        self.begun.append(number)
        if number == 1:
            self.lost |= self.loses
        return number

    async def begin_later(self, number: int) -> int:
        self.begin(number)
        await asyncio.sleep(0.1)
        return number

    def begin_all(self, numbers: list[int]) -> list[int]:
        return [self.begin(number) for number in numbers]


def parity(number: int) -> int:
    return number % 2


def twice(number: int) -> list[int]:
    return [number, number]


def worked(case: Case, *operators: Any) -> tuple[list[int], dict[str, Any]]:
    """What arrived, and how the source's events ended."""
    arrived: list[Any] = []

    async def work() -> dict[str, Any]:
        report = await case.stream.pipe(*operators).to(collect(arrived)).run()
        numbers: dict[str, Any] = report.statistics
        return numbers

    return arrived, run_virtual(work())


STAGES: dict[str, Callable[[Case], list[Any]]] = {
    "plain": lambda case: [adaptive_flat_map(case.begin)],
    "async": lambda case: [adaptive_flat_map(case.begin_later, limit=Fixed(2))],
    "async, learning": lambda case: [adaptive_flat_map(case.begin_later)],
    "ordered": lambda case: [adaptive_flat_map(case.begin_later, limit=Fixed(2), ordered=True)],
    "with a timeout": lambda case: [adaptive_flat_map(case.begin_later, Fixed(2), timeout=9)],
    "grouped, plain": lambda case: [
        group_by(parity),
        spread(),
        adaptive_flat_map(case.begin),
    ],
    "grouped, async": lambda case: [
        group_by(parity),
        spread(),
        adaptive_flat_map(case.begin_later, limit=Fixed(2)),
    ],
    "batch": lambda case: [batch(case.begin_all, max_size=2)],
    "grouped, batch": lambda case: [
        group_by(parity),
        spread(),
        batch(case.begin_all, max_size=2),
    ],
}


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_lost_before_it_begins_is_given_back_and_the_others_go_on(stage: str) -> None:
    case = Case()
    arrived, numbers = worked(case, *STAGES[stage](case))
    assert sorted(case.begun) == sorted(arrived) == [0, 1, 2, 5]
    assert (numbers["finished"], numbers["returned"], numbers["failed"]) == (4, 2, 0)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stream_ends_of_which_nothing_may_begin(stage: str) -> None:
    case = Case(200, lost=set(range(2, 200)))
    arrived, numbers = worked(case, *STAGES[stage](case))
    assert sorted(arrived) == [0, 1]
    assert (numbers["finished"], numbers["returned"]) == (2, 198)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_lost_between_two_attempts_has_no_other(asynchronous: bool) -> None:
    case = Case()

    def fail(number: int) -> None:
        case.begin(number)
        if number in (1, 3):
            raise ValueError("again")

    async def fail_later(number: int) -> None:
        fail(number)

    case.loses = {1, 4}
    again = retry(5, Backoff(1.0, cap=1.0), "skip")
    handler: Any = fail_later if asynchronous else fail
    _, numbers = worked(case, adaptive_flat_map(handler, Fixed(3), on_error=again))
    assert [case.begun.count(n) for n in range(6)] == [1, 1, 1, 5, 0, 1]
    assert (numbers["finished"], numbers["returned"], numbers["failed"]) == (3, 2, 1)


@pytest.mark.parametrize("limit", [1, 2])
def test_an_event_whose_slot_gives_way_to_the_loop_can_be_withdrawn(limit: int) -> None:
    case = Case()
    given_back: list[int] = []

    def take_away() -> None:
        case.source.take_away()
        given_back.extend(case.source.given_back)

    async def work(number: int) -> int:
        case.begun.append(number)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        if number == 2:
            loop.call_soon(take_away)
            # The slice is over: before the next event the slot lets the loop go on.
            loop.advance(1)
        return number

    _, numbers = worked(case, adaptive_flat_map(work, Fixed(limit)))
    assert case.begun == [0, 1, 2]
    assert 3 in given_back
    assert (numbers["finished"], numbers["returned"]) == (3, 3)


def test_what_came_of_a_lost_event_is_not_begun_either() -> None:
    case = Case()
    arrived, numbers = worked(case, ops.flat_map(twice), adaptive_flat_map(case.begin))
    assert arrived == [0, 0, 1, 1, 2, 2, 5, 5]
    assert (numbers["finished"], numbers["returned"]) == (4, 2)


def test_what_came_of_several_is_not_begun_when_one_of_them_is_lost() -> None:
    case = Case(6, lost={3})
    arrived, numbers = worked(case, chunk(2), adaptive_flat_map(case.begin_all))
    assert arrived == [[0, 1], [4, 5]]
    assert (numbers["finished"], numbers["returned"]) == (4, 2)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sink_that_calls_a_function_does_not_begin_what_is_lost(asynchronous: bool) -> None:
    case = Case()
    function: Any = case.begin_later if asynchronous else case.begin

    async def work() -> dict[str, Any]:
        report = await case.stream.to(for_each(function)).run()
        numbers: dict[str, Any] = report.statistics
        return numbers

    numbers = run_virtual(work())
    assert case.begun == [0, 1, 2, 5]
    assert (numbers["finished"], numbers["returned"], numbers["failed"]) == (4, 2, 0)


@pytest.mark.parametrize("on_error", ["stop", retry(2)])
def test_an_event_that_waits_for_its_first_attempt_can_be_withdrawn(on_error: Any) -> None:
    case = Case(3, lost=set())

    async def story() -> None:
        # Under a shared limit a stage has one event more than it has slots.
        stage = adaptive_flat_map(case.begin_later, limit=Shared(Fixed(1)), on_error=on_error)
        async with case.stream.pipe(stage).to(collect([])).start() as running:
            await asyncio.sleep(0.05)
            case.source.take_away()
            assert case.source.given_back == [1]
            running.cancel()

    run_virtual(story())


def test_events_of_a_key_go_on_when_one_of_several_that_shared_its_turn_is_withdrawn() -> None:
    case = Case(8)

    def take_away() -> None:
        case.lost.add(0)
        case.source.run.withdraw(lambda event: event.value == 0)

    async def work(number: int) -> int:
        case.begun.append(number)
        if number == 0:
            # While the other result of its parent waits for its turn, which it has by then.
            asyncio.get_running_loop().call_later(1, take_away)
            raise ValueError("busy")
        return number

    arrived, _ = worked(
        case,
        *(group_by(parity), spread(), ops.flat_map(twice)),
        adaptive_flat_map(work, Fixed(2), overload=lambda _: 5.0, on_error="skip"),
    )
    assert case.begun.count(0) == 1
    assert sorted(arrived) == sorted([*range(1, 8), *range(1, 8)])


def in_hundreds(number: int) -> list[int]:
    return [number, number + 100, number + 200]


def test_the_turn_goes_on_behind_which_an_event_is_withdrawn() -> None:
    case = Case(1)

    async def work(number: int) -> int:
        case.begun.append(number)
        if number == 0:
            await asyncio.sleep(1)
            case.source.run.withdraw(lambda event: event.value == 100)
            await asyncio.sleep(1)
            assert case.begun == [0]
        return number

    operators = group_by(parity), spread(), ops.flat_map(in_hundreds)
    arrived, _ = worked(case, *operators, adaptive_flat_map(work, Fixed(3)))
    assert arrived == [0, 200]
