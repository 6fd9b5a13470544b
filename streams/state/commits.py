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
from contextlib import AsyncExitStack
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import DatabaseUnavailable, counted
from penstock.streams.delivery.commit import Commit, Part, by_kind
from penstock.streams.delivery.marks import Participant
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.protocol.acknowledgement import AckHook, parents
from penstock.streams.protocol.event import RETURNED, BaseEvent, Ending, Event, Origin
from penstock.streams.runtime.wait import Wait
from penstock.streams.state.backend import (
    Backend,
    GivesUp,
    Moved,
    Moving,
    NotNow,
    PartsRefused,
    Restoring,
    Unit,
    Unknown,
)
from penstock.streams.state.changes import (
    NO_TIMERS,
    Orders,
    Root,
    all_of,
    as_new,
    committable,
    committed,
    depending,
    newest,
    released,
    undo,
    waits_for,
)
from penstock.streams.state.cut import cut
from penstock.streams.state.moves import Moves
from penstock.streams.state.reads import Reads
from penstock.streams.state.refused import Refused
from penstock.streams.state.rows import add_rows
from penstock.streams.state.sources import Done, Sources, comes_again

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["MOST", "Commits"]

MOST = 1_000
"""The number of ended events that are committed without waiting. Chosen: more cost as much for
each, and are in memory for longer."""

# The same for a backend that writes at once: so few that most are gone when the collector comes.
_MOST_AT_ONCE = 128

# Seconds after which a commit is tried again that could not be made.
_AGAIN = 0.1

