"""Random fans of events, their ends in any order: each commit has the changes of what is done."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from gc import collect
from typing import Any
from weakref import ref

from penstock.streams.delivery.commit import Part
from penstock.streams.delivery.marks import Participant
from penstock.streams.protocol.acknowledgement import AckHook, Family, Joined
from penstock.streams.protocol.event import (
    FAILED,
    FINISHED,
    FORGIVEN,
    RETURNED,
    Ending,
    Event,
    finish_all,
)
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import Columns, PartsRefused, Row, Unit
from penstock.streams.state.changes import NO_TIMERS, Cell, Change
from penstock.streams.state.commits import Commits
from penstock.streams.state.memory import Memory
from penstock.streams.testing import run_virtual
from penstock.streams.testing.ledger import Ledger
from tests.helpers.walks import seeds


class Room:
    """A stage whose states are lists of the numbers of all changes of their key."""

    name = "stage"

    def __init__(self, backend: Memory) -> None:
        self._backend = backend

    def committed(self, changes: Sequence[Change]) -> None: ...

    def undone(self, cell: Cell) -> None:
        if cell.last is not None:
            cell.state = cell.last.state
        else:
            rows = self._backend.read(self.name, [cell.text])
            cell.state = json.loads(rows[0].state) if rows else []

    def write(self, changes: Sequence[Change], rows: list[Columns], gone: list[bytes]) -> None:
        rows += (
            Row(change.cell.text, json.dumps(change.state).encode(), 1, b"", None)
            for change in changes
        )


class Hook(AckHook):
    """A stage that is told how events end, and has put itself in front of their origin."""

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None: ...

    def put(self, event: Event[Any]) -> None:
        event.outer = event.origin, event.outer
        event.origin = self


class Checked(Memory):
    """A backend that holds each commit against the walk."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self.walk = walk

    def commit(self, unit: Unit) -> None:
        values = [*unit.parts.get(self.walk.table, ())]
        refused: dict[int, Exception] = {
            place: Trouble() for place, value in enumerate(values) if value in self.walk.refused
        }
        if refused:
            raise PartsRefused(self.walk.table, refused)
        self.walk.table.rows += values
        super().commit(replace(unit, parts={}))
        assert (
            set(self.walk.table.rows)
            == {number for number, events in self.walk.parts.items() if events <= self.walk.marked}
            - self.walk.refused
        )
        of_key = [number for number in self.walk.table.rows if number % 3 == 0]
        assert of_key == sorted(of_key)
        written = {number for row in self.scan("stage") for number in json.loads(row.state)}
        done = self.walk.marked
        assert written == {number for number, events in self.walk.changes.items() if events <= done}
        assert not done & set(self.walk.ledger.ended(RETURNED, FAILED))
        changing = frozenset[int]().union(*self.walk.changes.values())
        assert changing & set(self.walk.ledger.ended(FINISHED)) <= done


class Source(Participant):
    """The source of a walk, whose mark is of no interest."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def marks(self, events: Sequence[Event[Any]]) -> list[tuple[str, bytes]]:
        self._walk.marked = self._walk.done | {event.token for event in events}
        return [("source", b"marks")]

    def finish(self, events: Sequence[Event[Any]]) -> None:
        self._walk.done |= {event.token for event in events}


class Table:
    """The kind of the parts of a walk; their values are their numbers."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def write(self, transaction: Any, values: list[int], /) -> None: ...


class Trouble(Exception):
    pass


