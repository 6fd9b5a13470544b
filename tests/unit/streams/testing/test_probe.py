from __future__ import annotations

import asyncio

import pytest
from reactivex import operators as ops

from penstock import Event, from_iterable, group_by, spread
from penstock.streams.runtime.context import Run
from penstock.streams.testing import ManualPublisher, Probe, Received, no_leaks, run_virtual


def test_a_probe_gets_what_it_asks_for_and_finishes_it() -> None:
    publisher, probe = ManualPublisher[int](), Probe[int](request=2)
    publisher.connect(probe)
    publisher.send(1, 2)
    assert (probe.values, publisher.demand, publisher.unsettled) == ([1, 2], 0, [])
    probe.request(1)
    assert publisher.requests == [2, 1]


def test_a_holding_probe_leaves_its_events_to_the_test() -> None:
    publisher, probe = ManualPublisher[int](), Probe[int](request=2, hold=True)
    publisher.connect(probe)
    publisher.send(1, 2)
    assert publisher.unsettled == [1, 2]
    probe.events[0].give_back()
    assert (publisher.unsettled, publisher.returned) == ([2], [1])
    probe.events[1].finish()


def test_signals_have_their_times_and_depths() -> None:
    async def story() -> list[Received]:
        probe = Probe[int](request=9)
        from_iterable([1]).pipe(ops.delay(2.0)).connect(probe)

        await asyncio.sleep(3)
        return probe.signals

    assert run_virtual(story()) == [
        Received("subscribe", None, 0.0, 1),
        Received("next", 1, 2.0, 1),
        Received("completed", None, 2.0, 1),
    ]


def test_a_signal_inside_another_is_one_deeper() -> None:
    publisher = ManualPublisher[int](misbehaving=True)

    def send_more(probe: Probe[int], event: Event[int]) -> None:
        if event.value == 1:
            publisher.send(2)

    probe = Probe[int](request=2, on_event=send_more)
    publisher.attach(probe, Run())
    publisher.send(1)
    assert [one.depth for one in probe.signals] == [1, 1, 2]


def test_a_second_subscription_is_cancelled_and_the_first_goes_on() -> None:
    one, other, probe = ManualPublisher[int](), ManualPublisher[int](), Probe[int](request=1)
    one.connect(probe)
    other.connect(probe)
    one.send(1)
    assert (other.cancels, one.cancels, probe.values) == (1, 0, [1])


def test_a_well_behaved_publisher_refuses_to_send_what_was_not_requested() -> None:
    publisher, probe = ManualPublisher[int](), Probe[int](request=1)
    publisher.connect(probe)
    publisher.send(1)
    with pytest.raises(AssertionError, match="not requested"):
        publisher.send(2)
    probe.cancel()
    with pytest.raises(AssertionError, match="cancelled"):
        publisher.complete()


def test_unsettled_events_are_leaks() -> None:
    publisher, probe = ManualPublisher[int](), Probe[int](request=2, hold=True)
    publisher.connect(probe)
    with pytest.raises(AssertionError, match="1 unsettled events"), no_leaks():
        publisher.send(1)
    probe.events[0].finish()


def test_a_turn_that_is_not_given_up_is_a_leak() -> None:
    publisher, probe = ManualPublisher[int](), Probe[int](request=2, hold=True)

    def work() -> None:
        publisher.pipe(group_by(lambda value: value), spread()).connect(probe)
        publisher.send(1)
        # The event ends, but somebody took its turn and forgot about it.
        probe.events[0].turn = None
        probe.events[0].finish()

    with pytest.raises(AssertionError, match="1 turns not given up"), no_leaks():
        work()
