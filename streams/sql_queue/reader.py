"""The source stage that reads a queue: claims rows on demand, and settles them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from typing import Any

from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import BadRow, LeaseLost, add_note, describe, notes_of
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.delivery.marks import MarksOfRun
from penstock.streams.failures.backoff import Backoff
from penstock.streams.io.body import NotAValue, json_value, text_of
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import cancellable
from penstock.streams.sql_queue.analytics.statistics import Unclaimed, unclaimed
from penstock.streams.sql_queue.claimed import UNREADABLE, ClaimTerms, Refused, Row, Settlement
from penstock.streams.sql_queue.claims import Claims
from penstock.streams.sql_queue.ledger import Ledger
from penstock.streams.sql_queue.other_readers import Elsewhere
from penstock.streams.sql_queue.periodic import Periodic, Scheduler
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.store import DatabaseLost, Store
from penstock.streams.sql_queue.url import database_of, place_of
from penstock.streams.sql_queue.within import Ends, ends_in

__all__ = ["ReaderOptions", "TableReader"]

# Seconds between two looks at whether the queue is paused.
_PAUSED_EVERY = 1.0
# Seconds between two searches for rows that may have crashed their readers.
_SUSPECTS_EVERY = 1.0
# Seconds without any call in progress after which rows still in the pipeline count as held back.
_QUIET = 0.2
# Seconds after which a reader that waits for rows sees that it may claim those that it has left.
_SOON = 0.02
# Least seconds between two counts of the rows that wait, and between them as a multiple of what the
# last one took.
_COUNTED_EVERY, _REST = 5.0, 20.0
# How many priorities are counted, as there may be one for each row.
_PRIORITIES = 5


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of a reader; `read_table` documents each."""

    backoff: Backoff
    batch: int
    follow: bool
    poll: float
    patience: float
    wait_for_leases: bool = True
    only: tuple[str, Sequence[str]] | None = None
    dead_on: tuple[type[Exception], ...] = ()
    periodic: Mapping[str, Periodic] | None = None


