"""The queue store for SQLite files.

Times are seconds since 1970. An insert in this process wakes the readers of the same file; inserts
by other processes are noticed by SQLite's own change counter, which costs neither a lock nor a
query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from penstock.streams.base import clock
from penstock.streams.sql_queue.claimed import (
    CANCELLED,
    EXHAUSTED,
    Claim,
    ClaimTerms,
    NotHeld,
    Refusals,
    Refused,
    Row,
    Settlement,
    apart,
    lost_rows,
    new_token,
    sorted_out,
    were_settled,
)
from penstock.streams.sql_queue.schema import DEAD, IN_PROCESS, UNPROCESSED
from penstock.streams.sql_queue.sqlite import statements as sql
from penstock.streams.sql_queue.sqlite.expressions import json_path, key_text
from penstock.streams.sql_queue.sqlite.table import SqliteTable, refusals

__all__ = ["SqliteStore"]

_BEFORE_ALL = -(2**63)  # an id
# Ids in the text of one statement.
_AT_ONCE = 1_000


class SqliteStore(SqliteTable):
    """Claims and settlements."""

    # Claims.

    async def claim(
        self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
    ) -> Claim:
        values = {"count": count, "reclaim": reclaim, **_conditions(terms)}
        behind = self._position.behind(reclaim)
        values["urgent"], values["behind"] = behind or (_BEFORE_ALL, _BEFORE_ALL)
        if terms.by is not None:
            values["left_keys"] = [_bytes(key) for key in left]
            return await apart(refusals, partial(self._claim_by_key, terms.by, values, reclaim))
        claim = await apart(refusals, partial(self._claim, sql.CLAIM, values))
        self._position.claimed(claim)
        return claim

    async def claim_suspect(self, terms: ClaimTerms) -> Claim:
        values = _conditions(terms, alone=True)
        if terms.by is None:
            return await apart(refusals, partial(self._claim, sql.CLAIM_SUSPECT, values))
        return await apart(refusals, partial(self._claim_suspect_by_key, terms.by, values))

    async def has_suspects(self, terms: ClaimTerms) -> bool:
        values = _conditions(terms)

        def work(db: sqlite3.Connection) -> list[Any]:
            if terms.by is None:
                return self._all(db, sql.HAS_SUSPECTS, values)
            self._prepare_keys(db, terms.by)
            return self._all(db, sql.HAS_SUSPECT_KEYS, values)

        # The first claim by key creates a table.
        return bool(await self._transaction(work, writing=self._key is None))

    async def _claim(self, text: str, values: dict[str, Any], refused: Refusals | None) -> Claim:
        def work(db: sqlite3.Connection) -> list[Any]:
            self._adopt(db, values, values.get("count", 0))
            return self._changed(db, text, values, refused)

        rows = await self._transaction(work, durable=False)
        return sorted_out(rows, values["token"], now=values["now"])

    def _changed(
        self, db: sqlite3.Connection, text: str, values: dict[str, Any], refused: Refusals | None
    ) -> list[Any]:
        """The rows that a claim returns; with `refused`, rows of it that the database refuses to
        change have failed for good, and are added there."""
        if refused is None:
            return self._all(db, text, values)
        rows: list[Any] = []
        parts = [[id for (id,) in self._all(db, sql.ids_of(text), values)]]
        while parts:
            some = parts.pop()
            try:
                # A statement that is refused changes nothing; the transaction goes on.
                with refusals():
                    rows += self._all(db, sql.some_of(text), values, some)
            except Refused as error:
                if not db.in_transaction:
                    raise  # A trigger has undone all of it.
                if len(some) > 1:
                    parts += [some[len(some) // 2 :], some[: len(some) // 2]]
                else:
                    refused.append((some[0], error))
                    self._bury(db, values, some, error)
        return rows

    def _bury(
        self, db: sqlite3.Connection, values: dict[str, Any], some: list[Any], error: Refused
    ) -> None:
        try:
            with refusals():
                self._all(db, sql.BURY, {**values, "refusal": str(error)}, some)
        except Refused:
            self.spare(some[0], error)

    def _adopt(self, db: sqlite3.Connection, values: dict[str, Any], count: int) -> None:
        """Take rows of the user's table into the queue beside it: as many as may be claimed."""
        if self.layout.beside:
            self._all(db, sql.ADOPT, {**values, "adopt": count})

    async def _claim_by_key(
        self, by: str, values: dict[str, Any], reclaim: bool, refused: Refusals | None
    ) -> Claim:
        is_left = bool(values["left_keys"])

        def work(db: sqlite3.Connection) -> tuple[list[Any], list[Any], list[Any], Any]:
            self._prepare_keys(db, by)
            self._all(db, sql.PASSED)
            if values["behind"] == _BEFORE_ALL:
                self._all(db, sql.FORGET_PASSED)
            # All of them: the first ones may be of keys that other readers hold.
            self._adopt(db, values, -1)
            reclaimed: list[Any] = []
            if reclaim:
                self._all(db, sql.RECLAIM_KEYS, values)
                reclaimed = self._changed(db, sql.RECLAIM_ROWS, values, refused)
                if any(status == IN_PROCESS for _, status in reclaimed):
                    self._all(db, sql.MARK_SUSPECTS, values)
            self._all(db, sql.GO_ON_WITH_KEYS, values)
            for key in values["left_keys"]:
                self._all(db, sql.LEAVE_KEY, {**values, "key": key})
            lease, claim, passes = sql.LEASE_KEYS, sql.CLAIM_OF_KEYS, is_left and refused is None
            if self.is_ranked and self._all(db, sql.IS_MIXED)[0][0]:
                lease, claim, passes = sql.LEASE_URGENT_KEYS, sql.CLAIM_URGENT_OF_KEYS, False
                self._all(db, sql.FORGET_PASSED)
                values["behind"] = _BEFORE_ALL
            self._all(db, lease, values)
            rows = self._changed(db, claim, values, refused)
            last = self._pass_by(db, values, rows) if passes else None
            return reclaimed, rows, self._all(db, sql.EPOCHS, values), last

        reclaimed, rows, epochs, last = await self._transaction(work, durable=False)
        self._position.reached(last)
        found = _keyed(rows, values, epochs)
        found.buried += [id for id, status in reclaimed if status == DEAD]
        return found

    def _pass_by(
        self, db: sqlite3.Connection, values: dict[str, Any], rows: list[Any]
    ) -> int | None:
        """The id up to which all rows are claimed, except for keys that are passed by.

        There is none if later rows may have lower ids.
        """
        self._all(db, sql.PASS_BY, values)
        if len(rows) == values["count"]:
            last = max(row[0] for row in rows)
        else:
            ((last,),) = self._all(db, sql.LAST)
        return last if isinstance(last, int) and not self.layout.beside else None

    async def _claim_suspect_by_key(
        self, by: str, values: dict[str, Any], refused: Refusals | None
    ) -> Claim:
        def work(db: sqlite3.Connection) -> Claim:
            self._prepare_keys(db, by)
            leased = self._all(db, sql.LEASE_SUSPECT_KEY, values)
            if not leased:
                return Claim()
            ((key, epoch),) = leased
            of_key = {**values, "key": key}
            rows = self._changed(db, sql.CLAIM_SUSPECT_OF_KEY, of_key, refused)
            if not rows:
                # The queue was changed by hand.
                self._many(db, sql.RELEASE, [(key, epoch)])
            return _keyed(rows, values, [(key, epoch)])

        return await self._transaction(work, durable=False)

    def _prepare_keys(self, db: sqlite3.Connection, by: str) -> None:
        if self._key is None:
            self._key = self._key_expression(db, by)
            db.execute(sql.CREATE_KEYS.format_map(self._names))

    def _key_expression(self, db: sqlite3.Connection, by: str) -> str:
        """What a row's key is in SQL: a column, else a field of the payload."""
        if by in self._columns(db):
            return key_text(self.layout.value(by, None))
        payload = self._names["payload"]
        return (
            f"CASE WHEN json_valid({payload}) "
            f"THEN {key_text(f'({payload} ->> {json_path(by)})')} ELSE '' END"
        )

    # Settlements.

    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        self._position.settles(settlement)
        # With parts, the commit must be durable.
        try:
            write = partial(self._write, settlement=settlement, terms=terms)
            # What the commit refuses may be a part.
            with nullcontext() if settlement.parts else refusals():
                await self._transaction(write, durable=bool(settlement.parts))
        except NotHeld:
            self._position.reached(None)
            rows = settlement.rows()
            states = await self.states([row.id for row in rows])
            return [] if were_settled(rows, states) else lost_rows(rows, states)
        if settlement.parts:
            self.announce()
        return []

    def _write(self, db: sqlite3.Connection, settlement: Settlement, terms: ClaimTerms) -> None:
        self.record(db, settlement, terms)
        self._write_parts(db, settlement.parts)

    def record(self, db: sqlite3.Connection, settlement: Settlement, terms: ClaimTerms) -> None:
        with refusals():
            self._mark(db, settlement, terms)

    def _mark(self, db: sqlite3.Connection, settlement: Settlement, terms: ClaimTerms) -> None:
        now = clock.wall()
        finished = [(now, row.id, row.token) for row in settlement.processed]
        returned = [(now, row.id, row.token) for row in settlement.returned]
        if self._many(db, sql.FINISH, finished) < len(finished):
            raise NotHeld
        if self._many(db, sql.RETURN, returned) < len(returned):
            raise NotHeld
        abandoned = [(now, row.id, row.token) for row in settlement.abandoned]
        if self._many(db, sql.RENEW, abandoned) < len(abandoned):
            raise NotHeld
        for row in settlement.abandoned:
            if row.key is not None:
                values = {"key": _bytes(row.key), "epoch": row.epoch, "run_at": now, "id": row.id}
                self._all(db, sql.PARK_KEY, values)
                self._all(db, sql.PARK_LATER_ROWS, values)
        for failure in settlement.failed:
            row, delay = failure.row, failure.delay
            values = {
                "final": delay is None,
                "attempts": terms.attempts,
                "now": now,
                "run_at": now + (delay or 0.0),
                "error": failure.error,
                "snoozed": failure.snoozed,
                "id": row.id,
                "token": row.token,
                "key": _bytes(row.key),
                "epoch": row.epoch,
            }
            left = self._all(db, sql.FAIL, values)
            if not left:
                raise NotHeld
            if row.key is not None and (failure.held_back or left[0][0] == UNPROCESSED):
                self._all(db, sql.PARK_KEY, values)
        for key in {failure.row.key for failure in settlement.failed if failure.parks}:
            if key is not None:
                self._all(db, sql.PARK_ROWS, {"key": _bytes(key)})
        self._many(db, sql.RELEASE, [(_bytes(key), epoch) for key, epoch in settlement.idle_keys])
        if terms.by is not None and any(row.token < 0 for row in settlement.rows()):
            # Other suspects of the same key keep it.
            self._all(db, sql.MARK_SUSPECTS, {"now": now})

    async def states(self, ids: Sequence[Any]) -> dict[Any, tuple[Any, int]]:
        def work(db: sqlite3.Connection) -> list[Any]:
            return [found for id in ids for found in self._all(db, sql.STATE, {"id": id})]

        found = await self._transaction(work, writing=False)
        return {id: (token, status) for id, token, status in found}

    async def cancelled(self, ids: Sequence[Any]) -> set[Any]:
        parts = [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]

        def work(db: sqlite3.Connection) -> set[Any]:
            why = {"why": CANCELLED}
            return {id for part in parts for (id,) in self._all(db, sql.CANCELLED, why, part)}

        return await self._transaction(work, writing=False)

    async def release(self, keys: Sequence[tuple[str, int | None]]) -> None:
        idle = [(_bytes(key), epoch) for key, epoch in keys]

        def work(db: sqlite3.Connection) -> None:
            self._many(db, sql.RELEASE, idle)
            # Suspects of these keys keep them.
            self._all(db, sql.MARK_SUSPECTS, {"now": clock.wall()})

        await self._transaction(work, durable=False)

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        expires = clock.wall() + terms.lease
        keys = {(row.key, row.epoch) for row in rows if row.key is not None}

        def work(db: sqlite3.Connection) -> int:
            # A row only with its key: one that was abandoned meanwhile would let later ones pass.
            kept = {
                epoch
                for key, epoch in keys
                if self._many(
                    db,
                    sql.RENEW_KEY,
                    [(expires, _bytes(key), epoch, terms.owner, terms.alone, terms.left)],
                )
            }
            leases = [
                (expires, row.id, row.token) for row in rows if row.key is None or row.epoch in kept
            ]
            return self._many(db, sql.RENEW, leases)

        with refusals():
            renewed = await self._transaction(work, durable=False)
        if renewed == len(rows):
            return []
        self._position.reached(None)
        return lost_rows(rows, await self.states([row.id for row in rows]))


def _keyed(
    rows: Sequence[tuple[Any, ...]], values: dict[str, Any], epochs: Iterable[tuple[bytes, int]]
) -> Claim:
    """A claim from what its statement returned, with the keys as texts."""
    return sorted_out(
        [(*row[:6], _text(row[6]), *row[7:]) for row in rows],
        values["token"],
        {_text(key): epoch for key, epoch in epochs},
        values["now"],
    )


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _bytes(key: str | None) -> bytes | None:
    """A key as stored in the database; the inverse of `_text`."""
    return None if key is None else key.encode("utf-8", "surrogateescape")


def _conditions(terms: ClaimTerms, *, alone: bool = False) -> dict[str, Any]:
    """The parameters of a claim, with a new token."""
    now = clock.wall()
    return {
        "now": now,
        "expires": now + terms.lease,
        "owner": terms.owner,
        "alone": terms.alone,
        "left": terms.left,
        "token": new_token(alone=alone),
        "attempts": terms.attempts,
        "suspect": terms.suspect,
        "exhausted": EXHAUSTED,
    }
