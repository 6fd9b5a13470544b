"""The commits of a store in one run: states, and the marks of the events that changed them.

    event ──> stages with state ──> sinks ──> ended ──> commit ──> settled at its source
                     │ changes                            ^
                     └────────────────────────────────────┘

A change of a state is written in one transaction with the mark that its event is done, after all
sinks have accepted its results; only then is it acknowledged to its source. So after a crash
exactly the events that were not done come again, and the states do not include them.

There are no barriers and no snapshots: all that has ended since the last commit is in the next one,
as in the group commit of databases (D. J. DeWitt et al., "Implementation Techniques for Main Memory
Database Systems", SIGMOD 1984).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from penstock.streams.delivery.commit import Commit
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.protocol.acknowledgement import (
    AckHook,
    Family,
    Joined,
    parents,
    roots,
)
from penstock.streams.protocol.event import RETURNED, Ending, Event, Origin
from penstock.streams.state.backend import Backend, Row, Unit
from penstock.streams.state.changes import Change, Root, committable, depending, newest

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["MOST", "Commits", "Room"]

MOST = 1_000
"""The number of ended events that are committed without waiting. Chosen: more cost as much for
each, and are in memory for longer."""

_MADE_OF_OTHERS = (Family, Joined, AckHook)

# Seconds after which the loop goes on, while the rows of a commit are made.
_SLICE = 0.002


class Room(Protocol):
    """A stage with states, as the commits see it."""

    name: str

    def row(self, change: Change) -> Row | None:
        """The row of a change; None if it deletes the key. Raises an error of the stage."""
        ...


class _Source:
    """A source with marks in the store: functions that note finished events and make its mark."""

    __slots__ = ("finish", "is_due", "partition")

    def __init__(
        self,
        partition: Callable[[], tuple[str, bytes]],
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> None:
        self.partition = partition
        self.finish = finish
        self.is_due = True


class Commits(AckHook):
    """Holds back the ends of events that have changed states, until these are committed.

    An event that failed or is returned is not held back, and its changes are never written. Nor are
    those of events that changed the same keys after it; these are returned when they end.
    `held` events are held back or unfinished. Memory: a record for each of them and for each of
    their changes.
    """

    __slots__ = (
        "_backend",
        "_commit",
        "_ended",
        "_every",
        "_is_torn",
        "_run",
        "_sources",
        "_timer",
        "_waiting",
        "committed",
        "held",
        "latencies",
    )

    def __init__(self, run: Run, backend: Backend, every: float) -> None:
        self._run = run
        self._backend = backend
        self._every = every
        self.held = 0
        self.committed = 0
        self.latencies = LatencyHistogram()
        self._ended: list[Root] = []
        self._sources: dict[Origin, _Source] = {}
        # Called once each when fewer events are held back.
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.Handle | None = None
        # While a commit is under way, and for good if one has failed: its events are done to their
        # sources, so nothing after it may be written without what it has not written.
        self._is_torn = False
        self._commit = Commit("state", self._write, self._soon, run.failed)
        run.on_flush(self._commit.flush)

    # Events on their way down.

    def root_of(self, event: Event[Any]) -> Root:
        """The root of an event, whose end is held back from now on."""
        origin = event.origin
        if origin is self:
            held: Root = event.outer
            return held.whole
        # Most events are as their source made them.
        if isinstance(origin, _MADE_OF_OTHERS):
            outer = event.outer
            while isinstance(origin, AckHook):
                # A stage that is told before this one may have put itself in front since.
                origin, outer = origin.behind(outer)
                if origin is self:
                    held = outer
                    return held.whole
            made_of = parents(event)
            if made_of:
                return self._root_of_all(made_of)
        root = event.outer = Root(event)
        event.origin = self
        self.held += 1
        return root

    def _root_of_all(self, events: Sequence[Event[Any]]) -> Root:
        """The one root of events of which another one was made."""
        root = self.root_of(events[0])
        for event in events[1:]:
            other = self.root_of(event)
            # It may have been taken up by then, if an event is in several lists.
            root = root.whole
            if other is not root:
                self._join(root, other)
        return root

    def _join(self, root: Root, other: Root) -> None:
        is_lost = root.is_lost or other.is_lost
        root.join(other)
        if is_lost:
            # With what depends on the one that was not.
            root.is_lost = False
            self.lose(root)

    # Ends.

    def behind(self, outer: Root, /) -> tuple[Origin, Any]:
        return outer.origin, outer.outer

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        gone: list[Root] = []
        for event in events:
            own: Root = event.outer
            own.ending, own.why = ending, why
            root = own if own.into is None else own.whole
            if ending >= RETURNED:
                # It is missing for good.
                gone.append(own)
                gone += self._lose(root)
            elif root.is_lost:
                own.ending, own.why = RETURNED, None
                gone.append(own)
            else:
                root.missing -= 1
                if not root.missing:
                    self._ended.append(root)
        if self._ended:
            self.due()
        if gone:
            self._release(gone)

    def lose(self, root: Root) -> None:
        """Note that a root has changed a key after one that will never be committed."""
        if gone := self._lose(root):
            self._release(gone)

    def _lose(self, root: Root) -> list[Root]:
        """The events to return now, after a root was lost with all that depend on it; those that
        have not ended are returned when they end."""
        gone: list[Root] = []
        for lost in depending(root):
            if lost.is_lost:
                continue
            lost.is_lost = True
            # One that has ended is missing again.
            lost.missing += 1
            for one in lost.all():
                if one.ending is not None and one.ending < RETURNED:
                    one.ending, one.why = RETURNED, None
                    gone.append(one)
        self._ended = [one for one in self._ended if not one.is_lost]
        return gone

    def due(self) -> None:
        """Schedule a commit."""
        self._commit.due()
        if len(self._ended) >= MOST and self._timer is not None:
            timer, self._timer = self._timer, None
            timer.cancel()
            self._soon(self._commit.begin)

    def when_less_is_held(self, call: Callable[[], None]) -> None:
        """Have this called once, when fewer events are held back than now."""
        self._waiting.append(call)

    def waits_for(self) -> dict[str, Any] | None:
        """The key of a change that events which have ended wait for, and the age in seconds of the
        event that made it, which has not ended; None if no event waits for another. Time: O(n) in
        the changes before it.
        """
        now = self._run.now()
        for root in filter(attrgetter("is_left"), self._ended):
            seen = {root}
            path = [root]
            for one in path:
                change = one.change
                while change is not None:
                    before = change.before
                    if before is not None and before.root not in seen:
                        if before.root.missing:
                            age = now - before.root.event.created
                            return {"key": change.cell.key, "age": age}
                        seen.add(before.root)
                        path.append(before.root)
                    change = change.more
        return None

    # Marks.

    def mark(self, partition: str) -> bytes | None:
        return self._backend.mark(partition)

    def keep(
        self,
        origin: Origin,
        partition: Callable[[], tuple[str, bytes]],
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> Callable[[], None]:
        source = self._sources[origin] = _Source(partition, finish)

        def changed() -> None:
            source.is_due = True
            self.due()

        changed()
        return changed

    # Commits.

    def _soon(self, begin: Callable[[], None]) -> None:
        # With an interval of 0, in the next iteration of the loop.
        pause = 0.0 if len(self._ended) >= MOST else self._every
        self._timer = self._run.call_later(pause, None, begin)

    async def _write(self) -> None:
        self._timer = None
        if self._is_torn:
            return
        self._is_torn = True
        began = self._run.now()
        ready, self._ended = committable(self._ended)
        unit = Unit()
        self._add_marks(unit, ready)
        changes = newest(ready)
        await self._add_rows(unit, changes)
        if self._backend.in_thread:
            await self._run.loop.run_in_executor(None, self._backend.commit, unit)
        else:
            self._backend.commit(unit)
        self._is_torn = False
        for change in changes:
            change.written()
        self.committed += 1
        self.latencies.record(self._run.now() - began)
        done: list[Root] = []
        for root in ready:
            # The changes refer to it: they would keep each other until the collector comes.
            root.change = None
            if root.others is None:
                done.append(root)
            else:
                done += root.all()
        self._release(done)

    def _add_marks(self, unit: Unit, ready: Iterable[Root]) -> None:
        if not self._sources:
            return
        done: dict[Origin, list[Event[Any]]] = {}
        for root in ready:
            for one in root.all():
                ((origin, _),) = roots(one.event)
                if origin in self._sources:
                    done.setdefault(origin, []).append(one.event)
        for origin, events in done.items():
            self._sources[origin].finish(events)
            self._sources[origin].is_due = True
        for source in self._sources.values():
            if source.is_due:
                source.is_due = False
                partition, mark = source.partition()
                unit.marks[partition] = mark

    async def _add_rows(self, unit: Unit, changes: Iterable[Change]) -> None:
        until = self._run.now() + _SLICE
        for number, change in enumerate(changes, 1):
            room: Room = change.room
            row = room.row(change)
            if row is None:
                unit.gone.setdefault(room.name, []).append(change.cell.text)
            else:
                unit.rows.setdefault(room.name, []).append(row)
            # Reading the clock costs as much as making a row.
            if not number % 16 and self._run.now() > until:
                await asyncio.sleep(0)
                until = self._run.now() + _SLICE

    def _release(self, done: list[Root]) -> None:
        """Let events end at their sources."""
        parts: list[tuple[Root, list[Event[Any]]]] = []
        first: Root | None = None
        part: list[Event[Any]] = []
        for root in done:
            event = root.event
            event.origin, event.outer = root.origin, root.outer
            if (
                first is None
                or root.origin is not first.origin
                or root.ending is not first.ending
                or root.why is not first.why
            ):
                first, part = root, []
                parts.append((first, part))
            part.append(event)
        self.held -= len(done)
        for root, part in parts:
            assert root.ending is not None
            root.origin.settle(part, root.ending, root.why)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
