"""Bounds in time, in the operators."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import from_iterable, inbox, monitor, route, violations
from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.event import Event
from penstock.streams.runtime.context import Run as PipelineRun
from penstock.streams.temporal import TimedFormula, Violated, Violation
from penstock.streams.testing import (
    COMPLETED,
    ManualPublisher,
    MemorySink,
    MemorySource,
    Probe,
    VirtualClock,
    VirtualTimeLoop,
)
from penstock.streams.testing.plugin import Run

SOON = "G(a -> F[<=5s] b)"
TESTS: dict[str, Any] = {name: lambda event, name=name: event[0] == name for name in "ab"}


def deadlines(played: list[tuple[float, Any]]) -> list[tuple[float, Any]]:
    """When each violation came, and its deadline; the time of the end."""
    return [
        (at, one if one is COMPLETED else (one.index, one.deadline, one.left)) for at, one in played
    ]


def test_an_alarm_comes_by_a_timer_when_the_deadline_is_past(clock: VirtualClock) -> None:
    assert deadlines(clock.play("-a--------|", violations(SOON, **TESTS))) == [
        (6.000001, (1, 6.0, None)),
        (10, COMPLETED),
    ]


def test_a_violation_says_which_event_has_set_the_deadline(clock: VirtualClock) -> None:
    (_, missed), _ = clock.play("x-a-x-x-----|", violations(SOON, **TESTS))
    assert (missed.opened, missed.index, missed.deadline) == (2, 4, 7.0)
    (_, missed), _ = clock.play("x-a-a-x|", violations(SOON, **TESTS))
    assert (missed.opened, missed.index, missed.at_end) == (2, 4, True)


def test_an_event_at_the_end_of_the_bound_is_in_time(clock: VirtualClock) -> None:
    assert clock.play("-a----b----|", violations(SOON, **TESTS)) == [(11, COMPLETED)]


def test_the_timer_follows_the_earliest_deadline_that_is_open(clock: VirtualClock) -> None:
    played = clock.play("-a-a-b-a-a------|", violations(SOON, **TESTS))
    assert deadlines(played) == [(12.000001, (5, 12.0, None)), (16, COMPLETED)]


def test_what_is_open_at_the_end_is_false_and_had_some_seconds_left(clock: VirtualClock) -> None:
    (at, one), end = clock.play("-a-|", violations(SOON, **TESTS))
    assert (at, one.at_end, one.deadline, one.left) == (3, True, 6.0, 3.0)
    assert end == (3, COMPLETED)
    assert clock.play("-a-|", violations("G(a -> G[<=5s] a)", **TESTS)) == [(3, COMPLETED)]


def test_an_error_of_the_source_stops_the_timer_and_says_nothing(clock: VirtualClock) -> None:
    ends = clock.play("-a-#", violations(SOON, **TESTS))
    assert [type(value).__name__ for _, value in ends] == ["Exception"]


def test_each_key_has_its_own_deadline(clock: VirtualClock) -> None:
    tests: dict[str, Any] = {"a": lambda event: event in "AB", "b": lambda event: event in "ab"}
    played = clock.play("A-B-a----------|", violations(SOON, str.lower, **tests))
    assert [(at, one.key) for at, one in played[:-1]] == [(7.000001, "b")]


def test_an_alarm_comes_before_an_event_that_is_too_late_even_where_no_timer_ran() -> None:
    # Without a loop there are no timers, and the stamps of the events decide.
    probe = Probe[Any](request=9)

    def events() -> Any:
        yield "a"
        yield "b"

    from_iterable(events()).pipe(violations("a & F[<=0ms] b", **TESTS)).connect(probe)
    assert probe.completed
    assert len(probe.values) == 1


class Stamped(ManualPublisher[str]):
    """Sends events with any stamp, as a stage that holds them does."""

    def deliver(self, value: str, created: float) -> None:
        self.subscription.demand -= 1
        self._to.on_events([self.ledger.enter(Event(value, created, self.ledger))])


RULE = "G(a -> F[<=5s] b) & G !c"
KEYED: dict[str, Any] = {
    "by": lambda event: event[0],
    **{name: lambda event, name=name: name in event[1:] for name in "abc"},
}


class Watched:
    """One of the operators between a publisher and a probe; events are a key and propositions."""

    def __init__(self, operator: str, formula: str = RULE) -> None:
        self.is_monitor = operator == "monitor"
        self.publisher, self.probe = Stamped(), Probe[Any](request=0)
        self._told: list[tuple[float, Violation[Any]]] = []
        if self.is_monitor:
            flow = self.publisher.pipe(monitor(formula, on_violation=self._note, **KEYED))
        else:
            flow = self.publisher.pipe(violations(formula, **KEYED))
        flow.attach(self.probe, PipelineRun())

    def _note(self, violation: Violation[Any]) -> None:
        self._told.append((asyncio.get_running_loop().time(), violation))

    def open_without_demand(self) -> None:
        """Open a deadline at 5 s, and use up the demand."""
        self.probe.request(2 if self.is_monitor else 1)
        self.publisher.deliver("xa", 0.0)
        self.publisher.deliver("yc", 0.0)
        assert self.publisher.demand == 0

    @property
    def told(self) -> list[tuple[float, Violation[Any]]]:
        return self._told if self.is_monitor else self.probe.timed

    @property
    def found(self) -> list[tuple[float, Any, float | None]]:
        return [(round(at, 3), one.key, one.deadline) for at, one in self.told]


OPERATORS = pytest.mark.parametrize("operator", ["monitor", "violations"])
NOT_Y = [(0.0, "y", None)]


@OPERATORS
def test_no_alarm_comes_while_nothing_is_requested_but_as_soon_as_it_is(
    run: Run, operator: str
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        watched.open_without_demand()
        await asyncio.sleep(100)
        assert watched.found == NOT_Y
        watched.probe.request(1)
        assert watched.found == NOT_Y
        await asyncio.sleep(1)
        assert watched.found == [*NOT_Y, (100.0, "x", 5.0)]
        watched.probe.cancel()

    run(story())


@OPERATORS
@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_an_answer_that_waited_is_delivered_before_the_alarm(
    run: Run, operator: str, iterations: int
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        publisher, loop = watched.publisher, asyncio.get_running_loop()
        watched.open_without_demand()
        await asyncio.sleep(100)

        def ready(left: int) -> None:
            if left:
                loop.call_soon(ready, left - 1)
            else:
                publisher.deliver("xb", 4.0)

        watched.probe.request(1)
        ready(iterations)
        await asyncio.sleep(100)
        assert watched.found == NOT_Y
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_demand_that_comes_back_with_the_timer_gives_the_answer_its_turn(
    run: Run, operator: str
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        publisher, loop = watched.publisher, asyncio.get_running_loop()
        watched.open_without_demand()

        def back() -> None:
            watched.probe.request(1)
            loop.call_soon(publisher.deliver, "xb", 4.0)

        loop.call_at(5.000001, back)
        await asyncio.sleep(100)
        assert watched.found == NOT_Y
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_demand_that_comes_back_just_before_the_deadline_gives_the_answer_its_turn(
    run: Run, operator: str
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        publisher, loop = watched.publisher, asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        watched.open_without_demand()

        def back() -> None:
            watched.probe.request(1)
            loop.advance(1)
            loop.call_soon(loop.call_soon, publisher.deliver, "xb", 4.0)

        loop.call_at(4.9, back)
        await asyncio.sleep(100)
        assert watched.found == NOT_Y
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_the_timer_rings_while_an_event_is_requested(run: Run, operator: str) -> None:
    async def story() -> None:
        watched = Watched(operator)
        watched.probe.request(9)
        watched.publisher.deliver("xa", 0.0)
        watched.publisher.deliver("ya", 0.0)
        await asyncio.sleep(3)
        watched.publisher.deliver("za", 3.0)
        await asyncio.sleep(1)
        watched.publisher.deliver("xb", 4.0)
        await asyncio.sleep(100)
        assert watched.found == [(5.0, "y", 5.0), (8.0, "z", 8.0)]
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_events_that_are_ready_together_are_judged_by_their_stamps(run: Run, operator: str) -> None:
    async def story() -> None:
        watched = Watched(operator)
        watched.probe.request(9)
        await asyncio.sleep(100)
        for value, created in [("xa", 1.0), ("ya", 2.0), ("xb", 6.0), ("zc", 7.1), ("yb", 7.1)]:
            watched.publisher.deliver(value, created)
        assert watched.found == [(100.0, "y", 7.0), (100.0, "z", None)]
        await asyncio.sleep(100)
        assert len(watched.found) == 2
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_what_comes_too_late_to_be_answered_in_time_is_reported_at_once(
    run: Run, operator: str
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        watched.probe.request(9)
        await asyncio.sleep(100)
        watched.publisher.deliver("xa", 1.0)
        assert watched.found == []
        await asyncio.sleep(1)
        assert watched.found == [(100.0, "x", 6.0)]
        watched.probe.cancel()

    run(story())


@OPERATORS
def test_the_end_of_the_stream_first_reports_the_deadlines_that_are_past(
    run: Run, operator: str
) -> None:
    async def story() -> None:
        watched = Watched(operator)
        watched.open_without_demand()
        await asyncio.sleep(100)
        watched.publisher.complete()
        await asyncio.sleep(100)
        watched.probe.request(9)
        assert [one[1:] for one in watched.found] == [("y", None), ("x", 5.0)]
        assert not watched.told[-1][1].at_end
        assert watched.probe.completed

    run(story())


def test_what_is_left_is_measured_when_the_stream_ends_however_late_it_is_taken(run: Run) -> None:
    async def story() -> None:
        watched = Watched("violations")
        watched.open_without_demand()
        await asyncio.sleep(1)
        watched.publisher.complete()
        await asyncio.sleep(100)
        watched.probe.request(9)
        assert watched.told[-1][1].left == 4.0

    run(story())


def test_alarms_wait_for_demand_and_so_do_the_events_whose_demand_they_used(run: Run) -> None:
    async def story() -> None:
        watched = Watched("violations")
        publisher, probe = watched.publisher, watched.probe
        probe.request(2)
        publisher.deliver("xa", 0.0)
        publisher.deliver("ya", 0.0)
        publisher.deliver("za", 1.0)
        await asyncio.sleep(10)
        assert [one[1] for one in watched.found] == ["x", "y"]
        # Two events were requested before the alarms came.
        assert publisher.demand == 2
        publisher.deliver("vc", 10.0)
        publisher.deliver("wc", 10.0)
        assert [one[1] for one in watched.found] == ["x", "y"]
        assert sorted(publisher.unsettled) == ["vc", "wc"]
        probe.request(2)
        assert [one[1] for one in watched.found] == ["x", "y", "z", "v"]
        assert publisher.demand == 0
        publisher.complete()
        assert not probe.completed
        probe.request(2)
        assert [one[1] for one in watched.found] == ["x", "y", "z", "v", "w"]
        assert probe.completed
        assert publisher.unsettled == []

    run(story())


def test_a_cancel_returns_what_waits_and_stops_the_timer(run: Run) -> None:
    async def story() -> None:
        watched = Watched("violations")
        publisher, probe = watched.publisher, watched.probe
        probe.request(1)
        publisher.deliver("xa", 0.0)
        await asyncio.sleep(6)
        publisher.deliver("vc", 6.0)
        publisher.deliver("ya", 6.0)
        probe.cancel()
        assert publisher.returned == ["vc"]

    run(story())


def test_at_most_1024_events_may_wait(run: Run) -> None:
    async def story() -> None:
        watched = Watched("violations")
        watched.probe.request(5_000)
        assert watched.publisher.demand == 1_024
        watched.publisher.deliver("xa", 0.0)
        assert watched.publisher.demand == 1_024
        watched.probe.cancel()

    run(story())
    info = from_iterable("a").pipe(violations(SOON, **TESTS)).info
    assert info.bound == 1_024
    assert from_iterable("a").pipe(violations("G a", **TESTS)).info.bound == 0


def test_stop_by_a_deadline_ends_the_pipeline_when_it_is_past(run: Run) -> None:
    async def story() -> None:
        source = inbox(9)
        pipeline = source.pipe(monitor(SOON, on_violation="stop", **TESTS)).to(MemorySink())
        running = pipeline.start()
        await source.put("a")
        with pytest.raises(Violated, match="the deadline that event 1 set is past") as raised:
            await running.wait()
        assert asyncio.get_running_loop().time() == pytest.approx(5.000001)
        assert "in stage 2 'monitor'" in raised.value.__notes__

    run(story())


def test_stop_by_a_missed_deadline_fails_the_event_that_shows_it(run: Run) -> None:
    source = MemorySource([("a", 0), ("x", 3), ("b", 9), ("x", 10)])
    sink = MemorySink()
    operator = monitor(SOON, on_violation="stop", time=1, **TESTS)
    with pytest.raises(Violated, match="is past") as raised:
        run(source.pipe(operator).to(sink).run())
    assert raised.value.violation.deadline == 5.0
    assert sink.values == [("a", 0), ("x", 3)]
    assert source.failed == [("b", 9)]


def test_stop_by_a_deadline_of_another_key_lets_the_events_of_the_list_pass(run: Run) -> None:
    events = [("a", 0, 1), ("x", 9, 2), ("x", 10, 2)]
    source, sink = from_iterable(events), MemorySink()
    operator = monitor(SOON, 2, on_violation="stop", time=1, **TESTS)
    with pytest.raises(Violated, match="the deadline that event 1 of 1 set is past"):
        run(source.pipe(operator).to(sink).run())
    assert sink.values == events


def test_an_alarm_goes_to_a_sink_and_owes_the_source_nothing(run: Run) -> None:
    async def story() -> None:
        source, alarms, sink = inbox(9), MemorySink(hold=True), MemorySink()
        flow = source.pipe(monitor(SOON, on_violation=alarms, **TESTS))
        async with flow.to(sink).start() as running:
            await source.put("a", wait=True)
            await asyncio.sleep(10)
            assert running.statistics()["finished"] == 1
            alarms.accept()
            assert [one.deadline for one in alarms.values] == [5.0]

    run(story())


def test_by_their_own_times_only_events_move_the_clock(clock: VirtualClock) -> None:
    lookup = {"p": ("a", 0), "q": ("x", 3), "r": ("x", 6), "s": ("a", 7)}
    operator = violations(SOON, time=1, **TESTS)
    played = clock.play("p------q-r--s-----------|", operator, lookup=lookup)
    assert deadlines(played) == [(9, (2, 5.0, None)), (24, COMPLETED)]
    played = clock.play("q-s----------|", operator, lookup=lookup)
    assert deadlines(played) == [(13, (2, 12.0, 5.0)), (13, COMPLETED)]


def test_a_missing_time_is_named_and_can_be_left_out(run: Run) -> None:
    events: list[Any] = [{"t": 0, "a": 1}, {"a": 1}, {"t": "?"}, {"t": 6}]
    stops = violations("F[<=5s] b", time="t", strict=False)
    with pytest.raises(KeyError) as raised:
        run(MemorySource(events).pipe(stops).to(MemorySink()).run())
    assert any("the event has no field 't'" in note for note in raised.value.__notes__)
    dead, out = MemorySink(), MemorySink()
    goes_on = violations("F[<=5s] b", time="t", strict=False, on_error=route(dead))
    run(MemorySource(events).pipe(goes_on).to(out).run())
    assert len(dead.values) == 2
    assert [one.deadline for one in out.values] == [5.0]


def test_an_event_whose_key_cannot_be_hashed_is_left_out_and_its_time_has_come(run: Run) -> None:
    events: list[Any] = [("a", 0, "x"), ("c", 1, "y"), ("b", 9, ["x"]), ("b", 5, "x")]
    dead, out = MemorySink(), MemorySink()
    operator = violations(SOON, by=2, time=1, on_error=route(dead), **TESTS)
    run(from_iterable(events).pipe(operator).to(out).run())
    assert [letter.value for letter in dead.values] == [events[2]]
    assert [(one.index, one.deadline) for one in out.values] == [(1, 5.0)]


@pytest.mark.parametrize("operator", [monitor, violations])
def test_what_cannot_be_watched_is_refused_when_it_is_built(operator: Any) -> None:
    with pytest.raises(TimedFormula, match="stands under `X`"):
        operator("X F[<=1s] a", **TESTS)
    with pytest.raises(BuildError, match="the longest bound"):
        operator("F[<=1m] a & F[<=2m] b", by=0, idle=60, **TESTS)
    with pytest.raises(BuildError, match="together with time"):
        operator(SOON, lateness=1, **TESTS)


def test_every_proposition_is_still_asked_once_for_an_event(run: Run) -> None:
    asked: list[Any] = []

    def a(event: Any) -> bool:
        asked.append(event)
        return event[0] == "a"

    events = [("a", 0), ("x", 9), ("a", 10), ("x", 20)]
    operator = monitor("G(a -> F[<=5s] b)", time=1, restart=True, on_violation=print, a=a, b=len)
    run(MemorySource(events).pipe(operator).to(MemorySink()).run())
    assert asked == events


def test_what_was_evicted_while_it_was_open_is_in_the_statistics(run: Run) -> None:
    events = ["xa", "yx", "zx"]
    operator = monitor(RULE, max_keys=2, **KEYED)
    report = run(MemorySource(events).pipe(operator).to(MemorySink()).run())
    stage = report.statistics["stages"][1]
    assert (stage["evicted"], stage["unjudged"]) == (1, 1)
