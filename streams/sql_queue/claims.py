"""How many rows a reader claims at a time, and when it reclaims crashed readers' rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import ended
from penstock.streams.sql_queue.claimed import Claim, ClaimTerms, Refused, Row
from penstock.streams.sql_queue.ledger import Ledger
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.store import MOST_REFUSED, Store

__all__ = ["Claims"]

# Seconds between two searches for expired leases while there is enough other work.
_RECLAIM = 1.0
# While rows are left, the time between two claims for all rows, as a multiple of what one takes.
_REST = 20.0
# A claim covers the demand of this many seconds, or of a few times as long as a claim takes, if
# that exceeds the present demand: a stage with quick calls requests one event at a time, and a
# claim takes as long as many of them.
_AHEAD = 0.02
_CLAIMS_AHEAD = 4
# Seconds that the last claim may take when a run is closed.
_GRACE = 5.0


class Claims:
    """Makes claims of at most `most` rows, one at a time; their rows are entered in the ledger at
    once.

    `refused` is called with the id of each row that the database lets nobody claim, `exhausted`
    with the id of each row that a claim found to have used up its attempts. `count` is how many
    claims there were, `began` when the last one began that was for all rows that are due.
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        terms: ClaimTerms,
        most: int,
        insist: Reconnecting,
        ledger: Ledger,
        refused: Callable[[Any, Refused], None],
        exhausted: Callable[[Any], None],
    ) -> None:
        self.count = 0
        self.began = run.now()
        self._run = run
        self._store = store
        self._terms = terms
        self._most = most
        self._insist = insist
        self._ledger = ledger
        self._refused = refused
        self._exhausted = exhausted
        # Refused rows since one was claimed.
        self._in_a_row = 0
        self._claiming: asyncio.Future[Claim] | None = None
        self._reclaim_at = 0.0
        # When the last claim ended, how long it took, and how many events were over then.
        self._ended, self._took, self._over = run.now(), 0.0, 0

    async def claim(
        self, demand: int, over: int, left: Collection[str], *, more: bool
    ) -> tuple[list[Row], bool]:
        """Rows for `demand` events, `over` being how many have ended, but none of the keys that are
        `left`; whether more are due. `more`: some are left no longer."""
        wanted = self._worthwhile(demand, over)
        began = self._run.now()
        reclaim = more or began >= self._reclaim_at
        reclaim = reclaim or any(due <= began for due in self._ledger.due)
        store, keys = self._store, tuple(left)
        claim = await self._claim(
            partial(store.claim, wanted, self._terms, reclaim=reclaim, left=keys)
        )
        self._ended, self._over = self._run.now(), over
        self._took = self._ended - began
        enough = len(claim.rows) + len(claim.buried) + len(claim.refused) >= wanted
        if keys:
            # One for all rows may have many to pass by. The others begin where it ended.
            if reclaim:
                self.began = began
                self._reclaim_at = self._ended + max(_RECLAIM, _REST * self._took)
            return claim.rows, enough
        self.began = began
        self._reclaim_at = began + _RECLAIM if enough else 0.0
        # A claim that did not cover all rows does not show that there are no more.
        return claim.rows, enough or not reclaim

    def _worthwhile(self, demand: int, over: int) -> int:
        # Of those that ended, because many may go out at once that then wait in the stages.
        rate = (over - self._over) / max(self._run.now() - self._ended, 1e-4)
        ahead = max(_AHEAD, _CLAIMS_AHEAD * self._took)
        return min(self._most, max(demand, int(rate * ahead)))

    async def claim_suspect(self) -> list[Row]:
        """A row that may have crashed its readers, to be worked on alone, if there is one."""
        return (await self._claim(partial(self._store.claim_suspect, self._terms))).rows

    async def has_suspects(self) -> bool:
        """Whether there is such a row."""
        if self._terms.suspect < 0:
            return False
        return await self._insist(lambda: self._store.has_suspects(self._terms))

    async def _claim(self, call: Callable[[], Awaitable[Claim]]) -> Claim:
        # A claim in progress is not interrupted: the rows it claims have to be returned.
        self._claiming = asyncio.ensure_future(self._claim_alone(call))
        try:
            claim = await asyncio.shield(self._claiming)
        except asyncio.CancelledError:
            self._claiming.add_done_callback(self._came_too_late)
            raise
        self.count += 1
        for id, error in claim.refused:
            self._refused(id, error)
            self._in_a_row += 1
            if self._in_a_row >= MOST_REFUSED:
                raise error.error
        if claim.rows:
            self._in_a_row = 0
        return claim

    async def _claim_alone(self, call: Callable[[], Awaitable[Claim]]) -> Claim:
        began = 0.0

        async def attempt() -> Claim:
            nonlocal began
            began = self._run.now()
            return await call()

        async with self._ledger.one_at_a_time:
            claim = await self._insist(attempt)
            self._ledger.take(claim.rows, began)
        # Also those of a claim that comes too late: no other reader finds them again.
        for id in claim.buried:
            self._exhausted(id)
        return claim

    def _came_too_late(self, claiming: asyncio.Future[Claim]) -> None:
        if not claiming.cancelled() and claiming.exception() is None:
            for row in claiming.result().rows:
                self._ledger.give_back(row)

    async def close(self) -> None:
        """Wait a few seconds for a claim in progress, and end it."""
        if self._claiming is not None:
            await ended(self._claiming, _GRACE)