# Seconds for which a store may take no commit once its run was cancelled: as long as a dead-letter
# sink has then.
_GRACE = 5.0


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
        "_free",
        "_is_cut",
        "_is_given_up",
        "_is_torn",
        "_left",
        "_most",
        "_name",
        "_numbered",
        "_orders",
        "_over",
        "_overdue",
        "_patience",
        "_run",
        "_slow",
        "_sources",
        "_timer",
        "_voided",
        "_waiting",
        "_written",
        "committed",
        "database",
        "held",
        "latencies",
        "moves",
        "reads",
    )

    def __init__(self, run: Run, backend: Backend, every: float, name: str = "The store") -> None:
        self._run = run
        self._backend = backend
        self._every = every
        self._name = name
        # Whether the last one had as many rows as there may be.
        self._is_cut = False
        self._most = MOST if backend.in_thread else _MOST_AT_ONCE
        self.held = 0
        self.committed = 0
        self.latencies = LatencyHistogram()
        self._ended: list[Root] = []
        # How many of them were left by the last commit, and how many it writes.
        self._left = self._written = 0
        # Records that are used again: to make one costs more than all that is done with it, and the
        # collector looks at each new one.
        self._free: list[Root] = []
        self.database = backend.database
        self._sources = Sources()
        self._orders = Orders()
        # The time before which rows are over, by stage.
        self._over: dict[str, Callable[[], float]] = {}
        # How many parts came, and how many of them were void.
        self._numbered = self._voided = 0
        # Called once each when fewer events are held back.
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.Handle | None = None
        self.reads = Reads(run, backend, name)
        self._slow = Wait(
            run, None, lambda: f"{name} has not answered a commit for 5 s: events wait for it"
        )
        # While a commit is under way, and for good if one has failed: its events are done to their
        # sources, so nothing after it may be written without what it has not written.
        self._is_torn = False
        self._commit = Commit("state", self._write, self._soon, run.failed)
        self.moves: Moves | None = None
        if isinstance(backend, Moving):
            parts = self._sources, self.reads, self._commit, self.lose
            self.moves = Moves(run, backend, name, *parts)
        # At the end of the run: seconds for which no commit may be made, when these are over, and
        # whether they are.
        self._patience = run.drain_deadline
        self._overdue: asyncio.TimerHandle | None = None
        self._is_given_up = False
        run.on_flush(self._flush)

    # Events on their way down.

    def hold(self, events: Iterable[Event[Any]]) -> list[Root]:
        """The roots of events, whose ends are held back from now on."""
        roots: list[Root] = []
        free = self._free
        source: Origin | None = None
        held = 0
        event: BaseEvent
        root: Root | None
        for event in events:
            origin = event.origin
            if origin is not source:
                root = self._root_above(event)
                if root is not None:
                    roots.append(root)
                    continue
                if not isinstance(origin, AckHook):
                    # What it has emitted is as it made it.
                    source = origin
            root = free.pop() if free else Root()
            root.event = event
            root.origin = origin
            root.outer = event.outer
            event.origin = self
            event.outer = root
            held += 1
            roots.append(root)
        self.held += held
        if self.moves is not None:
            for root in roots:
                if not root.root.is_lost and not self._sources.may_commit(root):
                    # It must not change what others that come again find.
                    self.lose(root.root)
        return roots

    def _root_above(self, event: Event[Any]) -> Root | None:
        """The root of an event that is held back already, or was made of others."""
        origin, outer = event.origin, event.outer
        # Another stage that is told how events end may be in front.
        while isinstance(origin, AckHook):
            if origin is self:
                held: Root = outer
                return held.root
            origin, outer = origin.behind(outer)
        if isinstance(origin, Refused):
            # Its events may have been returned since.
            return origin.root.root
        made_of = parents(event)
        return self._root_of_all(made_of) if made_of else None

    def _root_of_all(self, events: Sequence[Event[Any]]) -> Root:
        """The one root of events of which another one was made."""
        first, *others = self.hold(events)
        for other in others:
            # They may have been taken up by then, if an event is in several lists.
            if other.root is not first.root:
                self._join(first.root, other.root)
        return first.root

    def _join(self, root: Root, other: Root) -> None:
        is_lost = root.is_lost or other.is_lost
        root.join(other)
        if is_lost:
            # With what depends on the one that was not.
            root.is_lost = False
            self.lose(root)

    # Ends.

    holds_back = True

    def behind(self, outer: Root, /) -> tuple[Origin, Any]:
        return outer.origin, outer.outer

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        own: Root
        root: Root
        event: BaseEvent
        gone: list[Root] = []
        is_done = ending < RETURNED
        for event in events:
            own = event.outer
            own.ending = ending
            own.why = why
            root = own.root
            if not is_done:
                # It is missing for good.
                gone.append(own)
                gone += self._lose(root)
                continue
            root.missing = missing = root.missing - 1
            if not missing:
                self._ended.append(root)
            elif root.is_lost:
                own.ending, own.why = RETURNED, None
                gone.append(own)
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
        all_lost = [one for one in depending(root) if not one.is_lost]
        for lost in all_lost:
            lost.is_lost = True
            # One that has ended is missing again.
            lost.missing += 1
            for one in lost.all():
                if one.ending is not None and one.ending < RETURNED:
                    one.ending, one.why = RETURNED, None
                    gone.append(one)
        if gone:
            self._ended = [one for one in self._ended if not one.is_lost]
        if all(map(comes_again, all_lost)):
            # In this run, and onto the states before. Otherwise what came after it must wait for
            # the next run.
            undo(all_lost)
        for lost in all_lost:
            parts, lost.parts = lost.parts, None
            for _, part in parts or ():
                self._voided += not part.settled
                part.settle(is_void=True)
        return gone

    def due(self) -> None:
        """Schedule a commit."""
        self._commit.due()
        if self._timer is not None and self._new >= self._most:
            timer, self._timer = self._timer, None
            timer.cancel()
            self._soon(self._commit.begin)

    def when_less_is_held(self, call: Callable[[], None]) -> None:
        """Have this called once, when fewer events are held back than now."""
        self._waiting.append(call)

    def waits_for(self) -> dict[str, Any] | None:
        """The key of a change that events which have ended wait for, and the age in seconds of the
        event that made it, which has not ended; None if no event waits for another."""
        return waits_for(self._ended, self._run.now())

    @property
    def _new(self) -> int:
        """The number of events that have ended since the last commit began."""
        return len(self._ended) - self._left

    @property
    def room(self) -> int:
        """The number of events that may end before some are committed."""
        return 2 * self._most - self._new - self._written

    def delete_over(self, stage: str, until: Callable[[], float]) -> None:
        """Have each commit delete rows of a stage whose `due` is before this time."""
        self._over[stage] = until

    def waits(self, root: Root, event: Event[Any]) -> bool:
        """Whether an event, which was the root's, will be done after the commit that begins now, if
        at all."""
        if getattr(root, "event", None) is not event:
            # The record is another event's now.
            return False
        if root.ending is not None and event.origin is not self:
            return False
        return root.root.missing > 0 or root.root.is_left

    # Sources and sinks.

    @property
    def is_busy(self) -> bool:
        return self._commit.is_busy

    def is_read(self, partition: str) -> bool:
        """Whether a source of this run reads a partition."""
        return self._sources.has(partition)

    def mark(self, partition: str) -> bytes | None:
        self._sources.claim(partition)
        return self._backend.mark(partition)

    async def mark_of(self, partition: str) -> bytes | None:
        self._sources.claim(partition)
        return await self.reads.wait(partial(self._backend.mark, partition))

    async def adopt(self, partition: int, count: int) -> None:
        assert self.moves is not None
        await self.moves.adopt(partition, count)

    def begin(self, partition: int) -> None:
        assert self.moves is not None
        self.moves.begin(partition)

    async def release(self, partition: int, patience: float = 0.0) -> None:
        assert self.moves is not None
        await self.moves.release(partition, patience)

    def restoring(self) -> Sequence[Restoring]:
        return [] if self.moves is None else self.moves.restoring()

    def standby_lag(self) -> int | None:
        return None if self.moves is None else self.moves.standby_lag()

    def keep(self, origin: Origin, source: Participant) -> Callable[[], None]:
        if self.moves is not None and source.lends:
            self.moves.take(source)
        return self._sources.keep(origin, source, self.due)

    def holds(self, event: Event[Any]) -> bool:
        origin, outer = event.origin, event.outer
        while isinstance(origin, AckHook):
            if origin is self:
                return True
            origin, outer = origin.behind(outer)
        return any(map(self.holds, parents(event)))

    def accept(self, event: Event[Any], part: Part[Any], key: Any = None) -> None:
        if event.pending <= 0 and not self.holds(event):
            part.settle(is_void=True)
            return
        root = self.hold((event,))[0].root
        if key is not None and not root.is_lost:
            change = root.change(self._orders.cell(key), None, NO_TIMERS)
            if change.before is not None and change.before.root.is_lost:
                self.lose(root)
        is_lost = root.is_lost
        if not is_lost:
            if root.parts is None:
                root.parts = []
            self._numbered += 1
            root.parts.append((self._numbered, part))
        # Also if it is lost: it is returned when all sinks have had it, not between two of them.
        event.finish()
        if is_lost:
            part.settle(is_void=True)
        elif root.root.missing:
            # What it waits for may be above the sink, and must not wait for room there.
            part.release()

    def again(self, event: Event[Any]) -> Event[Any]:
        root = self.hold((event,))[0].root
        root.missing += 1
        return Event(event.value, event.created, Refused(root, self.ended_again), event.token)

    def ended_again(self, root: Root, ending: Ending, why: Any) -> None:
        """The event that `again` has made for a root has ended."""
        if root.is_lost:
            return
        for one in root.all():
            if one.ending is None or ending > one.ending:
                one.ending, one.why = ending, why
        if ending >= RETURNED:
            gone = [*root.all(), *self._lose(root)]
            self._release(gone)
        else:
            root.missing -= 1
            if not root.missing:
                self._ended.append(root)
                self.due()

    # The end.

    async def _flush(self) -> None:
        """Commit all that has ended. Raises DatabaseUnavailable if no commit is made for as long as
        a drain may take, and the backend can give up."""
        self._wait()
        try:
            await self._commit.flush()
        except asyncio.CancelledError:
            self._give_up()
            raise
        finally:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None

    def hurry(self) -> None:
        """Limit the wait for a store that takes no commits to a few seconds."""
        self._patience = min(self._patience, _GRACE)
        if self._overdue is not None:
            self._wait()

    def _wait(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self._run.call_later(self._patience, None, self._look, self.committed)

    def _look(self, before: int) -> None:
        """Wait no longer, unless a commit was made since there were so many."""
        if self.committed > before:
            self._wait()
        else:
            self._give_up()

    def _give_up(self) -> None:
        self._is_given_up = True
        if isinstance(self._backend, GivesUp):
            self._backend.give_up()

    def _not_written(self, why: Exception) -> DatabaseUnavailable:
        """The error of a run that has ended without its last commit."""
        count = sum(1 for root in self._ended for _ in root.all())
        said = f"{self._name}: its servers took no commit for {self._patience:g} s at the end"
        if isinstance(why, Unknown):
            return DatabaseUnavailable(
                f"{said} ({why}), and it is not known whether they have taken the last one, with "
                f"{counted(count, 'event')}. It is written as a whole, or not at all: the next run "
                "finds out which, and goes on from there. Start it when they answer"
            )
        return DatabaseUnavailable(
            f"{said} ({why}): {counted(count, 'event')} and what they have changed are not "
            "committed. They come again: the next run goes on from the commit before. Start it "
            "when they answer"
        )

    # Commits.

    def _soon(self, begin: Callable[[], None]) -> None:
        # With an interval of 0, in the next iteration of the loop.
        pause = 0.0 if self._is_cut or self._new >= self._most else self._every
        self._timer = self._run.call_later(pause, None, begin)

    async def _write(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            # A flush does not wait for it.
            timer.cancel()
        if self._is_torn:
            return
        self._is_torn = True
        began = self._run.now()
        async with AsyncExitStack() as held:
            await self._sources.hold(held)
            try:
                done = await self._write_most()
            except Unknown as unknown:
                raise self._not_written(unknown) from None
            except NotNow as not_now:
                if self._is_given_up:
                    raise self._not_written(not_now) from None
                # All is as before it.
                self._is_torn = False
                self._written = 0
                await asyncio.sleep(_AGAIN)
                self.due()
                return
        self._is_torn = False
        self._written = 0
        self.committed += 1
        if self._is_cut:
            self.due()
        self.latencies.record(self._run.now() - began)
        self._release(done)
        as_new(done)
        self._free += done

    async def _write_most(self) -> list[Root]:
        """Commit all that may be, except for what the database refuses, and what waits for that;
        returns what was done. Raises NotNow if nothing can be written, and Unknown."""
        moves = self.moves
        while True:
            ready, self._ended = committable(self._ended)
            self._is_cut = False
            if (most_rows := self._backend.most_rows) is not None:
                most = most_rows - self._sources.most_marks
                ready, left = cut(ready, most, self._name)
                self._ended += left
                self._is_cut = bool(left)
            self._left, self._written = len(self._ended), len(ready)
            done = all_of(ready)
            by_source = self._sources.done(done)
            ends = self._ends_of(by_source)
            if ends is None:
                # A source does not have all of them any more.
                self._ended += [root for root in ready if not root.is_lost]
                continue
            parts = [*ends, *self._parts_of(ready)]
            over = {stage: until() for stage, until in self._over.items()}
            unit = Unit(parts=by_kind(parts), over=over)
            marked = self._sources.add_marks(unit, by_source)
            changes = newest(ready)
            ordered = changes.pop(self._orders, ())
            if moves is None:
                await add_rows(unit, changes, self._run.now)
            else:
                moves.marks(unit)
                for partition, changed_in_it in moves.split(changes).items():
                    of_it = unit.partitions.setdefault(partition, Unit())
                    await add_rows(of_it, changed_in_it, self._run.now)
            try:
                await self._commit_unit(unit)
            except (Moved, NotNow, Unknown) as moved:
                self._sources.not_written(marked)
                self._ended += ready
                if not isinstance(moved, Moved):
                    raise
                assert moves is not None
                for partition in moved.partitions:
                    moves.taken(partition)
                self._ended = [root for root in dict.fromkeys(self._ended) if not root.missing]
                continue
            except PartsRefused as refused:
                self._sources.not_written(marked)
                self._refuse(ready, parts, refused)
                continue
            committed(ready)
            for room, changed in changes.items():
                room.committed(changed)
            for change in ordered:
                self._orders.forget(change.cell)
            for part in parts:
                part.settle()
            self._sources.written(unit, by_source, marked)
            return done

    async def _commit_unit(self, unit: Unit) -> None:
        if not self._backend.in_thread:
            self._backend.commit(unit)
            return
        self._slow.begin()
        try:
            await self._run.loop.run_in_executor(None, self._backend.commit, unit)
        finally:
            self._slow.end()

    def _ends_of(self, done: Done) -> list[Part[Any]] | None:
        """The parts that are the ends of events; None if a source has lost one of these."""
        ends: list[Part[Any]] = []
        gone: list[Root] = []
        moves = self.moves
        for source, events in done.items():
            if not source.lends:
                continue
            for event in events:
                own: Root = event.outer
                assert own.ending is not None
                if not source.has(event) or (
                    moves is not None and moves.has_gone(source.partition_of(event))
                ):
                    gone += self._lose(own.root)
                elif (part := source.end(event, own.ending, own.why)) is not None:
                    part.roots.append(own)
                    ends.append(part)
        if gone:
            self._release(gone)
            return None
        return ends

    def _parts_of(self, ready: Iterable[Root]) -> list[Part[Any]]:
        """The parts of these roots, in the order in which they came."""
        if not self._numbered:
            return []
        for root in self._ended:
            for _, part in root.parts or ():
                part.release()
        numbered = [one for root in ready for one in root.parts or () if not one[1].settled]
        return [part for _, part in sorted(numbered, key=itemgetter(0))]

    def _refuse(self, ready: list[Root], parts: list[Part[Any]], refused: PartsRefused) -> None:
        """Settle the parts that were refused, in order; their events end anew.

        Up to one whose event is lost with other parts: without these, later ones may not be
        refused.
        """
        self._ended += ready
        of_kind = [part for part in parts if part.kind is refused.kind]
        for place, error in refused.errors.items():
            part, voided = of_kind[place], self._voided
            if part.settled:
                # It is void.
                continue
            part.settle(error)
            for own in part.roots:
                # An end.
                self.lose(own.root)
            if self._voided > voided and not part.roots:
                break
        self._ended = [root for root in dict.fromkeys(self._ended) if not root.missing]

    def _release(self, done: list[Root]) -> None:
        """Let events end at their sources."""
        parts = released(done)
        self.held -= len(done)
        for origin, ending, why, part in parts:
            origin.settle(part, ending, why)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
