"""Reads rows in the order of a growing id: those behind the last one, and those in gaps."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue.growing_position import Place
from penstock.streams.sql_queue.growing_rows import Found, GrowingRows

__all__ = ["RowsById"]

# The most gaps that one statement looks at, and of so many the oldest get no extra time.
_AT_ONCE, _MOST = 100, 1_000

_SNAPSHOT = """SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
FROM pg_current_snapshot() AS s"""


class RowsById(GrowingRows):
    """Tokens are ids. Memory: some numbers for each gap."""

    about = "growing table"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._place = Place(has_gaps=not self._store.commits_in_order)

    @property
    def front(self) -> int | None:
        return self._place.front

    async def next_rows(self, count: int) -> list[Found]:
        """Those in gaps, now and then, or the next behind the front."""
        place, now = self._place, self._run.now
        if place.gaps and now() >= self._look_at:
            if rows := await self._in_gaps(count):
                return rows
            self._look_at = now() + self._options.poll
        (by,) = self._by
        condition = "TRUE" if place.front is None else f"{by} > :front"
        found = self._first(await self._rows(condition, count + 1, front=place.front), count)
        place.read([id for id, _ in found], now())
        if len(place.gaps) > _MOST:
            self._look_at = 0.0
        if not found and place.gaps and not self._options.follow:
            return await self._in_gaps(count)
        return found

    async def _in_gaps(self, count: int) -> list[Found]:
        """The first rows that have come in gaps; if there are none, some gaps may be settled."""
        place, now = self._place, self._run.now()
        snapshot: list[tuple[int, int]] = []
        if not self._store.commits_in_order:
            snapshot = await self._insist(partial(self._store.read, _SNAPSHOT))
        looked = list(place.gaps)
        (by,) = self._by
        for some in (looked[n : n + _AT_ONCE] for n in range(0, len(looked), _AT_ONCE)):
            ranges = (f"{by} > {gap.after} AND {by} < {gap.before}" for gap in some)
            if found := await self._rows(" OR ".join(ranges), count):
                place.found(id for id, _ in found)
                return found
        before = now if len(looked) > _MOST else now - self._options.poll
        for oldest, next_one in snapshot:
            place.settle(oldest, next_one, before, looked)
        if not snapshot:
            place.forget(looked)
        self.has_settled = True
        return []

    async def _rows(self, condition: str, count: int, **values: Any) -> list[Found]:
        (by,) = self._by
        found = await self._select(f"{by}, {self._columns}", condition, count, **values)
        for id, *_ in found:
            if type(id) is not int:
                raise CannotOpen(
                    f"{self._info}: column {self._options.columns[0]!r} has {id!r}, and whole "
                    "numbers that grow are needed there; from_id=(time, id) takes a column of times"
                )
        return [(id, self._row(row)) for id, *row in found]

    def state(self, unfinished: Iterable[int]) -> dict[str, Any]:
        return {"front": self.front, "ranges": self._place.ranges(unfinished)}

    def go_on(self, state: Any) -> None:
        ranges = [(int(after), int(before)) for after, before in state["ranges"]]
        self._place.begin(int(state["front"]), ranges, self._run.now())

    def statistics(self) -> dict[str, Any]:
        return {"front": self.front, "gaps": len(self._place.gaps), "remembered": 0}
