"""Partitions that go while events of them end: nothing of these is committed here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.streams.delivery.marks import Participant
from penstock.streams.protocol.event import FINISHED, RETURNED, Event
from penstock.streams.runtime.context import Run
from penstock.streams.state.commits import Commits
from penstock.streams.testing import run_virtual
from penstock.streams.testing.fleet import Fleet
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