class Walk:
    def __init__(self, seed: int, run: Run | None = None, backend: Memory | None = None) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.ledger.gives_again = self.random.random() < 0.5
        self.table = Table()
        backend = backend or Checked(self)
        self.room = Room(backend)
        self.hook = Hook()
        self.commits = Commits(run or Run(), backend, 0.0)
        self.cells = [
            Cell(self.room, key, str(key).encode(), []) for key in range(self.random.randint(1, 5))
        ]
        self.emitted = 0
        # Events that have not ended, and the sources of each.
        self.live: dict[Event[Any], frozenset[int]] = {}
        # The events of which each change was made, and those that are marked as done.
        self.changes: dict[int, frozenset[int]] = {}
        self.done: set[int] = set()
        self.marked: set[int] = set()
        # The same of each part, those that are refused, and how many parts are settled.
        self.parts: dict[int, frozenset[int]] = {}
        self.refused: set[int] = set()
        self.settled = 0
        self.commits.keep(self.ledger, Source(self))

    def emit(self) -> None:
        event = Event(self.emitted, 0.0, self.ledger, self.emitted)
        self.live[self.ledger.enter(event)] = frozenset([self.emitted])
        self.emitted += 1

    def change(self, event: Event[Any]) -> None:
        cell, number = self.random.choice(self.cells), len(self.changes)
        root = self.commits.hold([event])[0].root
        if root.is_lost:
            return
        self.changes[number] = self.live[event]
        cell.state = [*cell.state, number]
        change = root.change(cell, cell.state, NO_TIMERS)
        if change.before is not None and change.before.root.is_lost:
            self.commits.lose(root)

    def split(self, event: Event[Any]) -> None:
        of = self.live.pop(event)
        family = Family(event, "none")
        for part in range(self.random.randint(1, 3)):
            self.live[family.child(part)] = of
        family.close()

    def join(self, events: list[Event[Any]]) -> None:
        of = frozenset[int]().union(*(self.live.pop(event) for event in events))
        self.live[Event(None, 0.0, Joined(events))] = of

    def accept(self, event: Event[Any]) -> None:
        """As one or several sinks that write into the database of the store."""
        of = self.live.pop(event)
        event.pending = self.random.choice([1, 1, 1, 2, 3])
        for _ in range(event.pending):
            self.write(event, of)

    def write(self, event: Event[Any], of: frozenset[int]) -> None:
        number = len(self.parts)

        def settled(part: Part[Any], error: Exception | None) -> bool:
            self.settled += 1
            if error is not None:
                again = self.commits.again(event)
                draw = self.random.random()
                if draw < 0.5:
                    again.fail(error, acknowledged=True)
                elif draw < 0.8:
                    self.live[again] = of
                else:
                    again.fail(error)
            return False

        part: Part[Any] = Part(self.table, number, [], settled)
        self.parts[number] = of
        if self.random.random() < 0.1:
            self.refused.add(number)
        self.commits.accept(event, part, "key" if number % 3 == 0 else None)

    def end(self, event: Event[Any]) -> None:
        draw = self.random.random()
        if draw < 0.4:
            self.accept(event)
            return
        del self.live[event]
        if draw < 0.8:
            event.finish()
        elif draw < 0.95:
            event.drop("no need")
        else:
            event.give_back()

    async def go(self) -> None:
        for _ in range(self.random.randint(5, 120)):
            draw, live = self.random.random(), list(self.live)
            if draw < 0.25 or not live:
                self.emit()
            elif draw < 0.55:
                self.change(self.random.choice(live))
            elif draw < 0.62:
                self.split(self.random.choice(live))
            elif draw < 0.68:
                self.join(self.random.sample(live, min(2, len(live))))
            elif draw < 0.72:
                self.hook.put(self.random.choice(live))
            elif draw < 0.9:
                self.end(self.random.choice(live))
            else:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        while self.live:
            for event in list(self.live):
                self.end(event)
            await asyncio.sleep(0.01)


@seeds(400)
def test_each_commit_has_all_changes_of_what_is_done_and_no_others(seed: int) -> None:
    async def story() -> Walk:
        walk = Walk(seed)
        await walk.go()
        return walk

    walk = run_virtual(story())
    assert walk.ledger.unsettled == []
    assert walk.commits.held == 0
    assert walk.settled == len(walk.parts)
    assert walk.done == walk.marked


def test_an_event_that_is_joined_with_a_lost_one_is_returned_with_all_that_ended_with_it() -> None:
    async def story() -> list[tuple[int, Ending]]:
        walk = Walk(0)
        walk.cells = walk.cells[:1]
        for _ in range(4):
            walk.emit()
        first, second, lost, before = walk.live
        family = Family(first, "none")
        one, other = family.child(1), family.child(2)
        family.close()
        both: Event[Any] = Event(None, 0.0, Joined([one, second]))
        joined: Event[Any] = Event(None, 0.0, Joined([other, lost]))
        walk.live |= {both: frozenset([0, 1]), joined: frozenset([0, 2])}
        for event in (both, before, lost):
            walk.change(event)
        both.finish()
        before.give_back()
        walk.change(joined)
        joined.finish()
        await asyncio.sleep(1)
        return walk.ledger.endings

    assert sorted(run_virtual(story())) == [(number, RETURNED) for number in range(4)]


def test_an_event_that_has_failed_in_place_of_a_refused_one_keeps_no_other_in_memory() -> None:
    class Value:
        pass

    async def story() -> None:
        ledger, commits = Ledger(), Commits(Run(), Memory(), 0.0)
        events = [ledger.enter(Event(Value(), 0.0, ledger)) for _ in range(2)]
        values = [ref(event.value) for event in events]
        commits.hold(events)
        again = commits.again(Event(None, 0.0, Joined(events)))
        finish_all(events)
        again.fail(Trouble(), acknowledged=True)
        await asyncio.sleep(1)
        assert len(ledger.ended(FORGIVEN)) == 2
        ledger.endings.clear()
        events.clear()
        collect()
        assert [value() for value in values] == [None, None]

    run_virtual(story())


def test_nothing_is_committed_after_a_commit_that_failed() -> None:
    walk: Any = None

    class Fails(Memory):
        def commit(self, unit: Unit) -> None:
            if walk.live:
                walk.live.popitem()[0].finish()
                raise OSError("the disk is full")
            super().commit(unit)

    async def story() -> None:
        nonlocal walk
        run = Run()
        walk = Walk(0, run, backend)
        walk.emit()
        walk.emit()
        for event in walk.live:
            walk.change(event)
        walk.live.popitem()[0].finish()
        await asyncio.sleep(1)
        await run.close()

    backend = Fails()
    run_virtual(story())
    assert backend.marks() == []