class TableReader(LeasedSource[Row]):
    """One run of `penstock.read_table`: what has arrived are claimed rows."""

    def __init__(
        self,
        downstream: Subscriber[dict[str, Any]],
        run: Run,
        info: StageInfo,
        store: Store,
        terms: ClaimTerms,
        manner: ReaderOptions,
    ) -> None:
        super().__init__(downstream, run, info)
        self.database = database_of(store.url)
        self._place = place_of(store.url, store.layout.table)
        self._store = store
        self._terms = terms
        self._manner = manner
        self._is_there = False
        self._insist = Reconnecting(run, store, manner.patience)
        self.ledger = Ledger(
            run,
            store,
            terms,
            manner.backoff,
            self._insist,
            self._marked,
            self._void,
            self._spoiled,
            self._cancel_calls,
            self._cancelled,
            manner.dead_on,
        )
        self._claims = Claims(
            run,
            store,
            terms,
            manner.batch,
            self._insist,
            self.ledger,
            self._unclaimable,
            self._exhausted,
        )
        self._elsewhere = Elsewhere(store, terms)
        self._scheduler = None
        if manner.periodic:
            self._scheduler = Scheduler(store, self._insist, manner.periodic)
        self._told_of_others = False
        # Whether the queue is paused, as far as known, and when that is asked again.
        self._is_paused = False
        self._paused_at = 0.0
        self._info = info
        self._wanted = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        # Keys whose rows are left in the table, and by how many stages each; whether one has been
        # taken out since the last claim.
        self._left: Counter[str] = Counter()
        self._goes_on = False
        # Rows that are held here, and that a claim has found to have failed for good.
        self._given_up: set[Row] = set()
        self._redelivered = self._bad = 0
        # How many events have ended, in whichever way.
        self._over = 0
        # How rows end, if a store commits their events.
        self._ends: Ends | None = None
        self._suspects_at = 0.0
        self._unclaimed: Unclaimed | None = None
        # The rows that had ended, those held, and those that were due or to be tried again, at the
        # last count. More or fewer may come, as others enqueue and read too.
        self._in_all: int | None = None

    # Events out.

    def open(self) -> None:
        self.run.on_close(self._disconnect)
        self._polling = self.run.spawn(self._poll(), "read_table", stage=self)

    def has_room(self) -> None:
        if self.demand:
            self._wanted.set()

    def is_held(self, token: Row, /) -> bool:
        return self.ledger.holds(token)

    def holds(self, token: Row, /) -> bool:
        held = self.ledger.holds(token)
        if held:
            token.begun = True
        return held

    @property
    def is_connected(self) -> bool:
        return self._is_there and not self._insist.is_away

    def identity(self, token: Row, /) -> Identity:
        # An id may be used again, as after the table was emptied: the time tells the rows apart.
        return Identity(self._place, f"{token.came:.6f}", token.id)

    def leave(self, token: Row, key: Any, /) -> Callable[[], None] | None:
        # Not if the events of one key here may be of several there.
        if token.key is None or token.key != str(key) or self.state:
            return None
        left, name = self._left, token.key
        left[name] += 1

        def go_on() -> None:
            left[name] -= 1
            if not left[name]:
                del left[name]
                self._goes_on = True
                self.wake_soon()

        return go_on

    # Rows in.

    def _warn_of_near_tables(self) -> None:
        if self._store.near:
            near = ", ".join(map(repr, self._store.near))
            self.run.errors.warn(
                f"{redacted(self._store.url)} had no table {self._store.layout.table!r}, and "
                f"{self.info.name} has made it; there is {near}"
            )

    async def _poll(self) -> None:
        try:
            tracing = self.run.tracing
            context = None if tracing is None else tracing.options[1]
            manner = self._manner
            required = Required(there=not manner.follow, context=context, only=manner.only)
            await self._insist(partial(self._store.open, required))
            self._warn_of_near_tables()
            await self._look_for_store()
            self._is_there = True
            self.ledger.start()
            if self._scheduler is not None:
                self.run.spawn(self._scheduler.work(), "periodic jobs of read_table", stage=self)
            if self.run.observers:
                self.run.spawn(self._count_unclaimed(), "unclaimed rows of read_table", stage=self)
            while not self.state:
                await self._wanted.wait()
                self._wanted.clear()
                if not self.demand or self.arrived:
                    continue
                if await self._paused():
                    await self._change(min(self._manner.poll, _PAUSED_EVERY))
                    self.wake()
                    continue
                if self.run.now() >= self._suspects_at:
                    await self._try_suspects()
                    if not self.demand or self.arrived:
                        continue
                goes_on, self._goes_on = self._goes_on, False
                rows, enough = await self._claims.claim(
                    self.demand, self._over, self._left, more=goes_on
                )
                held_back = self._take(rows)
                if (held_back or not enough) and not self.arrived and not self.state:
                    await self._until_more()
                self.wake()
        except Exception as error:
            self._polling = None
            self.fail(error)

    async def _paused(self) -> bool:
        """Whether the queue is paused, by a look that is not old."""
        if self.run.now() >= self._paused_at:
            was = self._is_paused
            self._is_paused = await self._insist(self._store.is_paused, idle=True)
            self._paused_at = self.run.now() + _PAUSED_EVERY
            if self._is_paused and not was:
                self.run.errors.warn(
                    f"read_table: {self._info.detail} is paused, until 'penstock queue resume'"
                )
        return self._is_paused

    async def _look_for_store(self) -> None:
        """Have rows end in the commits of a store, if the run has one."""
        found = await ends_in(
            *(self.run.root.stores, str(self.info), self._place, self.database),
            *(self.ledger, self._store, self._terms, self._insist),
        )
        if found is not None:
            store, self._ends = found
            store.keep(self, self._ends)

    async def _count_unclaimed(self) -> None:
        """Count the rows that wait, now and then. In a long table that takes a while, during which
        nothing else may be read, and so it is done for a twentieth of the time at most."""
        while True:
            began = self.run.now()
            with suppress(DatabaseLost):
                self._unclaimed = found = await cancellable(unclaimed(self._store, _PRIORITIES))
                ended = self._finished + self.counts["failed"] + sum(self.drops.values())
                self._in_all = ended + len(self.ledger.held) + found.left
            took = self.run.now() - began
            await asyncio.sleep(max(_COUNTED_EVERY, _REST * took))

    async def _try_suspects(self) -> None:
        """Work on rows that may have crashed their readers, each while nothing else is held."""
        wait = _SUSPECTS_EVERY
        while await self._claims.has_suspects():
            await self._until_idle()
            if any(row.token < 0 for row in self.ledger.held) and self.run.calls:
                # The last one is still in a call, in which it may crash this reader too.
                wait = self._terms.lease
                break
            suspects = await self._claims.claim_suspect()
            self._take(suspects)
            if not suspects:
                break
            self.wake()
            await self._until_idle()
        self._suspects_at = self.run.now() + wait

    @property
    def _still(self) -> float:
        """Seconds without an end of a row after which those that are held are held back."""
        return self._terms.lease

    async def _until_idle(self) -> None:
        """Wait until nothing is held, or nothing has ended for as long as a lease: what an operator
        holds back may never end before the stream does."""
        held, before = len(self.ledger.held), inf
        while 0 < held < before:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._still):
                    await self.ledger.idle.wait()
            held, before = len(self.ledger.held), held

    def _take(self, rows: list[Row]) -> bool:
        """Make the claimed rows ready; returns whether some of them may not begin yet."""
        now = self.run.now()
        held_back = False
        for row in rows:
            if row.ended or not self.ledger.holds(row):
                self.ledger.give_back(row)
                held_back = True
                continue
            if row.attempts > 1:
                self._redelivered += 1
            row.created = now - max(0.0, row.age)
            self.arrived.append(row)
        if self.state:
            self.give_back(taken(self.arrived, len(self.arrived)))
        return held_back

    def event(self, token: Row, now: float, /) -> Event[Any] | None:
        if self._ends is not None and not self._begins(self._ends, token):
            return None
        payload = token.payload
        try:
            if token.key == UNREADABLE:
                raise NotAValue("has a text that the database cannot read")
            if payload is None:
                raise NotAValue("is null")
            value: Any = json_value(payload)
            if value.__class__ is not dict:
                raise NotAValue(f"is of type {type(value).__name__}, not an object")
        except NotAValue as bad:
            text = payload if isinstance(payload, str) else text_of(payload)
            error = self._bad_one(token, f"its payload {bad}: {describe(text)}")
            self.ledger.fail(token, error, final=True)
            return None
        return Event(value, token.created, self, token)

    def _begins(self, ends: Ends, row: Row) -> bool:
        """Whether a row is not done yet, as far as the store knows."""
        done = ends.done(row)
        if done is None:
            if ends.begins(row):
                return True
            self.ledger.give_back(row)
        else:
            self.received += 1
            if done.error is None:
                self.count_ends(1, (), Ending.DROPPED, "already done")
                self.ledger.drop([row])
            else:
                self.count_failures(1, True)
                self.ledger.bury(row, done.error)
        return False

    def _unclaimable(self, id: Any, error: Refused) -> None:
        self._bad_one(f"row {id}", f"the database lets nobody claim it: {error}")

    def _exhausted(self, id: Any) -> None:
        """A row has failed for good: no reader has lived to say so, or this one was blocked."""
        row = self.ledger.row(id)
        if row is None:
            self.ledger.dead += 1
        elif row.dead:
            # Of its own error, which is not recorded yet.
            return
        else:
            self.ledger.count_dead(row)
        most = self._terms.attempts
        when = "in its only attempt" if most == 1 else f"{most} times in a row while it was alone"
        error = LeaseLost(
            f"row {id} of {self._info.detail} has failed for good: a reader crashed or hung, and "
            f"its lease ran out, {when}. Mend what ends the reader, or give a longer lease=, then "
            f"try the row again with 'penstock queue retry --id {id}'"
        )
        if row is None:
            self.received += 1
            self._report_failed(error, True)
        else:
            # It is counted when its event has ended.
            self._given_up.add(row)
            self._report(error)

    def _bad_one(self, row: Row | str, what: str) -> BadRow:
        place = f"{row} of {self._info.detail}"
        error = BadRow(f"{place}: {what}")
        error.place = place
        self._bad += 1
        self.run.errors.count_bad_line(error)
        return error

    async def _until_more(self) -> None:
        """Wait until another row may be due; without `follow`, end if nothing is left."""
        ledger, manner = self.ledger, self._manner
        ledger.due = [due for due in ledger.due if due > self._claims.began]
        now = self.run.now()
        wait = max(0.0, min([manner.poll, *(due - now for due in ledger.due)]))
        if manner.follow or self._left or self._goes_on:
            await self._change(wait)
        elif ledger.due or ledger.returned_at >= self._claims.began:
            await asyncio.sleep(wait)
        elif not ledger.held or not await self._is_busy():
            self._suspects_at = 0.0
            if not await self._claims.has_suspects():
                await self._wait_or_complete()

    async def _change(self, within: float) -> None:
        """Wait until something may have been enqueued, or left rows are wanted."""
        end = self.run.now() + within
        while not self._goes_on and (wait := end - self.run.now()) > 0:
            if self._left:
                wait = min(wait, _SOON)
            if await self._insist(partial(self._store.changed, wait), idle=True):
                break

    async def _wait_or_complete(self) -> None:
        """Nothing is left to claim: wait a while for what others hold, or end."""
        elsewhere, waits = self._elsewhere, self._manner.wait_for_leases
        await self._insist(lambda: elsewhere.look(holding=bool(self.ledger.held)))
        if elsewhere.text and not self._told_of_others:
            self._told_of_others = True
            what = "waiting for" if waits else "ended without"
            self.run.errors.warn(f"read_table: {what} rows elsewhere: {elsewhere.text}")
        if elsewhere.text and waits:
            seconds = min(self._manner.poll, max(elsewhere.seconds, _QUIET))
            await self._insist(partial(self._store.changed, seconds), idle=True)
        else:
            if self._in_all is not None:
                # Other readers have the rest of those that were counted.
                self._in_all = self._kept
            self.complete()

    async def _is_busy(self) -> bool:
        """Whether rows of this reader are being processed, and may come back; waits for them, as
        long as between two looks at the table."""
        until, quiet = self.run.now() + self._manner.poll, 0
        while quiet < 10:
            await asyncio.sleep(_QUIET / 10)
            stores: list[MarksOfRun] = self.run.root.stores
            calls = self.run.calls or any(store.is_busy for store in stores)
            quiet = 0 if calls else quiet + 1
            is_over = calls and self.run.now() >= until
            if is_over or self.ledger.is_writing or not self.ledger.held:
                return True
        return False

    # Outcomes of events. A finished event counts when its row is marked.

    @property
    def gives_again(self) -> bool:
        return True

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        self._over += len(events)
        if self.ledger.cancelled:
            events = [event for event in events if not self._is_cancelled(event.token)]
            if not events:
                return
        if self._ends is not None:
            events = self._unrecorded(events, ending, why)
        if self._given_up:
            events = [event for event in events if not self._is_given_up(event.token)]
        tokens = [event.token for event in events]
        if ending is Ending.FINISHED:
            self.ledger.finish(tokens)
        elif ending in (Ending.FORGIVEN, Ending.FAILED):
            final = ending is Ending.FORGIVEN
            for token in tokens:
                self.count_failures(1, self.ledger.fail(token, why, final=final))
        else:
            super().settle(events, ending, why)
            if ending is Ending.DROPPED:
                self.ledger.drop(tokens)
            else:
                self.give_back(tokens)

    def _unrecorded(self, events: list[Event[Any]], ending: Ending, why: Any) -> list[Event[Any]]:
        """Count the events whose rows a store has recorded; returns the others."""
        recorded = [event for event in events if event.token.recorded]
        if not recorded:
            return events
        if ending < Ending.RETURNED:
            super().settle(recorded, ending, why)
        # Otherwise their failure was counted when it was recorded.
        return [event for event in events if not event.token.recorded]

    def _cancel_calls(self) -> None:
        """Rows were cancelled: so are the calls of their events."""
        cancelled = self.ledger.cancelled

        def is_gone(event: Event[Any]) -> bool:
            return all(origin is self and token in cancelled for origin, token in roots(event))

        self.run.root.cancel_calls(is_gone)

    def _is_cancelled(self, row: Row) -> bool:
        """Whether it was cancelled before its event has ended, in whatever way; it counts now."""
        if row not in self.ledger.cancelled:
            return False
        self.ledger.end_cancelled(row)
        self._cancelled(row)
        return True

    def _cancelled(self, row: Row) -> None:
        self._given_up.discard(row)
        self.count_ends(1, (), Ending.DROPPED, "cancelled")

    def _is_given_up(self, row: Row) -> bool:
        """Whether it has failed for good already, whatever its event ends with; it counts now."""
        if row not in self._given_up:
            return False
        self._given_up.discard(row)
        self.ledger.lose(row)
        self.count_failures(1, True)
        return True

    def _marked(self, settlement: Settlement) -> None:
        self.count_ends(len(settlement.finished), (), Ending.FINISHED, None)
        if self._ends is not None:
            self._ends.recorded(settlement)

    def _void(self, row: Row, error: Exception, for_good: bool) -> None:
        if row in self._given_up:
            # Its event had ended before.
            self._given_up.discard(row)
            self.count_failures(1, True)
        else:
            self._report_failed(error, for_good)

    def _report_failed(self, error: Exception, for_good: bool) -> None:
        self.count_failures(1, for_good)
        self._report(error)

    def _report(self, error: Exception) -> None:
        if not notes_of(error):
            add_note(error, f"in {self._info}")
        self.run.errors.count(error)

    def _spoiled(self, row: Row, error: Exception) -> None:
        self.counts["returned"] -= 1
        self._void(row, error, True)

    # The end.

    def release(self) -> None:
        super().release()
        self.leave_to_others(self.ledger.to_be_tried(self._claims.began))
        if self._polling is not None and self._polling is not asyncio.current_task():
            self.run.tasks.cancel(self._polling)

    def give_back(self, tokens: Iterable[Row], /) -> None:
        for row in tokens:
            self.ledger.give_back(row)

    async def _disconnect(self) -> None:
        try:
            await self._claims.close()
            await self.ledger.close()
        finally:
            await self._store.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and the queue's.

        `claims` (statements), rows `held` (claimed, not yet written down) and `read_ahead`
        (claimed, not yet requested); rows that nobody has claimed, which are counted only while the
        running is recorded: `pending` those that are due, `delayed` those that are not, and the
        lowest `priorities`, each with how many rows it has, empty if there are none but 0; with
        `follow=False`, how much of the rows known at the last count has been `emitted`;
        `redelivered` rows, which had been claimed before; `reverted` to be tried again, `snoozed`
        by their handler, `cancelled` while they were in work here, and `dead`, which failed for
        good; whether the queue is `paused`; rows that were `scheduled`, enqueued here for a
        periodic job, and the `periodic` jobs, with name, schedule, `next` and `last` time in
        seconds since 1970, and how many times were `missed`; `bad_rows`, `lost_leases`,
        `reconnects`, how often the database was unavailable, and `waited`, the seconds in which the
        table did not answer, beyond four at a time.
        """
        counted = self._unclaimed
        return {
            **super().statistics(),
            "claims": self._claims.count,
            "held": len(self.ledger.held),
            "read_ahead": len(self.arrived),
            "pending": None if counted is None else counted.due,
            "delayed": None if counted is None else counted.delayed,
            "priorities": [] if counted is None else list(counted.priorities),
            "emitted": self._emitted(),
            "redelivered": self._redelivered,
            "reverted": self.ledger.reverted,
            "snoozed": self.ledger.snoozed,
            "cancelled": self.ledger.cancellations,
            "paused": self._is_paused,
            "periodic": []
            if self._scheduler is None
            else [asdict(job) for job in self._scheduler.planned.values()],
            "scheduled": 0 if self._scheduler is None else self._scheduler.count,
            "dead": self.ledger.dead,
            "bad_rows": self._bad,
            "lost_leases": self.ledger.lost,
            "reconnects": self._insist.lost,
            "waited": self._insist.waited,
        }

    def _emitted(self) -> float | None:
        """How much of the rows known at the last count has been emitted; None if not counted."""
        if self._manner.follow or self._in_all is None:
            return None
        return min(1.0, self._kept / self._in_all) if self._in_all else 1.0

    @property
    def _kept(self) -> int:
        """Rows that have been emitted and have not gone back to the table."""
        return self.received - self.counts["returned"]
