"""The source stage that reads the rows of an ordinary table as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from orjson import dumps

from penstock.streams.base.take_front import taken
from penstock.streams.delivery.text import text_of
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.growing_ids import RowsById
from penstock.streams.sql_queue.growing_kept import InFile, InStore
from penstock.streams.sql_queue.growing_rows import Found, GrowingOptions, GrowingRows
from penstock.streams.sql_queue.growing_times import RowsByTime
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.store import Store
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["GrowingReader"]


class GrowingReader(BaseSourceStage):
    """One run of `penstock.read_table(from_id=)`: the tokens of its events are those of the rows.

    Memory: the rows of one read, at most `batch`, what `GrowingRows` remember, and with a position
    the token of each row that is not finished.
    """

    def __init__(
        self,
        downstream: Subscriber[dict[str, Any]],
        run: Run,
        info: StageInfo,
        store: Store,
        options: GrowingOptions,
    ) -> None:
        super().__init__(downstream, run, info)
        self._store = store
        self._options = options
        self._insist = Reconnecting(run, store, options.patience)
        kind = RowsById if len(options.columns) == 1 else RowsByTime
        self._rows: GrowingRows = kind(run, info, store, self._insist, options)
        self._arrived: deque[Found] = deque()
        self._unfinished: dict[Any, None] = {}
        self._wanted = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._kept: InFile | InStore | None = None
        position = options.position
        if position is not None:
            self.ack = self._finished_all
        if isinstance(position, str):
            self._kept = InFile(position, run, self._content)
        elif position is not None:
            self._kept = InStore(
                *(position, run, self, self._rows.name, self._content, self._finish)
            )

    # Events out.

    def produce(self) -> None:
        if self._polling is None:
            self.run.on_close(self._disconnect)
            self._polling = self.run.spawn(self._poll(), "read_table", stage=self)
        if self._arrived:
            now = self.run.now()
            rows = taken(self._arrived, self.demand)
            self.send_all([Event(value, now, self, token) for token, value in rows])
        if self.demand and not self._arrived:
            self._wanted.set()

    def identity(self, token: Any, /) -> Identity:
        return Identity(self._rows.name, "", token)

    # Rows in.

    async def _poll(self) -> None:
        try:
            await self._rows.open()
            await self._begin()
            while not self.state:
                await self._wanted.wait()
                self._wanted.clear()
                if not self.demand or self._arrived:
                    continue
                rows = await self._rows.next_rows(min(self._options.batch, self.demand))
                if self._rows.has_settled:
                    self._rows.has_settled = False
                    if self._kept is not None:
                        self._kept.changed()
                if rows:
                    if self.ack is not None:
                        self._unfinished.update(dict.fromkeys(token for token, _ in rows))
                    self._arrived.extend(rows)
                elif self._options.follow:
                    wait = self._options.poll
                    await self._insist(partial(self._store.changed, wait), idle=True)
                else:
                    self.complete()
                    return
                self.wake()
                self._wanted.set()
        except Exception as error:
            self._polling = None
            self.fail(error)

    # The position.

    async def _begin(self) -> None:
        kept = self._kept
        if kept is not None:
            text = await kept.load()
            if text is not None:
                self._rows.go_on_from(text, kept.name, kept.again)
            kept.begin()

    def _finished_all(self, events: list[Event[Any]]) -> None:
        before = len(self._unfinished)
        self._finish(events)
        # A store has noted before what it has written.
        if self._kept is not None and len(self._unfinished) < before:
            self._kept.changed()

    def _finish(self, events: Sequence[Event[Any]]) -> None:
        for event in events:
            self._unfinished.pop(event.token, None)

    def _content(self, done: Sequence[Event[Any]]) -> str | None:
        rows = self._rows
        if rows.front is None:
            return None
        over = {event.token for event in done}
        state = rows.state([token for token in self._unfinished if token not in over])
        return text_of((rows.about,), dumps({"table": rows.name, **state}).decode())

    # The end.

    def release(self) -> None:
        super().release()
        if self._polling is not None and self._polling is not asyncio.current_task():
            self.run.tasks.cancel(self._polling)

    async def _disconnect(self) -> None:
        try:
            if self._kept is not None:
                await self._kept.close()
        finally:
            await self._store.close()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and those of the table.

        `front`, the last id or time that was read; `gaps` in the ids, the ranges before it in which
        rows may still come, or the rows that are `remembered`, as others may come between them;
        rows `read_ahead` (not requested yet); `reconnects`, how often the database was unavailable,
        and `waited`, the seconds in which the table did not answer.
        """
        return {
            **super().statistics(),
            **self._rows.statistics(),
            "read_ahead": len(self._arrived),
            "reconnects": self._insist.lost,
            "waited": self._insist.waited,
        }
