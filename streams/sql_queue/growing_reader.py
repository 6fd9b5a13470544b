"""The source stage that reads the rows of an ordinary table as they come."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from functools import partial
from typing import Any

from orjson import dumps

from penstock.streams.base.errors import CannotOpen
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.commit import Commit
from penstock.streams.delivery.text import text_of
from penstock.streams.io.file_lock import locked
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.growing_ids import RowsById
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
        self._lock: int | None = None
        self._commit = Commit(
            "position", self._write, partial(run.call_soon, run.attaching), run.failed
        )
        if options.position is not None:
            self.ack = self._finished_all

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
            self._begin()
            while not self.state:
                await self._wanted.wait()
                self._wanted.clear()
                if not self.demand or self._arrived:
                    continue
                rows = await self._rows.next_rows(min(self._options.batch, self.demand))
                if self._rows.has_settled:
                    self._rows.has_settled = False
                    self._commit_soon()
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

    def _begin(self) -> None:
        path = self._options.position
        if path is None:
            return
        why = "another run keeps its position there. Wait until it has ended, or give another one."
        self._lock = locked(f"{path}.lock", why)
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise CannotOpen(f"Cannot read {path}: {error.strerror}.") from error
        self._rows.go_on_from(text, path)

    def _finished_all(self, events: list[Event[Any]]) -> None:
        for event in events:
            self._unfinished.pop(event.token, None)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._options.position is not None:
            self._commit.due()

    def _write(self) -> None:
        path, rows = self._options.position, self._rows
        if path is None or rows.front is None:
            return
        body = dumps({"table": rows.name, **rows.state(self._unfinished)}).decode()
        text = text_of((rows.about,), body)
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text + "\n")
        os.replace(f"{path}.new", path)

    # The end.

    def release(self) -> None:
        super().release()
        if self._polling is not None and self._polling is not asyncio.current_task():
            self.run.tasks.cancel(self._polling)

    async def _disconnect(self) -> None:
        try:
            await self._commit.flush()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
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
