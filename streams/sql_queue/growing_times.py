"""Reads rows in the order of a column of times, and of an id where times are equal.

    times     08:00  08:01  08:01  08:04  08:07
              |------ settled -----|      |
                                   since  front

Behind the `front`, the last row that was read, others may still come: a transaction takes its time
when it begins, and commits later; and of rows of one time the one with the lower id may be the
later one. So rows from the time `since` on are looked at again, and those that are remembered are
skipped.

`since` moves to the time of a row when no transaction can bring an earlier one: all that were open
when a look at the transactions was made, a while after the row was read, have ended, and the rows
were looked at after that. In PostgreSQL each open transaction of whatever user has a lock on its
virtual id, also before it writes (`pg_locks`), and one that is prepared holds `pg_snapshot_xmin`
back. In SQLite one transaction writes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from string import ascii_lowercase
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue.growing_rows import Found, GrowingRows

__all__ = ["RowsByTime"]

Key = tuple[Any, Any]
"""The time and the id of a row, in PostgreSQL as texts."""

# The most keys in one statement.
_AT_ONCE = 100
# The time between two looks behind the front, as a multiple of what one takes.
_REST = 20.0

_OPEN = """SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint, ARRAY(
    SELECT l.virtualxid FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'virtualxid' AND l.pid <> pg_backend_pid()
        AND a.datname = current_database() AND a.backend_type IS DISTINCT FROM 'autovacuum worker')
FROM pg_current_snapshot() AS s"""


@dataclass(slots=True)
class _Mark:
    """A time that `since` may move to, `read` at this time of the loop: when the transactions that
    are `open` have ended, and those before the number `until`. They are None until asked for."""

    time: Any
    read: float
    open: frozenset[str] | None = None
    until: int = 0


class RowsByTime(GrowingRows):
    """Tokens are times and ids. Memory: the time and id of each row since the longest open
    transaction began, and since the last look before that."""

    about = "table by time"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.front: Key | None = None
        # None until something is settled.
        self._since: Any = None
        # Rows from `since` on that were read.
        self._known: dict[Key, None] = {}
        # Those that an earlier run has not finished.
        self._again: list[Key] = []
        # Where `since` may move to: first what is waited for.
        self._marks: list[_Mark] = []

    async def next_rows(self, count: int) -> list[Found]:
        now = self._run.now
        if self._again:
            some, rest = self._again[:_AT_ONCE], self._again[_AT_ONCE:]
            found = await self._rows_of(some)
            self._again = rest
            return found or await self.next_rows(count)
        if self.front is not None and now() >= self._look_at:
            began = now()
            if late := await self._behind(count):
                return late
            self._look_at = now() + max(self._options.poll, _REST * (now() - began))
        found = await self._ahead(count)
        if not found and self.front is not None and not self._options.follow:
            return await self._behind(count)
        return found

    async def _ahead(self, count: int) -> list[Found]:
        time, id = self._by
        if self.front is None:
            # Rows without a time are never read.
            condition, values = f"{time} IS NOT NULL", {}
        else:
            condition = f"({time}, {id}) > (:front, :front_id)"
            values = {"front": self.front[0], "front_id": self.front[1]}
        found = self._first(await self._rows(condition, count + 1, **values), count)
        if found:
            self.front = front = found[-1][0]
            self._known.update(dict.fromkeys(key for key, _ in found))
            new = _Mark(front[0], self._run.now())
            # The first is waited for; those behind it give way to the last.
            self._marks[1:] = [new]
        return found

    async def _behind(self, count: int) -> list[Found]:
        """The first rows that have come behind the front; if there are none, some may be settled
        from now on."""
        assert self.front is not None
        settled = await self._settled()
        time, id = self._by
        bound = "" if self._since is None else f"{time} >= :since AND "
        keys = await self._select(
            self._keys,
            f"{bound}({time}, {id}) <= (:front, :front_id)",
            since=self._since,
            front=self.front[0],
            front_id=self.front[1],
        )
        found: dict[Key, None] = dict.fromkeys((row[0], row[1]) for row in keys)
        late = [key for key in found if key not in self._known]
        if late:
            rows = await self._rows_of(late[: min(count, _AT_ONCE)])
            self._known.update(dict.fromkeys(key for key, _ in rows))
            if rows:
                return rows
        if settled is not None:
            del self._marks[: self._marks.index(settled) + 1]
            self._since = settled.time
            self.has_settled = True
            # Those before it are forgotten after the next look.
        self._known = {key: None for key in found if key in self._known}
        return []

    async def _settled(self) -> _Mark | None:
        """The mark whose time no earlier row can come for after this, if there is one."""
        if not self._marks:
            return None
        first = self._marks[0]
        if self._store.commits_in_order:
            return self._marks[-1]
        ((oldest, next_one, open_ones),) = await self._insist(partial(self._store.read, _OPEN))
        if first.open is None:
            # A transaction may have its time a moment before it counts as open.
            if first.read <= self._run.now() - self._options.poll:
                first.open, first.until = frozenset(open_ones), next_one
            return None
        first.open &= set(open_ones)
        return first if not first.open and oldest >= first.until else None

    @property
    def _keys(self) -> str:
        return ", ".join(f"{name}{{as_text}}" for name in self._by)

    async def _rows_of(self, keys: Sequence[Key]) -> list[Found]:
        """The rows with these keys that are still there."""
        time, id = self._by
        names = [f"{first}{second}" for first, second in product(ascii_lowercase, repeat=2)]
        pairs = dict(zip(names, keys, strict=False))
        condition = " OR ".join(f"{time} = :time_{name} AND {id} = :id_{name}" for name in pairs)
        values = {f"time_{name}": key[0] for name, key in pairs.items()}
        values |= {f"id_{name}": key[1] for name, key in pairs.items()}
        return await self._rows(condition, None, **values)

    async def _rows(self, condition: str, count: int | None, **values: Any) -> list[Found]:
        found = await self._select(f"{self._keys}, {self._columns}", condition, count, **values)
        for key in found:
            for name, value in zip(self._options.columns, key, strict=False):
                if not isinstance(value, str | int | float):
                    raise CannotOpen(
                        f"{self._info}: column {name!r} has {value!r}, and texts or numbers are "
                        "needed there"
                    )
        return [((time, id), self._row(row)) for time, id, *row in found]

    # The position.

    def state(self, unfinished: Iterable[Key]) -> dict[str, Any]:
        return {
            "columns": self._options.columns,
            "front": self.front,
            "since": self._since,
            "known": list(self._known),
            "again": [*unfinished, *self._again],
        }

    def go_on(self, state: Any) -> None:
        if state["columns"] != list(self._options.columns):
            raise ValueError("of other columns")
        self.front = _key(state["front"])
        self._since = state["since"]
        self._known = dict.fromkeys(map(_key, state["known"]))
        self._again = [_key(one) for one in state["again"]]
        self._marks = [_Mark(self.front[0], self._run.now())]

    def statistics(self) -> dict[str, Any]:
        front = None if self.front is None else self.front[0]
        return {"front": front, "gaps": 0, "remembered": len(self._known)}


def _key(saved: Any) -> Key:
    time, id = saved
    return time, id
