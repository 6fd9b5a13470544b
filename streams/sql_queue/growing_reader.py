"""The source stage that reads the rows of an ordinary table as they come, by a growing id."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.streams.base.errors import CannotOpen, ColumnMissing
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.commit import Commit
from penstock.streams.io.file_lock import locked
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.sql_queue.growing_position import Place, read_place, text_of_place
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.schema import quoted
from penstock.streams.sql_queue.store import Store
from penstock.streams.sql_queue.url import place_of
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["GrowingOptions", "GrowingReader"]

# The most gaps that one statement looks at, and of so many the oldest get no extra time.
_AT_ONCE, _MOST = 100, 1_000

_SNAPSHOT = """SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
FROM pg_current_snapshot() AS s"""

_Row = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class GrowingOptions:
    """The options of a reader; `read_table` documents each."""

    column: str
    position: str | None
    batch: int
    follow: bool
    poll: float
    patience: float


class GrowingReader(BaseSourceStage):
    """One run of `penstock.read_table(from_id=)`: the tokens of its events are ids.

    Memory: the rows of one read, at most `batch`, some numbers for each gap, and with a position
    the id of each row that is not finished.
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
        self._name = place_of(store.url, store.layout.table)
        self._place = Place(has_gaps=not store.commits_in_order)
        self._columns: Sequence[str] = ()
        self._arrived: deque[_Row] = deque()
        self._unfinished: dict[int, None] = {}
        self._look_at = 0.0
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
            self.send_all([Event(value, now, self, id) for id, value in rows])
        if self.demand and not self._arrived:
            self._wanted.set()

    def identity(self, token: int, /) -> Identity:
        return Identity(self._name, "", token)

    # Rows in.

    async def _poll(self) -> None:
        try:
            column = self._options.column
            await self._insist(partial(self._store.open, [], there=True))
            self._columns = self._store.columns
            if column not in self._columns:
                raise ColumnMissing(
                    f"{self.info}: the table lacks {column!r}; it has: "
                    f"{', '.join(map(repr, self._columns))}"
                )
            self._begin()
            while not self.state:
                await self._wanted.wait()
                self._wanted.clear()
                if not self.demand or self._arrived:
                    continue
                rows = await self._rows(min(self._options.batch, self.demand))
                if rows:
                    if self.ack is not None:
                        self._unfinished.update(dict.fromkeys(id for id, _ in rows))
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

    async def _rows(self, count: int) -> list[_Row]:
        """Some rows that have come: those in gaps, now and then, or the next behind the front."""
        place = self._place
        if place.gaps and self.run.now() >= self._look_at:
            if rows := await self._in_gaps(count):
                return rows
            self._look_at = self.run.now() + self._options.poll
        condition = "TRUE" if place.front is None else "t.{column} > :front"
        found = await self._read(condition, count, front=place.front)
        place.read([id for id, _ in found], self.run.now())
        if len(place.gaps) > _MOST:
            self._look_at = 0.0
        if not found and place.gaps and not self._options.follow:
            return await self._in_gaps(count)
        return found

    async def _in_gaps(self, count: int) -> list[_Row]:
        """The first rows that have come in gaps; if there are none, some gaps may be settled."""
        place, now = self._place, self.run.now()
        snapshot: list[tuple[int, int]] = []
        if not self._store.commits_in_order:
            snapshot = await self._insist(partial(self._store.read, _SNAPSHOT))
        looked = list(place.gaps)
        for some in (looked[n : n + _AT_ONCE] for n in range(0, len(looked), _AT_ONCE)):
            ranges = (f"t.{{column}} > {gap.after} AND t.{{column}} < {gap.before}" for gap in some)
            if found := await self._read(" OR ".join(ranges), count):
                place.found(id for id, _ in found)
                return found
        before = now if len(looked) > _MOST else now - self._options.poll
        for oldest, next_one in snapshot:
            place.settle(oldest, next_one, before, looked)
        if not snapshot:
            place.forget(looked)
        self._commit_soon()
        return []

    async def _read(self, condition: str, count: int, **values: Any) -> list[_Row]:
        column = quoted(self._options.column).replace("{", "{{").replace("}", "}}")
        names = ", ".join(f"t.{quoted(name)}" for name in self._columns)
        names = names.replace("{", "{{").replace("}", "}}")
        text = (
            f"SELECT {names} FROM {{table}} AS t WHERE {condition.replace('{column}', column)} "
            f"ORDER BY t.{column} LIMIT :count"
        )
        read = partial(self._store.read, text, count=count, **values)
        at = self._columns.index(self._options.column)
        rows = [
            (row[at], dict(zip(self._columns, row, strict=True)))
            for row in await self._insist(read)
        ]
        for id, _ in rows:
            if type(id) is not int:
                raise CannotOpen(
                    f"{self.info}: column {self._options.column!r} has {id!r}, and whole numbers "
                    "that grow are needed there"
                )
        return rows

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
        front, ranges = read_place(text, self._name, path)
        self._place.begin(front, ranges, self.run.now())

    def _finished_all(self, events: list[Event[Any]]) -> None:
        for event in events:
            self._unfinished.pop(event.token, None)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if self._options.position is not None:
            self._commit.due()

    def _write(self) -> None:
        path, front = self._options.position, self._place.front
        if path is None or front is None:
            return
        text = text_of_place(self._name, front, self._place.ranges(self._unfinished))
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

        `front`, the last id that was read; `gaps`, the ranges before it in which rows may still
        come; rows `read_ahead` (not requested yet); `reconnects`, how often the database was
        unavailable, and `waited`, the seconds in which the table did not answer.
        """
        return {
            **super().statistics(),
            "front": self._place.front,
            "gaps": len(self._place.gaps),
            "read_ahead": len(self._arrived),
            "reconnects": self._insist.lost,
            "waited": self._insist.waited,
        }
