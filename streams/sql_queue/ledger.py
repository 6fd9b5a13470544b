"""The ledger of a running reader: the rows it has claimed, and the outcomes still to be
recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from random import Random
from typing import Any

from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import (
    DatabaseUnavailable,
    LeaseLost,
    RightsMissing,
    Snooze,
    add_note,
    notes_of,
)
from penstock.streams.delivery.commit import Commit, by_kind
from penstock.streams.delivery.lease import Lease
from penstock.streams.failures.backoff import Backoff
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import cancellable, ended
from penstock.streams.sql_queue.claimed import ClaimTerms, Failure, Refused, Row, Settlement
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.store import MOST_REFUSED, DatabaseLost, Store

__all__ = ["Ledger", "text_of"]

# Seconds for which the last transactions are tried again when a run is closed, and that each may
# take.
_GRACE, _LAST = 5.0, 15.0
# Least seconds between two searches for cancelled rows, and between them as a multiple of what the
# last one took.
_LOOKED_EVERY, _REST = 1.0, 20.0
# Rows per transaction. Chosen: larger transactions are no faster, and hold their locks for longer.
_MOST = 2_000
# Characters of an error that are kept with its row.
_LONGEST_ERROR = 4_000


class Ledger:
    """Records the outcomes of rows in batches, and renews the leases of the others.

    One transaction at a time; rows that end meanwhile go with the next. A row whose error is one of
    `dead_on` is not tried again. `marked` is called with the outcomes that were recorded, `void`
    with each row that finished and could not be marked, `spoiled` with each that was to be tried
    again and cannot be, `cancels` when rows were found to be cancelled whose events have not ended,
    `cancelled` with each that had finished before that was found.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        terms: ClaimTerms,
        backoff: Backoff,
        insist: Reconnecting,
        marked: Callable[[Settlement], None],
        void: Callable[[Row, Exception, bool], None],
        spoiled: Callable[[Row, Exception], None],
        cancels: Callable[[], None],
        cancelled: Callable[[Row], None],
        dead_on: tuple[type[Exception], ...] = (),
    ) -> None:
        self.held: dict[Row, None] = {}
        # Rows that were cancelled, and whose events have not ended. While a call goes on, the key
        # of its row is kept, and no other reader begins a later row of it.
        self.cancelled: dict[Row, None] = {}
        # Those whose events have ended, with keys that may be free.
        self._over: list[Row] = []
        self.lost = self.reverted = self.dead = self.snoozed = self.cancellations = 0
        # With keys, claims and settlements exclude each other: a key is released with its last row,
        # and no row of it may be claimed meanwhile.
        self.one_at_a_time: Any = nullcontext() if terms.by is None else asyncio.Lock()
        # When rows that were reverted here are due again, in the loop's time.
        self.due: list[float] = []
        # When rows that were given back here were last in the table again.
        self.returned_at = -inf
        # Rows that are to be tried again, which is not recorded yet.
        self._failed: set[Row] = set()
        # Whether no row is held.
        self.idle = asyncio.Event()
        self.idle.set()
        self._run = run
        self._store = store
        self._terms = terms
        self._backoff = backoff
        self._rng = Random(backoff.seed)
        self._insist = insist
        self._marked = marked
        self._void = void
        self._spoiled = spoiled
        self._cancels = cancels
        self._cancelled = cancelled
        self._dead_on = dead_on
        # Rows whose outcome was refused since one was not.
        self._refusals = 0
        self._keys: Counter[str] = Counter()
        # The lease of the rows that were claimed last, and the one that was reported as over. It is
        # one for all, since the rows behind one that another reader may have must not overtake it.
        self._lease = self._reported = Lease(run.now)
        # When the first of the claims began that have ended since the last renewal began.
        self._claimed_at = inf
        self._pending = Settlement()
        self._commit = Commit(
            "settle rows",
            self._write_pending,
            partial(run.call_soon, run.attaching),
            run.failed,
        )

    def start(self) -> None:
        """Start renewing."""
        self._run.spawn(self._renew(), "renew leases")
        self._run.spawn(self._look_for_cancelled(), "look for cancelled rows")

    def take(self, rows: Iterable[Row], began: float) -> None:
        """Enter rows that were claimed by a call that began at `began`.

        While a row whose lease is over is still in the pipeline, or its return is not recorded yet,
        later rows of its key get that lease too, because they must not overtake it. Rows of a
        key that has been held back since the call began are given back at once: what holds the key
        back may turn out to be void, and then nothing else would return them.
        """
        now = self._run.now()
        until = began + self._terms.lease
        if not self.held or not self._lease.held:
            self._lease = Lease(self._run.now, until)
        # A renewal that began after the claim may have been quicker.
        self._lease.until = min(self._lease.until, until)
        self._claimed_at = min(self._claimed_at, began)
        returned, held_back = set(self._pending.returned), self._pending.held_back
        over: dict[str | None, Lease] = {
            row.key: row.lease
            for row in self.held
            if row.lease.until <= now and row.key is not None and (not row.ended or row in returned)
        }
        for row in rows:
            row.lease = over.get(row.key, self._lease)
            self.held[row] = None
            self.idle.clear()
            if row.key is not None:
                self._keys[row.key] += 1
            if row.key in held_back:
                self.give_back(row)

    def holds(self, row: Row) -> bool:
        """Whether it is certain that no other reader processes the row."""
        lease = row.lease
        if lease.held:
            return row in self.held
        if lease is not self._reported:
            self._reported = lease
            self._run.errors.warn(
                f"{redacted(self._store.url)}: the lease of {self._terms.lease:g} s ran out "
                "before it was renewed, so rows that had not begun by then are returned. Give a "
                "longer lease=, or keep the event loop free."
            )
        return False

    def row(self, id: Any) -> Row | None:
        """The row with this id that is held. Time: O(n)."""
        return next((row for row in self.held if row.id == id), None)

    @property
    def is_writing(self) -> bool:
        """Whether outcomes are still to be recorded, after which rows may be due again."""
        return self._commit.is_busy

    # Outcomes of rows.

    def finish(self, rows: list[Row]) -> None:
        self._pending.finished += self._processed(rows, told=True)

    def drop(self, rows: list[Row]) -> None:
        """The rows were dropped on purpose, which makes them processed."""
        self._pending.dropped += self._processed(rows, told=False)

    def _processed(self, rows: list[Row], *, told: bool) -> list[Row]:
        """The `rows` that are still held."""
        for row in rows:
            row.ended = True
        held = [row for row in rows if row in self.held]
        if len(held) < len(rows):
            self._lose([row for row in rows if row not in self.held], told=told)
        self._commit.due()
        return held

    def lose(self, row: Row) -> None:
        """The row is not this reader's any more, and what becomes of it here does not count."""
        row.ended = True
        self._lose([row])

    # Rows that are cancelled in the table.

    async def _look_for_cancelled(self) -> None:
        while True:
            began = self._run.now()
            if rows := [row for row in self.held if not row.ended]:
                with suppress(DatabaseLost):
                    await cancellable(self._find_cancelled(rows))
            took = self._run.now() - began
            await asyncio.sleep(max(_LOOKED_EVERY, _REST * took))

    async def _find_cancelled(self, rows: Iterable[Row]) -> set[Row]:
        """Those of the rows that are cancelled; the calls of their events are cancelled."""
        asked = list(rows)
        ids = await self._store.cancelled([row.id for row in asked])
        found = {row for row in asked if row.id in ids and row in self.held}
        for row in found:
            del self.held[row]
            self._failed.discard(row)
            self.cancelled[row] = None
        if found:
            self.cancellations += len(found)
            if not self.held:
                self.idle.set()
            self._cancels()
        return found

    def end_cancelled(self, row: Row) -> None:
        """The event of a cancelled row has ended, and so has its call."""
        row.ended = True
        del self.cancelled[row]
        for part in row.parts or ():
            part.settle(is_void=True)
        if row.key is not None:
            self._over.append(row)
            self._commit.due()

    async def _release_over(self) -> None:
        """Leave the keys to others that only cancelled rows have kept."""
        over, self._over = self._over, []
        for row in over:
            self._uncount(row)
        idle = [
            (row.key, row.epoch) for row in over if row.key is not None and not self._keys[row.key]
        ]
        if idle:
            await self._insist(partial(self._store.release, idle))

    # Outcomes that the transactions of a store record.

    def recorded(self, row: Row) -> None:
        """The outcome of a row is recorded."""
        row.ended = True
        self._forget(row)

    def lost_to_another(self, row: Row) -> None:
        """A row that was done here belongs to another reader by now."""
        row.ended = True
        self._lose([row], told=True)

    def refuses(self, row: Row, error: Exception) -> None:
        """The database refuses the outcome of a row, which has failed for good with this error."""
        self._void(row, error, True)
        self.bury(row, text_of(error))

    def count_dead(self, row: Row) -> None:
        """The row has failed for good, which counts once."""
        self.dead += not row.dead
        row.dead = True

    def bury(self, row: Row, error: str) -> None:
        """The row has failed for good."""
        row.ended = True
        self.count_dead(row)
        self._pending.failed.append(Failure(row, error))
        self._commit.due()

    def fail(self, row: Row, error: BaseException, *, final: bool) -> bool:
        """The row failed: for good, or to be tried again later if it has attempts left.

        Returns whether it was for good.
        """
        row.ended = True
        if row not in self.held:
            self._lose([row])
            return final
        failure = self._failure(row, error, final=final)
        self._pending.failed.append(failure)
        self._commit.due()
        if failure.delay is not None:
            self._hold_back_later(row)
        return failure.delay is None

    def to_be_tried(self, claimed: float) -> int:
        """How many rows have failed, and were not due again when a claim began at that time."""
        return len(self._failed) + sum(due > claimed for due in self.due)

    def _hold_back_later(self, row: Row) -> None:
        """Its key is held back with it: the outcomes of its later rows do not count."""
        if row.key is not None:
            for later in [one for one in self.held if one.key == row.key and not one.ended]:
                self._forget(later)

    def give_back(self, row: Row) -> None:
        """The row was not processed to its end.

        That does not count as an attempt, unless its lease ran out meanwhile: the row may be the
        cause, and if another reader had taken it by now it would count too. Nothing is done for a
        row that has ended already.
        """
        if row.ended:
            return
        if row in self.cancelled:
            self.end_cancelled(row)
            return
        row.ended = True
        if row not in self.held:
            self._lose([row])
            return
        if row.begun and not self.holds(row):
            self._pending.abandoned.append(row)
            self._hold_back_later(row)
        else:
            self._pending.returned.append(row)
        self._commit.due()

    def _failure(self, row: Row, error: BaseException, *, final: bool) -> Failure:
        if isinstance(error, Snooze) and not final:
            self.snoozed += 1
            self._failed.add(row)
            return Failure(row, "", error.seconds, snoozed=True)
        if final or isinstance(error, self._dead_on) or row.attempts >= self._terms.attempts:
            self.count_dead(row)
            return Failure(row, text_of(error))
        self.reverted += 1
        self._failed.add(row)
        return Failure(row, text_of(error), self._backoff.delay(row.attempts, self._rng))

    async def _write_pending(self) -> None:
        async with self.one_at_a_time:
            batch, self._pending = self._pending, Settlement()
            if len(batch.finished) > _MOST:
                self._pending = batch.cut(_MOST)
                self._commit.due()
            await self._write(batch)
            if self._over:
                await self._release_over()

    async def _write(self, batch: Settlement) -> None:
        """Record the whole batch, without the rows that have been lost."""
        while batch:
            batch.parts = by_kind(part for row in batch.finished for part in row.parts or ())
            batch.idle_keys = self.idle_keys(batch)
            try:
                lost = await self._insist(partial(self._store.settle, batch, self._terms))
            except (DatabaseUnavailable, RightsMissing):
                raise
            except Exception as error:
                if not (batch.parts or isinstance(error, Refused)):
                    raise
                if len(batch) > 1:
                    for half in batch.halves():
                        await self._write(half)
                    return
                batch = self._refused(batch, error)
                continue
            if not lost:
                self._settled(batch)
                return
            cancelled = await self._insist(partial(self._find_cancelled, lost))
            batch = self._without(batch, set(lost), cancelled)

    def idle_keys(self, batch: Settlement) -> list[tuple[str, int | None]]:
        if not self._keys:
            return []
        rows = batch.rows()
        ending = Counter(row.key for row in rows)
        epochs = {row.key: row.epoch for row in rows}
        return [
            (key, epochs[key])
            for key, count in ending.items()
            if key is not None and self._keys[key] <= count
        ]

    def _settled(self, batch: Settlement) -> None:
        if batch.finished or batch.returned:
            self._refusals = 0
        for row in batch.rows():
            self._forget(row)
            for part in row.parts or ():
                part.settle()
        now = self._run.now()
        if batch.returned:
            self.returned_at = now
        self.due += [now + failure.delay for failure in batch.failed if failure.delay is not None]
        self.lost += len(batch.abandoned)
        self._marked(batch)

    def _forget(self, row: Row) -> None:
        if row in self.held:
            del self.held[row]
            self._failed.discard(row)
            if not self.held:
                self.idle.set()
            self._uncount(row)

    def _uncount(self, row: Row) -> None:
        if row.key is not None:
            self._keys[row.key] -= 1
            if not self._keys[row.key]:
                del self._keys[row.key]

    # Failures.

    def _without(self, batch: Settlement, lost: set[Row], cancelled: set[Row]) -> Settlement:
        """`batch` without the lost rows, some of them cancelled, and their results.

        Rows that share a result with a lost row are returned, because the result cannot be written.
        """
        shared = {
            other
            for row in lost
            for part in row.parts or ()
            if not part.settled
            for other in part.roots
            if other not in lost
        }
        finished = {row for row in batch.finished if row in lost}
        for row in cancelled:
            self.end_cancelled(row)
            if row in finished:
                self._cancelled(row)
        self._lose(finished - cancelled, told=True)
        self._lose([row for row in batch.rows() if row in lost - cancelled - finished])
        rest = batch.without(lost)
        for row in [row for row in rest.finished if row in shared]:
            rest.finished.remove(row)
            rest.returned.append(row)
            lost_too = LeaseLost(
                f"{row} is returned: another row that its result depends on is lost"
            )
            self._void(row, lost_too, True)
        return rest

    def _lose(self, rows: Iterable[Row], *, told: bool = False) -> None:
        """Rows belong to another reader by now; `told`: their events had finished."""
        for row in rows:
            self.lost += 1
            self._forget(row)
            for part in row.parts or ():
                part.settle(is_void=True)
            if told:
                self._void(row, self._lease_lost(row), True)

    def _lease_lost(self, row: Row) -> LeaseLost:
        return LeaseLost(
            f"{row} was given to another reader before it was done here, so its outcome is void: "
            f"its lease of {self._terms.lease:g} s had run out, or its key was held back. Give a "
            "longer lease=, or keep the event loop free."
        )

    def _refused(self, batch: Settlement, error: Exception) -> Settlement:
        """The database refused the only outcome of `batch`, or a result: what to write instead."""
        (row,) = batch.rows()
        if not isinstance(error, Refused):
            fates = [part.settle(error) for part in row.parts or ()]
            failure = self._failure(row, error, final=any(fates))
            self._void(row, error, failure.delay is None)
            return Settlement(failed=[failure])
        before = batch.failed[0] if batch.failed else None
        if before is not None and before.held_back:
            # Perhaps the later rows of its key: those are claimed again when their lease is over.
            return Settlement(failed=[Failure(row, before.error)])
        if before is not None and before.delay is None:
            # Not even that it has failed.
            self._run.errors.warn(
                f"{redacted(self._store.url)}: {row} has failed for good, which the database "
                f"refuses to record: {error}"
            )
            self._lose([row])
            return Settlement()
        self._refusals += 1
        if self._refusals >= MOST_REFUSED:
            raise error.error
        self.count_dead(row)
        self._failed.discard(row)
        text = text_of(error.error)
        add_note(error.error, f"{row} could not be marked otherwise, and has failed for good")
        if before is not None:
            self.reverted -= 1
            text = f"{before.error[: _LONGEST_ERROR - len(text) - 1]}\n{text}"
            self._spoiled(row, error.error)
        elif batch.finished:
            self._void(row, error.error, True)
        else:
            self._run.errors.count(error.error)
        return Settlement(failed=[Failure(row, text, held_back=before is not None)])

    # Leases.

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._terms.lease / 3)
            await self._insist(self._renew_all)

    async def _renew_all(self) -> None:
        rows = [*self.held, *self.cancelled]
        if not rows:
            return
        lease, began = self._lease, self._run.now()
        self._claimed_at = inf
        try:
            lost = await self._store.renew(rows, self._terms)
        except Refused:
            lost = await self._renew_apart(rows)
        lease.renew(min(began, self._claimed_at) + self._terms.lease)
        held = [row for row in lost if row in self.held]
        cancelled: set[Row] = set()
        if held:
            cancelled = await self._find_cancelled(held)
        # They are reported when their events end, if they have begun.
        for row in held:
            if row not in cancelled:
                self._forget(row)

    async def _renew_apart(self, rows: list[Row]) -> list[Row]:
        """Renew in parts; a row whose lease the database does not let grow is lost."""
        try:
            return await self._store.renew(rows, self._terms)
        except Refused:
            if len(rows) == 1:
                return rows
        middle = len(rows) // 2
        return [
            row for half in (rows[:middle], rows[middle:]) for row in await self._renew_apart(half)
        ]

    # The end.

    async def close(self) -> None:
        """Record everything that is left. Raises DatabaseUnavailable after a few seconds."""
        self._insist.patience = min(self._insist.patience, _GRACE)
        await self._commit.flush(self._written)

    async def _written(self, writing: asyncio.Task[None]) -> None:
        # A server that is frozen, or behind a network that is cut, neither answers nor refuses.
        if not await ended(writing, _LAST):
            raise DatabaseUnavailable(
                f"{redacted(self._store.url)} has not answered for {_LAST:g} s. Rows whose "
                "outcomes could not be recorded are processed again when their leases have run out."
            )
        await writing


def text_of(error: BaseException) -> str:
    """The text of an error, limited to what a database can store."""
    notes = notes_of(error)
    text = "\n".join([f"{type(error).__name__}: {error}", *notes]).replace("\0", "\\0")
    return text.encode("utf-8", "backslashreplace").decode()[:_LONGEST_ERROR]
