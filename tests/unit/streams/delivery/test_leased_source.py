"""A source that holds its events on lease sends what it holds, and gives the rest back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.streams.base.errors import BadLine
from penstock.streams.delivery.lease import Lease
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.failures.policy import OnBadInput
from penstock.streams.protocol.event import Ending, Event, end_all, finish_all
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing import Probe, run_virtual


class Broker(LeasedSource[int]):
    """Lends numbers; negative ones are no events, and `lost` are another reader's by now."""

    def __init__(self, on_bad: OnBadInput = "report") -> None:
        self.probe: Probe[Any] = Probe(hold=True)
        super().__init__(self.probe, Run(), StageInfo("broker"), on_bad, retry_after=3.0)
        self.nack = self._take_back
        self.lost: set[int] = set()
        self.opened = 0
        self.back: list[int] = []
        self.refused: list[int] = []
        self.start()

    def open(self) -> None:
        self.opened += 1

    def holds(self, token: int, /) -> bool:
        return token not in self.lost

    def event(self, token: int, now: float, /) -> Event[Any] | None:
        if token >= 0:
            return Event(token, now, self, token)
        self.bad(token, BadLine(f"{token} is negative"), str(token), now)
        return None

    def give_back(self, tokens: Iterable[int], /) -> None:
        self.back += tokens

    def refuse(self, token: int, /) -> None:
        self.refused.append(token)

    def given_again(self, tokens: list[int], /) -> None:
        self.arrived.extendleft(reversed(tokens))
        self.wake()

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        self.retry([event.token for event in events])


def test_a_lease_that_is_over_is_not_renewed_and_one_that_is_held_is() -> None:
    now = 0.0
    lease = Lease(lambda: now, until=10.0)
    now = 9.0
    lease.renew(19.0)
    assert lease.held
    now = 19.0
    assert not lease.held
    lease.renew(29.0)
    assert not lease.held


def test_it_opens_once_and_what_it_does_not_hold_any_more_does_not_leave() -> None:
    async def story() -> None:
        broker = Broker()
        assert broker.opened == 0
        broker.request(1)
        broker.arrived.extend(range(6))
        broker.lost = {1, 3}
        broker.wake()
        broker.request(9)
        assert broker.opened == 1
        assert broker.probe.values == [0, 2, 4, 5]
        assert broker.back == [1, 3]

    run_virtual(story())


def test_what_is_no_event_is_refused_or_ends_the_stream_behind_the_events_before_it() -> None:
    async def story() -> None:
        reports, stops = Broker(), Broker("stop")
        for broker in (reports, stops):
            # So that more than one are sent at a time.
            broker.arrived.extend((1, 2, 3, -1, 5, 6))
            broker.request(100)
        assert reports.probe.values == [1, 2, 3, 5, 6]
        assert reports.refused == [-1]
        finish_all(stops.probe.events)
        assert stops.probe.values == [1, 2, 3]
        assert isinstance(stops.probe.error, BadLine)
        assert (stops.back, stops.refused) == ([-1, 5, 6], [])

    run_virtual(story())


def test_what_has_failed_comes_again_after_a_while() -> None:
    async def story() -> None:
        broker = Broker()
        broker.arrived.extend((1, 2, 3))
        broker.request(4)
        end_all(broker.probe.events[:1], Ending.FAILED, ValueError())
        await asyncio.sleep(2.9)
        assert broker.probe.values == [1, 2, 3]
        await asyncio.sleep(0.2)
        assert broker.probe.values == [1, 2, 3, 1]
        assert broker.run.nesting.left == 0
        broker.cancel()
        assert broker.run.nesting.left == 0

    run_virtual(story())


def test_what_has_failed_and_not_come_again_at_the_end_is_left_to_others_with_what_waits() -> None:
    async def story() -> None:
        broker = Broker()
        broker.arrived.extend((1, 2, 3))
        broker.request(2)
        end_all(broker.probe.events[:1], Ending.FAILED, ValueError())
        broker.cancel()
        assert broker.run.nesting.left == 1
        assert broker.back == [3]
        # No timer of it is left.
        await asyncio.sleep(4)
        assert broker.probe.values == [1, 2]

    run_virtual(story())
