"""The sink stage that writes a table, in its own transactions, the source's or a store's."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from orjson import loads

from penstock.streams.base.errors import DatabaseUnavailable
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.commit import Part
from penstock.streams.delivery.marks import MarksOfRun
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import DeadLetter, OnError
from penstock.streams.io.letter_line import letter_line
from penstock.streams.protocol.acknowledgement import AckHook, Again, Hooks, hooks, revise, roots
from penstock.streams.protocol.event import (
    FORGIVEN,
    RETURNED,
    Event,
    Origin,
    finish_all,
    give_back_all,
)
from penstock.streams.protocol.stage import CLOSED, Subscription, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.absent import AbsentFields
from penstock.streams.sql_queue.claimed import Row
from penstock.streams.sql_queue.reader import TableReader
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.scheduling import Scheduling
from penstock.streams.sql_queue.schema import Required, Upsert
from penstock.streams.sql_queue.store import Enqueued, Insertion, Store, columns_of
from penstock.streams.sql_queue.url import database_of
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed

__all__ = ["WINDOW", "TableWriter"]

WINDOW = 1024

_AGAIN = Again()

# The character 0 in JSON, where the backslash in front is not itself an escaped one.
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class TableWriter(BaseSinkStage):
    """`_shared` counts the results that transactions of the source, or of a store, are to write.

    A store in the same database writes all of them, each with the end of its event.
    """

    def __init__(
        self,
        run: Run,
        closed: Closed,
        store: Store,
        fields: Mapping[str, str] | None,
        upsert: Upsert | None,
        on_error: OnError,
        patience: float,
        scheduling: Scheduling,
    ) -> None:
        super().__init__(closed)
        self._run = run
        self._store = store
        self._fields = fields
        self._fields_seen = AbsentFields(fields or {}, run.errors.warn)
        self._into = Insertion(store, fields, upsert)
        self._scheduling = scheduling
        # The fields of the columns of a key.
        self._key: dict[str, str] | None = None
        if fields and upsert:
            self._key = {column: fields[column] for column in upsert.key}
        self._room = partial(self._ask, 1)
        self._database = database_of(store.url)
        self._faults = ErrorPolicy(on_error, run, self)
        self._insist = Reconnecting(run, store, patience)
        self._letter_line = letter_line(run.now)
        self._waiting: deque[tuple[Event[Any], Any]] = deque()
        self._writing: list[Event[Any]] = []
        self._shared = self._owed = 0
        # Of the last event.
        self._origin: Origin | None = None
        self._hooks: Hooks = []
        # All that keeps states or marks in this run, and the one of these that is in this database.
        self._stores: list[MarksOfRun] = run.root.stores
        self._within: MarksOfRun | None = None
        self._wanted = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        # Until it has nothing to do, and no more can come.
        self._works = False

    # The start.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self._run.on_close(self._store.close)
            self._works = True
            self._worker = self._run.spawn(self._work(), "write_table", stage=self)

    async def _work(self) -> None:
        try:
            fields = None if self._fields is None else list(self._fields)
            required = Required(fields, self._into.upsert, ranked=self._scheduling.ranks)
            await self._insist(partial(self._store.open, required))
        except Exception as error:
            self.break_off(error)
            return
        self._within = next(
            (store for store in self._stores if store.database == self._database), None
        )
        if not self.state:
            self.upstream.request(WINDOW)
        while not self.state or self._waiting:
            while self._waiting:
                await self._write_waiting()
                if self.state >= CLOSED:
                    return
            if not self.state:
                self._wanted.clear()
                await self._wanted.wait()
        self._works = False
        self.end_if_idle()

    # Events.

    def prepare(self, events: list[Event[Any]], /) -> None:
        if self._within is not None:
            self._within.hold([event for event in events if event.pending > 0])

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._current.call(self, self._accept_all, events)

    def _accept_all(self, events: list[Event[Any]]) -> None:
        done = 0
        for place, event in enumerate(events):
            if self.state >= CLOSED:
                give_back_all(events[place:])
                break
            given = event.value
            if type(given) is DeadLetter:
                given = loads(self._letter_line(given))
            try:
                if self._key is not None:
                    _check_key(given, self._key)
                value = self._store.encoded(self._fields, given)
                if self._fields is None:
                    value = self._scheduling.enqueued(value, given)
            except TypeError as error:
                done += self._survives(event, error)
                continue
            if self._fields_seen.absent:
                self._fields_seen.look(given)
            if self._within is not None:
                self._put_within(self._within, event, given, value)
                continue
            rows = self._rows_of(event)
            if rows is None:
                self._waiting.append((event, value))
            else:
                self._shared += 1
                settled = partial(self._settled, event, self._hooks_of(event))
                result = Part(self._into, value, rows, settled, self._room)
                for row in rows:
                    row.add(result)
                event.finish()
                # A row waits for the rest of its results, which must not wait for room here.
                if not all(row.ended for row in rows):
                    result.release()
        if self._waiting:
            self._wanted.set()
        self._ask(done)

    def _put_within(self, store: MarksOfRun, event: Event[Any], given: Any, value: Any) -> None:
        """Have the store write a result."""
        key: Any = None
        if self._key is not None:
            # One that cannot be hashed is put in order by its text.
            found = columns_of(given, self._key)
            key = self._store.layout.table, *map(_hashable, found)
        self._shared += 1
        settled = partial(self._settled_within, store, event, self._hooks_of(event))
        store.accept(event, Part(self._into, value, [], settled, self._room), key)

    def _hooks_of(self, event: Event[Any]) -> Hooks:
        """The hooks to notify if a result is not written; children of one event share them."""
        origin = event.origin
        if isinstance(origin, AckHook):
            return hooks(event)
        if origin is not self._origin:
            self._origin, self._hooks = origin, hooks(event)
        return self._hooks

    def _settled_within(
        self,
        store: MarksOfRun,
        event: Event[Any],
        told: Hooks,
        part: Part[Any],
        error: Exception | None,
    ) -> bool:
        """A result was written by the store, is void, or was refused."""
        self._shared -= 1
        if error is not None:
            again = _AGAIN.put(store.again(event), told)
            plain = _without_nul(part.value) if type(event.value) is DeadLetter else part.value
            if self.state >= CLOSED:
                again.give_back()
            elif plain == part.value:
                self._survives(again, error)
            else:
                self._shared += 1
                settled = partial(self._settled_within, store, event, hooks(again))
                store.accept(again, Part(self._into, plain, [], settled))
        elif part.is_void:
            revise(told, RETURNED)
        self.end_if_idle()
        return False

    def _rows_of(self, event: Event[Any]) -> list[Row] | None:
        """The rows that the event derives from, if they all belong to one reader of this
        database."""
        origin = event.origin
        if type(origin) is TableReader:
            return [event.token] if origin.database == self._database else None
        found = list(roots(event))
        if any(store.holds(event) for store in self._stores):
            # What is done in the store would be done without its results.
            return None
        readers = {id(reader) for reader, _ in found}
        reader: object = found[0][0] if found else None
        if len(readers) != 1 or not isinstance(reader, TableReader):
            return None
        if reader.database != self._database:
            return None
        return list(dict.fromkeys(cast(Row, row) for _, row in found))

    def _settled(
        self, event: Event[Any], told: Hooks, part: Part[Row], error: Exception | None
    ) -> bool:
        """A result was written, is void, or was refused; returns whether its rows have failed for
        good."""
        self._shared -= 1
        final = False
        if error is not None and self.state < CLOSED:
            # Its event has ended already; only the error policy remains to be applied.
            final = self._survives(event, error) and self._faults.gives_up
        if error is not None or part.is_void:
            revise(told, FORGIVEN if final else RETURNED)
        self.end_if_idle()
        return final

    def _ask(self, done: int) -> None:
        # Coalesced: rows are settled one by one within one loop iteration.
        if not done or self.state:
            return
        if not self._owed:
            self._run.call_soon(self.info, self._request)
        self._owed += done

    def _request(self) -> None:
        owed, self._owed = self._owed, 0
        if self._within is not None:
            self._store.announce()
        if not self.state:
            self.upstream.request(owed)

    def _survives(self, event: Event[Any], error: Exception) -> bool:
        if self._faults.survives(event, error):
            return True
        self.break_off(error)
        return False

    # Own transactions.

    async def _write_waiting(self) -> None:
        batch = taken(self._waiting, WINDOW)
        self._writing = [event for event, _ in batch]
        try:
            await self._write(batch)
        finally:
            give_back_all(self._writing)
            self._writing = []

    async def _write(self, batch: list[tuple[Event[Any], Any]]) -> None:
        values = [value for _, value in batch]
        try:
            await self._insist(partial(self._store.write, {self._into: values}))
        except DatabaseUnavailable:
            raise
        except Exception as error:
            await self._refused(batch, error)
            return
        finish_all([event for event, _ in batch])
        self._ask(len(batch))

    async def _refused(self, batch: list[tuple[Event[Any], Any]], error: Exception) -> None:
        """Find out which value the database refuses, and write the others."""
        if len(batch) == 1:
            ((event, value),) = batch
            plain = _without_nul(value) if type(event.value) is DeadLetter else value
            if plain == value:
                self._ask(self._survives(event, error))
            else:
                await self._write([(event, plain)])
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            if self.state < CLOSED:
                await self._write(half)

    # The end.

    @property
    def is_idle(self) -> bool:
        return not (self._works or self._shared)

    def end(self, error: BaseException | None) -> None:
        super().end(error)
        self._fields_seen.report()
        self._wanted.set()

    def cancel(self) -> None:
        super().cancel()
        if self._worker is not None and self._worker is not asyncio.current_task():
            self._run.tasks.cancel(self._worker)

    def give_back(self) -> None:
        while self._waiting:
            give_back_all([event for event, _ in taken(self._waiting, WINDOW)])

    def statistics(self) -> dict[str, Any]:
        """Events `waiting` for their transaction, and `shared` with their source's; how often the
        database could not be reached, and the seconds `waited` for a table that did not answer.
        """
        return {
            "waiting": len(self._waiting) + len(self._writing),
            "in_flight": 0,
            "shared": self._shared,
            **self._faults.statistics(),
            "reconnects": self._insist.lost,
            "waited": self._insist.waited,
        }


def _check_key(value: Any, fields: Mapping[str, str]) -> None:
    """Raises TypeError for a value without a key: its row would not be known again."""
    for column, part in zip(fields, columns_of(value, fields), strict=True):
        if part is None:
            raise TypeError(
                f"column {column!r} of the key needs a value, and field {fields[column]!r} of this "
                "event is missing or null"
            )


def _hashable(part: Any) -> Any:
    try:
        hash(part)
    except TypeError:
        return repr(part)
    return part


def _without_nul(value: Any) -> Any:
    """JSON in which the character 0, which PostgreSQL cannot hold, is `\\0`; all else unchanged."""
    if isinstance(value, bytes):
        return _without_nul(value.decode()).encode()
    if isinstance(value, Enqueued):
        return value._replace(payload=_without_nul(value.payload))
    return _NUL.sub(r"\1\\\\0", value) if isinstance(value, str) else value
