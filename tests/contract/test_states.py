"""The tables of states are whole and true: random pipelines take each step, and no other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest

from penstock import Backoff, Fixed, adaptive_flat_map, collect, from_iterable, retry
from penstock.streams.execution.call import NEXT_PLACES
from penstock.streams.execution.worker_stage import WorkerStage
from penstock.streams.protocol.event import Event, Turn
from penstock.streams.protocol.stage import NEXT_STATES, State
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.testing import run_virtual
from tests.helpers.of_sources import of_sources
from tests.helpers.random_walk import RandomWalk

WALKS = 250


class Steps:
    """The steps that the events of one stage have taken, and where each is now."""

    def __init__(self) -> None:
        self.taken: set[tuple[str, str]] = set()
        # The events are kept: no other may have the `id` of one.
        self.events: dict[int, tuple[Event[Any], str]] = {}

    def where(self, event: Event[Any]) -> str:
        return self.events.get(id(event), (event, "new"))[1]

    def at(self, event: Event[Any], place: str) -> None:
        before = self.where(event)
        if place != before:
            self.taken.add((before, place))
        self.events[id(event)] = event, place

    def end(self) -> set[tuple[str, str]]:
        """All have left the stage from where they are."""
        return self.taken | {(place, "over") for _, place in self.events.values()}


class Queue(deque[Any]):
    """A queue that says which events come to it."""

    steps: Steps
    place: str

    def append(self, event: Any, /) -> None:
        self.steps.at(event, self.place)
        super().append(event)

    def appendleft(self, event: Any, /) -> None:
        self.steps.at(event, self.place)
        super().appendleft(event)

    def extend(self, events: Iterable[Any], /) -> None:
        super().extend(map(self._noted, events))

    def extendleft(self, events: Iterable[Any], /) -> None:
        super().extendleft(map(self._noted, events))

    def __iadd__(self, events: Iterable[Any], /) -> Any:
        self.extend(events)
        return self

    def _noted(self, event: Any) -> Any:
        self.steps.at(event, self.place)
        return event


class Ended(list[Any]):
    steps: Steps

    def append(self, event: Any, /) -> None:
        self.steps.at(event, "ended")
        super().append(event)

    def extend(self, events: Iterable[Any], /) -> None:
        for event in events:
            self.append(event)


def queue(steps: Steps, place: str) -> Queue:
    made = Queue()
    made.steps, made.place = steps, place
    return made


class Watched:
    """Notes the steps of all events of working stages, and of the stages themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stages: dict[Any, Steps] = {}
        self.states: set[tuple[State, State]] = set()
        self._patch = monkeypatch
        self._watch_stages()
        self._watch_begins()

        made = WorkerStage.__init__

        def working(stage: WorkerStage, *args: Any) -> None:
            made(stage, *args)
            self._watch_queues(stage)

        come = WorkerStage.on_events

        def on_events(stage: WorkerStage, events: list[Event[Any]]) -> None:
            for event in events:
                self.stages[stage].at(event, "new")
            come(stage, events)

        monkeypatch.setattr(WorkerStage, "__init__", working)
        monkeypatch.setattr(WorkerStage, "on_events", on_events)

    def _watch_queues(self, stage: Any) -> None:
        steps, waiting = Steps(), stage._waiting
        self.stages[stage] = steps
        stage._inbox = waiting.inbox = queue(steps, "waiting")
        waiting.held = queue(steps, "held")
        stage._due = queue(steps, "due")
        stage._ended = Ended()
        stage._ended.steps = steps
        stage._returned = stage._ended.append
        enter = waiting.siblings.enter

        def stay(turn: Turn, event: Event[Any]) -> bool:
            begins: bool = enter(turn, event)
            if not begins:
                steps.at(event, "behind")
            return begins

        waiting.siblings.enter = stay
        if waiting.retries is not None:
            hold = waiting.retries.put

            def put(event: Event[Any], asked: float) -> None:
                steps.at(event, "retrying")
                hold(event, asked)

            waiting.retries.put = put

    def _watch_stages(self) -> None:
        slot: Any = vars(BaseDemandStage)["state"]

        def change(stage: BaseDemandStage, state: State) -> None:
            try:
                before = slot.__get__(stage)
            except AttributeError:
                before = state
            if before is not state:
                self.states.add((before, state))
            slot.__set__(stage, state)

        self._patch.setattr(BaseDemandStage, "state", property(slot.__get__, change))

    def _watch_begins(self) -> None:
        slot: Any = vars(Event)["started"]

        def change(event: Event[Any], started: float | None) -> None:
            for steps in self.stages.values():
                if started is not None and steps.where(event) in ("waiting", "due"):
                    steps.at(event, "called")
            slot.__set__(event, started)

        self._patch.setattr(Event, "started", property(slot.__get__, change))


def cancelled_while_all_wait_for_one() -> None:
    """The one waits for its next attempt, under a limit of 1."""

    def fails(value: int) -> int:
        return 1 // (value - 20)

    async def story() -> None:
        stage = adaptive_flat_map(fails, Fixed(1), on_error=retry(2, Backoff(20)))
        async with from_iterable(range(100)).pipe(stage).to(collect([])).start() as running:
            await asyncio.sleep(1)
            running.cancel()

    run_virtual(story())


class Broken:
    """A limiter that raises when the first event of a list has come."""

    limit = 4

    def on_arrive(self) -> None:
        raise ValueError("on_arrive")

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Any) -> None: ...
    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Any
    ) -> None: ...


def stopped_by_the_first_of_a_list() -> None:
    async def work(value: int) -> int:
        return value

    async def story() -> None:
        stage = adaptive_flat_map(work, Broken())
        await from_iterable(range(9)).pipe(stage).to(collect([])).run()

    with pytest.raises(ValueError, match="on_arrive"):
        run_virtual(story())


@of_sources
def test_random_pipelines_take_each_step_of_the_tables_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)
    taken: set[tuple[str, str]] = set()
    jobs = [RandomWalk(f"states {n}").run for n in range(WALKS)]
    for job in (*jobs, cancelled_while_all_wait_for_one, stopped_by_the_first_of_a_list):
        job()
        taken.update(*(steps.end() for steps in watched.stages.values()))
        watched.stages.clear()
    assert watched.states == {(one, to) for one, after in NEXT_STATES.items() for to in after}
    assert taken == {(one, to) for one, after in NEXT_PLACES.items() for to in after}
