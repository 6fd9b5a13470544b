"""A queue in memory: the twin of the databases, for virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.streams.delivery.commit import Parts
from penstock.streams.sql_queue import Claim, ClaimTerms, Layout, Row, Settlement, Store
from penstock.streams.sql_queue.schema import ANY, Required, Upsert
from penstock.streams.sql_queue.store import Enqueued, PeriodicJob

__all__ = ["MemoryStore"]


class MemoryStore(Store):
    """Rows in lists; every call yields to the loop, as a database does."""

    def __init__(self, payloads: Iterable[str]) -> None:
        self.url = "sqlite:///in-memory"
        self.layout = Layout()
        self.waiting: list[tuple[int, str]] = list(enumerate(payloads, 1))
        self.finished: list[int] = []
        self.failed: list[int] = []
        # Rows in work that are cancelled.
        self.cancels: set[int] = set()
        # How often each was claimed and not given back.
        self.attempts: Counter[int] = Counter()

    async def open(self, required: Required = ANY) -> None:
        await asyncio.sleep(0)

    async def claim(
        self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
    ) -> Claim:
        await asyncio.sleep(0)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        self.attempts.update(id for id, _ in taken)
        return Claim([Row(id, 1, self.attempts[id], payload) for id, payload in taken])

    async def has_suspects(self, terms: ClaimTerms) -> bool:
        return False

    async def claim_suspect(self, terms: ClaimTerms) -> Claim:
        raise NotImplementedError

    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        await asyncio.sleep(0)
        if lost := [row for row in settlement.rows() if row.id in self.cancels]:
            return lost
        for kind, values in settlement.parts.items():
            kind.write(self, values)
        self.finished += [row.id for row in settlement.processed]
        later = [failure.row for failure in settlement.failed if failure.delay is not None]
        self.failed += [one.row.id for one in settlement.failed if one.delay is None]
        self.attempts.subtract(row.id for row in settlement.returned)
        again = [*settlement.returned, *settlement.abandoned, *later]
        back = [(row.id, str(row.payload)) for row in again]
        self.waiting = sorted([*back, *self.waiting])
        return []

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        await asyncio.sleep(0)
        return [row for row in rows if row.id in self.cancels]

    def record(self, db: Any, settlement: Settlement, terms: ClaimTerms) -> Any:
        raise NotImplementedError

    async def cancelled(self, ids: Sequence[Any]) -> set[Any]:
        await asyncio.sleep(0)
        return self.cancels & set(ids)

    async def release(self, keys: Sequence[tuple[str, int | None]]) -> None:
        raise NotImplementedError

    async def states(self, ids: Sequence[Any]) -> dict[Any, tuple[Any, int]]:
        raise NotImplementedError

    def announce(self) -> None: ...

    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        raise NotImplementedError

    async def write(self, parts: Parts) -> None:
        raise NotImplementedError

    def insert(
        self,
        db: Any,
        fields: Mapping[str, str] | None,
        values: list[Any],
        upsert: Upsert | None = None,
    ) -> Any:
        raise NotImplementedError

    async def put(
        self, payloads: Sequence[str | bytes], delay: float = 0.0, priority: int = 0
    ) -> list[Any]:
        raise NotImplementedError

    async def now(self) -> float:
        raise NotImplementedError

    async def plan(self, name: str, schedule: str, first: float) -> None:
        raise NotImplementedError

    async def planned(self) -> dict[str, PeriodicJob]:
        raise NotImplementedError

    async def move(
        self, name: str, time: float, after: float, rows: list[Enqueued], missed: int = 0
    ) -> bool:
        raise NotImplementedError

    async def is_paused(self) -> bool:
        return False

    async def pause(self, paused: bool) -> None:
        raise NotImplementedError

    async def upgrade(self) -> bool:
        raise NotImplementedError

    async def changed(self, within: float) -> bool:
        await asyncio.sleep(within)
        return False

    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    async def read(
        self, text: str, /, *, field: str | None = None, **parameters: Any
    ) -> list[tuple[Any, ...]]:
        """Called for the rows of other readers; there are none."""
        return []

    async def blockers(self) -> str:
        return ""

    async def close(self) -> None:
        await asyncio.sleep(0)
