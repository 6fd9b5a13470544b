from __future__ import annotations

from typing import Any

from penstock import Backoff, retry
from penstock.streams.execution.waiting import Waiting
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run
from penstock.streams.testing import run_virtual


def event(value: int) -> Event[Any]:
    return Event(value, 0.0, Nobody())


def again(event: Event[Any]) -> None: ...


def test_more_may_be_requested_until_as_many_siblings_wait_as_results_may() -> None:
    waiting, turn = Waiting("stop", Run(), 2, again), Any
    for value, room in [(0, True), (1, True), (2, False)]:
        waiting.siblings.enter(turn, event(value))  # type: ignore[arg-type]
        assert waiting.has_room(9) is room


def test_events_are_held_from_the_moment_when_as_many_as_the_limit_wait_for_an_attempt() -> None:
    async def story() -> None:
        waiting = Waiting(retry(3, Backoff(1)), Run(), 9, again)
        waiting.put_retry(event(0), 0.0, 2)
        assert waiting.has_room(2)
        waiting.put_retry(event(1), 0.0, 2)
        assert not waiting.put([event(2)], 2)
        assert not waiting.has_room(2)
        waiting.clear()

    run_virtual(story())


def test_events_are_held_when_the_limit_has_fallen_below_those_that_wait_for_an_attempt() -> None:
    async def story() -> None:
        waiting = Waiting(retry(3, Backoff(1)), Run(), 9, again)
        for value in range(3):
            waiting.put_retry(event(value), 0.0, 9)
        assert waiting.put([event(3)], 9)
        waiting.put_retry(event(4), 0.0, 2)
        assert waiting.held
        assert not waiting.inbox
        waiting.clear()

    run_virtual(story())


def test_what_was_not_tried_is_withdrawn_wherever_it_waits() -> None:
    async def story() -> None:
        waiting, turn = Waiting(retry(3, Backoff(1)), Run(), 9, again), Any
        tried, new, others = event(0), event(1), [event(2), event(3)]
        for one in others:
            waiting.siblings.enter(turn, one)  # type: ignore[arg-type]
        waiting.put([new], 1)
        waiting.put_retry(tried, 0.0, 1)
        assert waiting.held
        waiting.retry(tried, 1)
        assert waiting.withdraw(lambda _: True) == [new, others[1]]
        assert list(waiting.inbox) == [tried]
        assert len(waiting) == 2
        waiting.clear()

    run_virtual(story())
