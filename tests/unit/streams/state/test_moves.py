"""Partitions that go while events of them end: nothing of these is committed here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event as ThreadEvent
from typing import Any

import pytest
from orjson import loads

from penstock.streams.delivery.marks import Participant
from penstock.streams.protocol.event import FINISHED, RETURNED, Event
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.commits import Commits
from penstock.streams.state.held_stage import held_info
from penstock.streams.state.stage import StatefulStage
from penstock.streams.state.states import States
from penstock.streams.testing import run_virtual
from penstock.streams.testing.fleet import Fleet, FleetMember
from penstock.streams.testing.ledger import Ledger


class Source(Participant):
    """The source of events whose tokens are the numbers of their partitions."""

    lends = True

    def __init__(self) -> None:
        self.lost: list[int] = []

    def has(self, event: Event[Any]) -> bool:
        return event.token not in self.lost

    def partition_of(self, event: Event[Any]) -> int:
        number: int = event.token
        return number

    def partition_of_mark(self, name: str) -> int:
        return int(name)

    def marks(self, events: Sequence[Event[Any]]) -> list[tuple[str, bytes]]:
        return [(str(event.token), b"done") for event in events]

    def taken(self, partition: int) -> None:
        self.lost.append(partition)


class Story:
    """One run of a fleet, whose source has two partitions."""

    def __init__(self) -> None:
        self.fleet, self.ledger, self.source = Fleet(), Ledger(), Source()
        member = self.fleet.member()
        member.open()
        self.commits = Commits(Run(), member, 0.0)
        self.commits.keep(self.ledger, self.source)

    async def begin(self) -> None:
        for number in range(2):
            await self.commits.adopt(number, 2)

    def end(self, partition: int) -> None:
        """An event of a partition begins and ends; its commit is due."""
        event = self.ledger.enter(Event(partition, 0.0, self.ledger, partition))
        self.commits.hold([event])
        event.finish()


def test_an_event_is_returned_whose_partition_has_gone_before_its_commit() -> None:
    async def main() -> Story:
        story = Story()
        await story.begin()
        for partition in range(2):
            story.end(partition)
        await story.commits.release(0)
        await asyncio.sleep(1)
        return story

    story = run_virtual(main())
    assert sorted(story.ledger.endings) == [(0, RETURNED), (1, FINISHED)]
    marks = {number: one.marks for number, one in story.fleet.partitions.items()}
    assert marks == {0: {}, 1: {"1": b"done"}}


def test_a_source_is_told_that_another_run_has_a_partition() -> None:
    async def main() -> Story:
        story = Story()
        await story.begin()
        story.fleet.member().adopt(0, 2)
        for partition in range(2):
            story.end(partition)
        await asyncio.sleep(1)
        assert story.source.lost == [0]
        return story

    story = run_virtual(main())
    assert sorted(story.ledger.endings) == [(0, RETURNED), (1, FINISHED)]


class First(Source):
    """The same, whose first event, of the value 10, is one of before its partition went."""

    def has(self, event: Event[Any]) -> bool:
        return bool(event.value != 10)


class Questioned(FleetMember):
    """A backend that is asked in threads, each read of which ends when the test lets it."""

    reads_in_thread = True

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.is_asked, self.answers = ThreadEvent(), ThreadEvent()

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        rows = super().read(stage, keys)
        self.is_asked.set()
        assert self.answers.wait(60)
        return rows


class Asking:
    """A run with a stage that adds values to the state of their key, and another run's backend.
    `seen` are values, each with the state that it met."""

    def __init__(self) -> None:
        fleet, self.applied = Fleet(), ThreadEvent()
        self.backend, self.other = Questioned(fleet), fleet.member()
        self.seen: list[tuple[int, int]] = []
        self.run, self._ledger = Run(), Ledger()
        self.commits = Commits(self.run, self.backend, 0.0)
        self.commits.keep(self._ledger, First())
        info = held_info("stateful", "")
        kept = KeptStage("a", "key", 1)
        states = States(info, self.backend, kept, loads, 0, None, {}, 10, self.run.wall)
        rest: Any = (lambda value: "k", self._step, False, None, states, self.commits, "stop", None)
        downstream: Any = None
        self._stage = StatefulStage(downstream, self.run, info, *rest)
        self._stage.begin()

    def _step(self, state: int, value: int) -> tuple[int, list[Any]]:
        self.seen.append((value, state))
        if value == 20:
            self.applied.set()
        return state + value, []

    def write(self, by: FleetMember, state: bytes) -> None:
        row = b'"k"', state, 1, b"", None
        by.commit(Unit(partitions={0: Unit({"a": [row]})}))

    def enter(self, value: int) -> None:
        self._stage.take([self._ledger.enter(Event(value, 0.0, self._ledger, 0))])

    async def last_seen(self) -> tuple[int, int]:
        """What the event of the value 20 meets."""
        self.enter(20)
        assert await asyncio.to_thread(self.applied.wait, 60)
        await self.run.close()
        return self.seen[-1]


@pytest.mark.parametrize("how", ["taken", "released"])
def test_a_state_that_was_read_before_its_partition_went_and_came_back_is_read_again(
    how: str,
) -> None:
    async def main() -> tuple[int, int]:
        asking = Asking()
        commits, backend = asking.commits, asking.backend
        await commits.adopt(0, 1)
        commits.begin(0)
        asking.write(backend, b"1")
        asking.enter(10)
        assert await asyncio.to_thread(backend.is_asked.wait, 60)
        # Another run has it, and writes; and then it comes back, while the question is open.
        going: list[Any] = []
        if how == "taken":
            assert commits.moves is not None
            commits.moves.taken(0)
        else:
            going.append(asyncio.ensure_future(commits.release(0)))
            await asyncio.sleep(0.05)
        asking.other.adopt(0, 1)
        asking.write(asking.other, b"5")

        async def come_back() -> None:
            for one in going:
                await one
            await commits.adopt(0, 1)
            commits.begin(0)

        coming = asyncio.ensure_future(come_back())
        await asyncio.sleep(0.05)
        came_too_early = coming.done()
        backend.answers.set()
        await coming
        assert not came_too_early
        return await asking.last_seen()

    # What was done with the event of before is void.
    assert asyncio.run(main()) == (20, 5)


def test_a_state_that_was_read_before_its_partition_began_is_read_again() -> None:
    async def main() -> tuple[int, int]:
        asking = Asking()
        asking.backend.answers.set()
        asking.other.adopt(0, 1)
        asking.write(asking.other, b"5")
        await asking.commits.adopt(0, 1)
        asking.enter(10)
        await asking.commits.reads.ended()
        await asyncio.sleep(0.05)
        # It is not seen before.
        asking.commits.begin(0)
        return await asking.last_seen()

    assert asyncio.run(main()) == (20, 5)
