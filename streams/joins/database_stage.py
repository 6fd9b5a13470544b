"""The stage that pairs events with rows of a database table, the last of which it keeps."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from cachetools import TLRUCache

from penstock.streams.base.errors import CALL_ERRORS, WrongType, describe, own_error
from penstock.streams.base.keys import By, key_function
from penstock.streams.base.take_front import taken
from penstock.streams.failures.policy import OnError
from penstock.streams.joins.database_table import DatabaseTable
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import (
    CLOSED,
    COMPLETING,
    Subscriber,
    Subscription,
    is_second,
    send_list,
)
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.stages.demand_stage import BaseDemandStage

__all__ = ["MOST_WAITING", "DatabaseStage", "LookupFailed"]

MOST_WAITING = 1_000
"""The most events that wait for their rows. Chosen: a query for as many keys takes some
milliseconds."""

_AFTER = "Start the pipeline again when it is back: what is not finished comes again."

# In place of a row that is to be read.
_UNREAD: Any = object()

# What a column of the database reads from a text.
_AS_TEXTS = (UUID, date, time, Decimal)


class LookupFailed(Exception):
    """A key for which there is no single row."""


class DatabaseStage(BaseDemandStage):
    """Sends each event with its row, in the order in which they came.

    There is one query at a time, for the keys of all events that wait and have no row in the cache.
    What comes meanwhile waits for the next one. An event is requested only when it is wanted, so
    that no row grows old behind a slow stage.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        by: By[Any],
        table: DatabaseTable,
        on_error: OnError,
    ) -> None:
        super().__init__(downstream, run, info)
        self._key_of = key_function(by)
        self._table = table
        self._rows = table.open()
        self._insist = Reconnecting(run, self._rows, table.patience, _AFTER)
        self._faults = KeyFaults(on_error, run, info, by)
        # The row of a key, and when the query for it began.
        self._cache: TLRUCache[Any, tuple[Any, float]] = TLRUCache(
            table.cache, lambda _, row, __: row[1] + table.ttl, run.now
        )
        self._waiting: deque[Event[Any]] = deque()
        # Before these, from the first that needs a query on: each with its key and its row.
        self._asking: list[tuple[Event[Any], Any, Any]] = []
        self._is_open = False
        self._task: asyncio.Task[None] | None = None
        self._found = self._missing = self._queries = self._read = 0

    # The database.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.run.on_close(self._rows.close)
            self._task = self.run.spawn(self._open(), self.info.name, stage=self)
            self.downstream.on_subscribe(self)

    async def _open(self) -> None:
        look = partial(self._rows.look, self._table.by, self._table.columns)
        try:
            await self._insist(look)
        except Exception as error:
            self._broken(error)
            return
        self._task, self._is_open = None, True
        self._drain()

    async def _ask(self, keys: dict[Any, Any]) -> None:
        began = self.run.now()
        try:
            found = await self._rows_of(list(keys.items()))
        except Exception as error:
            self._broken(error)
            return
        self._task = None
        self._read += len(keys)
        for key, row in found.items():
            if not isinstance(row, LookupFailed):
                self._cache[key] = row, began
        self.within(self._answer, found)

    async def _rows_of(self, keys: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """The row of each key, None where there is none, or an error. Keys are given twice, the
        second time as the database takes them."""
        self._queries += 1
        try:
            found = await self._insist(partial(self._rows.rows, [plain for _, plain in keys]))
        except Refused as refused:
            if len(keys) > 1:
                # The others have their rows.
                middle = len(keys) // 2
                first = await self._rows_of(keys[:middle])
                return {**first, **await self._rows_of(keys[middle:])}
            return {
                keys[0][0]: LookupFailed(f"{keys[0][0]!r} cannot be in {self._where}: {refused}")
            }
        rows: dict[Any, Any] = {}
        for (key, _), of_key in zip(keys, found, strict=True):
            rows[key] = of_key[0] if of_key else None
            if len(of_key) > 1:
                rows[key] = LookupFailed(
                    f"several rows have {key!r} in {self._where}: give a column that is unique, or "
                    "a view with one row for each key"
                )
        return rows

    @property
    def _where(self) -> str:
        return f"{self._table.by!r} of {self._table.name}"

    def _broken(self, error: Exception) -> None:
        """The database cannot be used."""
        self._task = None
        if self._asking:
            blame(error, self.info, self._asking[0][0])
        self.fail(error)

    # Events.

    def take(self, events: list[Event[Any]], /) -> None:
        self._waiting.extend(events)

    def _proceed(self) -> None:
        waiting = self._waiting
        while self._is_open and waiting and not self._asking and self.state < CLOSED:
            self._look_up(taken(waiting, len(waiting)))
        if self.state < COMPLETING:
            coming = self.asked + len(waiting) + len(self._asking)
            room = min(self.demand, MOST_WAITING) - coming
            if room > 0:
                self.ask(room)
        elif self.state < CLOSED and self._is_open and not (waiting or self._asking):
            self.complete()

    def _look_up(self, events: list[Event[Any]]) -> None:
        """Send the events whose rows are known, up to the first that needs a query."""
        cache, key_of = self._cache, self._key_of
        known: list[Event[Any]] = []
        keys: dict[Any, Any] = {}
        stopped: Exception | None = None
        rest = deque(events)
        while rest and stopped is None:
            event = rest.popleft()
            try:
                key = key_of(event.value)
                row = None if key is None else cache.get(key, _NOT_READ)[0]
                if row is _UNREAD:
                    keys[key] = _plain(key)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                if not self._faults.survives(event, error):
                    stopped = error
                continue
            if self._asking or row is _UNREAD:
                self._asking.append((event, key, row))
            else:
                known.append(self._paired(event, row))
        self._send(known, list(rest), stopped)
        if self.state >= CLOSED:
            # The function of the key may have cancelled the pipeline.
            self.release()
        elif keys:
            self._task = self.run.spawn(self._ask(keys), self.info.name, stage=self)

    def _answer(self, found: dict[Any, Any]) -> None:
        """Send the events that have waited for a query."""
        rest, self._asking = deque(self._asking), []
        known: list[Event[Any]] = []
        stopped: Exception | None = None
        while rest and stopped is None:
            event, key, row = rest.popleft()
            if row is _UNREAD:
                row = found[key]
            if isinstance(row, LookupFailed):
                # Every event has one, with notes of its own.
                error = LookupFailed(*row.args)
                if not self._faults.survives_call(event, error):
                    stopped = error
            else:
                known.append(self._paired(event, row))
        self._send(known, [event for event, _, _ in rest], stopped)

    def _paired(self, event: Event[Any], row: Any) -> Event[Any]:
        if row is None:
            self._missing += 1
        else:
            self._found += 1
        event.value = event.value, row
        return event

    def _send(
        self, known: list[Event[Any]], rest: list[Event[Any]], stopped: Exception | None
    ) -> None:
        """Send results; if an error has stopped the stage, return the rest behind them."""
        if self.state >= CLOSED:
            give_back_all(known)
        elif known:
            self.demand -= len(known)
            send_list(self.downstream, known)
        if stopped is not None:
            give_back_all(rest)
            self.fail(stopped)

    # The end.

    def release(self) -> None:
        asking, self._asking = self._asking, []
        give_back_all([event for event, _, _ in asking])
        give_back_all(taken(self._waiting, len(self._waiting)))
        if self._task is not None:
            self.run.tasks.cancel(self._task)

    def statistics(self) -> dict[str, Any]:
        """Events that were sent with a row, `found`, and without one, `missing`; those that are
        `waiting` for a query; how many `queries` there were, for how many keys in all, `read`; the
        keys whose rows are `cached`; and how often the database was `lost`."""
        return {
            "found": self._found,
            "missing": self._missing,
            "waiting": len(self._waiting) + len(self._asking),
            "queries": self._queries,
            "read": self._read,
            "cached": len(self._cache),
            "lost": self._insist.lost,
            **self._faults.statistics(),
        }


_NOT_READ = (_UNREAD, 0.0)


def _plain(key: Any) -> Any:
    """A key as a query takes it: a text or a number."""
    if isinstance(key, str | int | float):
        return key
    if isinstance(key, _AS_TEXTS):
        return str(key)
    raise WrongType(
        f"{describe(key, 80)} cannot be compared with a column: a text or a number is needed, or a "
        "UUID, a date or a Decimal, which by= may make of it"
    )
