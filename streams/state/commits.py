"""The commits of a store in one run: what is done, and the states that it has made, as one.

    event ──> stages with state ──> sinks ──> ended ──> commit ──> settled at its source
                     │ changes                            ^
                     └────────────────────────────────────┘

A change of a state is written in one transaction with the mark that its event is done, after all
sinks have accepted its results; only then is the source told. So after a crash exactly the events
that were not done come again, and meet states that have not seen them.

No barriers, and no snapshots: what has ended since the last commit is the next one, as in the group
commit of databases (D. J. DeWitt et al., "Implementation Techniques for Main Memory Database
Systems", SIGMOD 1984).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
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
from penstock.streams.state.changes import Change, Root, committable, depending

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["MOST", "Commits", "Room"]

MOST = 5_000
"""So many events that have ended are committed at once, however soon that is. Chosen: a commit of
them takes some tens of milliseconds."""

# Seconds after which the loop goes on, while the rows of a commit are made.
_SLICE = 0.002


class Room(Protocol):
    """A stage with states, to the commits that write them."""

    name: str

    def row(self, change: Change) -> Row | None:
        """What is written for a change: None if the key goes. Raises an error of the stage."""
        ...


class _Source:
    """A source whose marks are kept: how its events are noted as done, and its mark is made."""

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
    """Holds back the ends of events that have changed states, until these are written.

    An event that failed, or is returned, is not held back, and its changes are never written; nor
    are those of the events that changed the same keys after it, which are returned when they end.
    `held` events are held back or unfinished. Memory: a record for each of them and for each of
    their changes.
    """

    __slots__ = (
        "_backend",
        "_commit",
        "_ended",
        "_every",
        "_roots",
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
        self._roots: dict[Event[Any], Root] = {}
        self._ended: list[Root] = []
        self._sources: dict[Origin, _Source] = {}
        # Called once each when fewer events are held back.
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.Handle | None = None
        self._commit = Commit("state", self._write, self._soon, run.failed)
        run.on_flush(self._commit.flush)

    # Events on their way down.

    def root_of(self, event: Event[Any]) -> Root:
        """The root of an event, whose end is held back from now on."""
        origin = event.origin
        if origin is self:
            return _whole(self._roots[event])
        if not isinstance(origin, Family | Joined | AckHook):
            # Fast path, for what is as its source made it.
            return self._begin(event)
        root: Root | None = None
        for source in _sources_of(event):
            is_known = source.origin is self
            one = _whole(self._roots[source]) if is_known else self._begin(source)
            if root is None:
                root = one
            elif one is not root:
                root.join(one)
        assert root is not None
        return root

    def _begin(self, event: Event[Any]) -> Root:
        event.outer = event.origin, event.outer
        event.origin = self
        root = self._roots[event] = Root()
        self.held += 1
        return root

    # Ends.

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        gone: list[tuple[Event[Any], Ending, Any]] = []
        for event in events:
            root = _whole(self._roots.pop(event))
            root.missing -= 1
            if ending >= RETURNED:
                # It is missing for good.
                root.missing += 1
                gone.append((event, ending, why))
                gone += self._lose(root)
            elif root.is_lost:
                gone.append((event, RETURNED, None))
            else:
                root.ends.append((event, ending, why))
                if not root.missing:
                    self._ended.append(root)
        if self._ended:
            self.due()
        if gone:
            self._release(gone)

    def lose(self, root: Root) -> None:
        """The root has changed a key after one that will never be committed."""
        if gone := self._lose(root):
            self._release(gone)

    def _lose(self, root: Root) -> list[tuple[Event[Any], Ending, Any]]:
        """Return, when they end, the events of a root and of all that depend on it; those that have
        ended now."""
        gone: list[tuple[Event[Any], Ending, Any]] = []
        for one in depending(root):
            if not one.is_lost:
                one.is_lost = True
                gone += [(event, RETURNED, None) for event, _, _ in one.ends]
                one.ends = []
        self._ended = [one for one in self._ended if not one.is_lost]
        return gone

    def due(self) -> None:
        """Something is to be committed."""
        self._commit.due()
        if len(self._ended) >= MOST and self._timer is not None:
            timer, self._timer = self._timer, None
            timer.cancel()
            self._soon(self._commit.begin)

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        raise NotImplementedError

    def when_less_is_held(self, call: Callable[[], None]) -> None:
        """Call this once, when fewer events are held back than now."""
        self._waiting.append(call)

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
        began = self._run.now()
        ready, self._ended = committable(self._ended)
        unit = Unit()
        self._add_marks(unit, ready)
        newest = _newest(ready)
        await self._add_rows(unit, newest)
        if self._backend.in_thread:
            await self._run.loop.run_in_executor(None, self._backend.commit, unit)
        else:
            self._backend.commit(unit)
        for change in newest:
            change.written()
        self.committed += 1
        self.latencies.record(self._run.now() - began)
        for root in ready:
            # The changes refer to it: they would keep each other until the collector comes.
            root.changes = []
        self._release([end for root in ready for end in root.ends])

    def _add_marks(self, unit: Unit, ready: Iterable[Root]) -> None:
        if not self._sources:
            return
        done: dict[Origin, list[Event[Any]]] = {}
        for root in ready:
            for event, _, _ in root.ends:
                ((origin, _),) = roots(event)
                if origin in self._sources:
                    done.setdefault(origin, []).append(event)
        for origin, events in done.items():
            self._sources[origin].finish(events)
            self._sources[origin].is_due = True
        for source in self._sources.values():
            if source.is_due:
                source.is_due = False
                partition, mark = source.partition()
                unit.marks[partition] = mark

    async def _add_rows(self, unit: Unit, newest: Iterable[Change]) -> None:
        until = self._run.now() + _SLICE
        for number, change in enumerate(newest, 1):
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

    def _release(self, ends: list[tuple[Event[Any], Ending, Any]]) -> None:
        """Let events end at their sources."""
        for event, _, _ in ends:
            event.origin, event.outer = event.outer
        self.held -= len(ends)
        for (origin, ending, why), part in groupby(ends, _alike):
            origin.settle([event for event, _, _ in part], ending, why)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def _whole(root: Root) -> Root:
    """The root that has taken this one up, or itself."""
    while root.into is not None:
        root = root.into
    return root


def _alike(end: tuple[Event[Any], Ending, Any]) -> tuple[Origin, Ending, Any]:
    event, ending, why = end
    return event.origin, ending, why


def _newest(ready: Iterable[Root]) -> list[Change]:
    """The last change of each key among those of these roots."""
    last: dict[Any, Change] = {}
    for root in ready:
        for change in root.changes:
            after = change.after
            if after is None or after.root.missing or after.root.is_left:
                last[change.cell] = change
    return list(last.values())


def _sources_of(event: Event[Any]) -> Iterator[Event[Any]]:
    """The events of sources that an event was made of, each as its source made it."""
    made_of = parents(event)
    if not made_of:
        yield event
    for parent in made_of:
        yield from _sources_of(parent)
