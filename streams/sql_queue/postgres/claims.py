"""The queue store for PostgreSQL 15 or newer: one connection for work, one that listens.

Claims lock with SKIP LOCKED, so readers do not wait for each other. Times are by the database's
clock. Claims and outcomes are committed without waiting for the disk, because rows whose commit was
undone by a crash of the server are processed again; results and enqueued rows do wait. So do claims
and outcomes with order per key: a reader must not continue with later rows of a key when a crash
has undone its lease of the key.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from penstock.streams.base import clock
from penstock.streams.sql_queue.claimed import (
    CANCELLED,
    EXHAUSTED,
    Claim,
    ClaimTerms,
    Failure,
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
from penstock.streams.sql_queue.passed import Range
from penstock.streams.sql_queue.postgres import statements as sql
from penstock.streams.sql_queue.postgres.key_texts import (
    CREATE_KEY_FUNCTION,
    CREATE_TEXT_FUNCTION,
    HAS_FUNCTION,
)
from penstock.streams.sql_queue.postgres.refusals import refusals
from penstock.streams.sql_queue.postgres.table import Connection, PostgresTable
from penstock.streams.sql_queue.postgres.table_statements import HAS_TABLE
from penstock.streams.sql_queue.schema import DEAD, IN_PROCESS, UNPROCESSED

__all__ = ["PostgresStore"]

_LAST = 2**63 - 1  # an id
# Seconds between two searches for rows that were set back by hand.
_EVERY = 1.0
# The most rows that a claim passes by, which takes some hundredths of a second.
_AT_ONCE = 20_000


class PostgresStore(PostgresTable):
    """Claims and settlements."""

    # Whether keys may be marked as left.
    _has_left = False
    # On which connection rows were passed by, and the oldest transaction that was not over then.
    _passed_on: Connection | None = None
    _since = ""
    # When rows that were set back by hand are looked for again.
    _look_at = 0.0

    # Claims.

    async def claim(
        self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
    ) -> Claim:
        values = {"count": count, "reclaim": reclaim, **_conditions(terms)}
        if terms.by is not None:
            await self._prepare_keys(terms.by)
            values["left_keys"] = list(left)
            return await apart(refusals, partial(self._claim_by_key, values, reclaim))
        text = sql.CLAIM
        behind = self._position.behind(reclaim)
        if behind is not None:
            text = sql.CLAIM_BEHIND
            values["urgent"], values["behind"] = behind
        claim = await apart(refusals, partial(self._claim, text, values))
        self._position.claimed(claim)
        return claim

    async def claim_suspect(self, terms: ClaimTerms) -> Claim:
        values = _conditions(terms, alone=True)
        if terms.by is not None:
            await self._prepare_keys(terms.by)
            return await apart(refusals, partial(self._claim_suspect_by_key, values))
        return await apart(refusals, partial(self._claim, sql.CLAIM_SUSPECT, values))

    async def _claim(self, text: str, values: dict[str, Any], refused: Refusals | None) -> Claim:
        if self.layout.beside or refused is not None:
            async with self._transaction() as db:
                if self.layout.beside and "count" in values:
                    await self._all(db, sql.ADOPT, {"adopt": values["count"]})
                rows = await self._changed(db, text, values, refused)
        else:
            async with self._using() as db:
                rows = await self._all(db, text, values)
        return sorted_out(rows, values["token"])

    async def _changed(
        self, db: Connection, text: str, values: dict[str, Any], refused: Refusals | None
    ) -> list[tuple[Any, ...]]:
        """The rows that a claim returns; with `refused`, rows of it that the database refuses to
        change have failed for good, and are added there."""
        if refused is None:
            return await self._all(db, text, values)
        await self._all(db, sql.CHECK_AT_ONCE)
        rows: list[tuple[Any, ...]] = []
        parts = [[id for (id,) in await self._all(db, sql.ids_of(text), values)]]
        while parts:
            some = parts.pop()
            try:
                with refusals():
                    async with db.transaction():
                        rows += await self._all(db, sql.some_of(text), {**values, "some": some})
            except Refused as error:
                if len(some) > 1:
                    parts += [some[len(some) // 2 :], some[: len(some) // 2]]
                else:
                    refused.append((some[0], error))
                    await self._bury(db, some, error)
        return rows

    async def _bury(self, db: Connection, some: list[Any], error: Refused) -> None:
        try:
            with refusals():
                async with db.transaction():
                    await self._all(db, sql.BURY, {"some": some, "refusal": str(error)})
        except Refused:
            self.spare(some[0], error)

    async def has_suspects(self, terms: ClaimTerms) -> bool:
        text = sql.HAS_SUSPECTS
        if terms.by is not None:
            await self._prepare_keys(terms.by)
            text = sql.HAS_SUSPECT_KEYS
        async with self._using() as db:
            return bool(await self._all(db, text, _conditions(terms)))

    async def _prepare_keys(self, by: str) -> None:
        if self._by is not None:
            return
        takes, create = "(json, text)", CREATE_KEY_FUNCTION
        if by in self._columns:
            takes, create = "(anyelement)", CREATE_TEXT_FUNCTION
        function = {"function": self._names["key_function"] + takes}
        async with self._transaction(durable=True) as db:
            # A user for whom they exist needs no right to create them.
            table = {"table": self._names["keys"]}
            if not (await self._all(db, HAS_TABLE, table))[0][0]:
                for statement in sql.CREATE_KEYS:
                    await self._all(db, statement, table)
            if not (await self._all(db, HAS_FUNCTION, function))[0][0]:
                await self._all(db, create)
        self._by = by

    async def _claim_by_key(
        self, values: dict[str, Any], reclaim: bool, refused: Refusals | None
    ) -> Claim:
        buried: list[Any] = []
        async with self._passing_by(), self._transaction(durable=True) as db:
            if self.layout.beside:
                # All of them: the first ones may be of keys that other readers hold.
                await self._all(db, sql.ADOPT_ALL)
            if reclaim:
                await self._all(db, sql.RECLAIM_KEYS, values)
                rows = await self._changed(db, sql.RECLAIM_ROWS, values, refused)
                buried += [id for id, status, _ in rows if status == DEAD]
                if suspected := {key for _, status, key in rows if status == IN_PROCESS}:
                    await self._all(db, sql.MARK_SUSPECTS, {"keys": list(suspected)})
            if values["left_keys"] or self._has_left:
                self._has_left = True
                await self._all(db, sql.LEAVE_KEYS, values)
            if self.is_ranked and (await self._all(db, sql.IS_MIXED))[0][0]:
                self._passed.forget()
                passes, lease, claim = False, sql.LEASE_URGENT_KEYS, sql.CLAIM_URGENT_OF_KEYS
            else:
                where, passes = await self._where(db, values, reclaim)
                values |= where
                lease, claim = sql.LEASE_KEYS, sql.CLAIM_OF_KEYS
            leased = await self._all(db, lease, values)
            rows = await self._changed(db, claim, values, refused)
            if passes:
                limit = len(rows) >= values["count"]
                last = max(row[0] for row in rows) if limit else None
                await self._pass_by(db, values["blocked"], last)
            epochs = {row[6]: row[-1] for row in rows}
            unused = [(key, epoch) for key, epoch, new in leased if new and key not in epochs]
            if unused:
                await self._all(db, sql.RELEASE, _leases(unused))
        self._has_left = bool(values["left_keys"])
        found = sorted_out([row[:-1] for row in rows], values["token"], epochs)
        found.buried += buried
        return found

    @asynccontextmanager
    async def _passing_by(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except BaseException:
            # What was seen in the transaction may not be so.
            self._passed.forget()
            raise

    async def _where(
        self, db: Connection, values: dict[str, Any], reclaim: bool
    ) -> tuple[dict[str, Any], bool]:
        """Where to look, without the keys of passed rows that cannot be claimed, and whether more
        rows are to be passed by."""
        passed = self._passed
        if db is not self._passed_on:
            # Another server may have taken over, which has not all of what was seen on the last.
            passed.forget()
            self._passed_on = db
        known = {"passed": passed.keys, "end": passed.end, "since": self._since}
        ((blocked, others),) = await self._all(db, sql.BLOCKED, {**values, **known})
        passes = passed.end is not None or (others and self._ids_are_whole)
        if passes and (passed.end is None or (reclaim and clock.monotonic() >= self._look_at)):
            self._look_at = clock.monotonic() + _EVERY
            ((self._since,),) = await self._all(db, sql.NOW)
            if passed.end is not None:
                passed.changed(id for (id,) in await self._all(db, sql.CHANGED, known))
        return {"blocked": blocked, **_ranges(passed.where(blocked))}, passes

    async def _pass_by(self, db: Connection, blocked: list[str], last: int | None) -> None:
        """Note the rows that the next claim need not look at: up to the `last` one claimed, or all
        if all were claimed that can be."""
        passed = self._passed
        if passed.end is None:
            ((first,),) = await self._all(db, sql.FIRST)
            if first is None:
                return
            passed.begin(first)
        values: dict[str, Any] = {"end": passed.end}
        values |= {"last": _LAST if last is None else last, "some": _AT_ONCE}
        found = await self._all(db, sql.HOLES, values)
        holes = [(before, id) for before, id, _ in found if id > before + 1]
        end = next((id for _, id, is_last in found if is_last), values["end"])
        where = _ranges(passed.again(blocked, last, end))
        keys = await self._all(db, sql.PASSED_KEYS, where)
        passed.passed(blocked, last, end, holes, keys)

    async def _claim_suspect_by_key(
        self, values: dict[str, Any], refused: Refusals | None
    ) -> Claim:
        async with self._transaction(durable=True) as db:
            leased = await self._all(db, sql.LEASE_SUSPECT_KEY, values)
            if not leased:
                return Claim()
            ((key, epoch),) = leased
            of_key = {**values, "key": key}
            rows = await self._changed(db, sql.CLAIM_SUSPECT_OF_KEY, of_key, refused)
            if not rows:
                # The queue was changed by hand.
                await self._all(db, sql.RELEASE, _leases([(key, epoch)]))
        return sorted_out([row[:-1] for row in rows], values["token"], {key: epoch})

    # Settlements.

    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        self._position.settles(settlement)
        # Without a transaction: those that are held are marked, whatever became of the others.
        each = settlement.only_processed and terms.by is None
        try:
            # What the commit refuses may be a part.
            with nullcontext() if settlement.parts else refusals():
                if each:
                    async with self._using() as db:
                        await self._finish(db, settlement.processed)
                else:
                    # With parts, or with order per key, the commit must be durable.
                    durable = bool(settlement.parts) or terms.by is not None
                    async with self._transaction(durable=durable) as db:
                        await self.record(db, settlement, terms)
                        for kind, values in settlement.parts.items():
                            await kind.write(db, values)
        except NotHeld:
            rows = settlement.rows()
            states = await self.states([row.id for row in rows])
            if not each and were_settled(rows, states):
                return []
            return lost_rows(rows, states)
        return []

    async def record(self, db: Connection, settlement: Settlement, terms: ClaimTerms) -> None:
        with refusals():
            await self._write(db, settlement, terms)

    async def _finish(self, db: Connection, rows: list[Row]) -> None:
        if rows and await self._count(db, sql.FINISH, _marks(rows)) < len(rows):
            raise NotHeld

    async def _write(self, db: Connection, settlement: Settlement, terms: ClaimTerms) -> None:
        keys = {(row.key, row.epoch) for row in settlement.rows() if row.key is not None}
        if keys:
            await self._all(db, sql.KEEP_KEYS, _leases(keys))
        await self._finish(db, settlement.processed)
        returned = settlement.returned
        if returned and await self._count(db, sql.RETURN, _marks(returned)) < len(returned):
            raise NotHeld
        if settlement.failed:
            await self._fail(db, settlement.failed, terms)
        if settlement.abandoned:
            await self._abandon(db, settlement.abandoned)
        if settlement.idle_keys:
            await self._all(db, sql.RELEASE, _leases(settlement.idle_keys))
        alone = {row.key for row in settlement.rows() if row.token < 0}
        if terms.by is not None and alone:
            # Other suspects of the same key keep it.
            await self._all(db, sql.MARK_SUSPECTS, {"keys": list(alone)})

    async def _fail(self, db: Connection, failed: list[Failure], terms: ClaimTerms) -> None:
        values = {
            **_marks([failure.row for failure in failed]),
            "errors": [failure.error for failure in failed],
            "delays": [failure.delay or 0.0 for failure in failed],
            "finals": [failure.delay is None for failure in failed],
            "snoozes": [failure.snoozed for failure in failed],
            "attempts": terms.attempts,
        }
        left = dict(await self._all(db, sql.FAIL, values))
        if len(left) < len(failed):
            raise NotHeld
        parked = {
            failure.row.key: (failure.row.epoch, failure.delay or 0.0)
            for failure in failed
            if failure.row.key is not None
            and (failure.held_back or left[failure.row.id] == UNPROCESSED)
        }
        if parked:
            keys = {
                "keys": list(parked),
                "epochs": [epoch for epoch, _ in parked.values()],
                "delays": [delay for _, delay in parked.values()],
            }
            await self._all(db, sql.PARK_KEYS, keys)
            await self._all(db, sql.PARK_ROWS, keys)

    async def _abandon(self, db: Connection, rows: list[Row]) -> None:
        if await self._count(db, sql.RENEW, {"lease": 0.0, **_marks(rows)}) < len(rows):
            raise NotHeld
        keyed = [row for row in rows if row.key is not None]
        if keyed:
            values = {
                "keys": [row.key for row in keyed],
                "epochs": [row.epoch for row in keyed],
                "delays": [0.0] * len(keyed),
                "ids": [row.id for row in keyed],
            }
            await self._all(db, sql.PARK_KEYS, values)
            await self._all(db, sql.PARK_LATER_ROWS, values)

    async def states(self, ids: Sequence[Any]) -> dict[Any, tuple[Any, int]]:
        async with self._using() as db:
            found = await self._all(db, sql.STATES, {"ids": list(ids)})
        return {id: (token, status) for id, token, status in found}

    async def cancelled(self, ids: Sequence[Any]) -> set[Any]:
        async with self._using() as db:
            found = await self._all(db, sql.CANCELLED, {"ids": list(ids), "why": CANCELLED})
        return {id for (id,) in found}

    async def release(self, keys: Sequence[tuple[str, int | None]]) -> None:
        async with self._transaction(durable=True) as db:
            await self._all(db, sql.RELEASE, _leases(keys))
            # Suspects of these keys keep them.
            await self._all(db, sql.MARK_SUSPECTS, {"keys": [key for key, _ in keys]})

    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        with refusals():
            async with self._transaction(durable=terms.by is not None) as db:
                keys = {(row.key, row.epoch) for row in rows if row.key is not None}
                owners = [terms.owner, terms.alone, terms.left]
                values = {"lease": terms.lease, "owners": owners}
                kept: set[int] = set()
                if keys:
                    found = await self._all(db, sql.RENEW_KEYS, {**values, **_leases(keys)})
                    kept = {epoch for (epoch,) in found}
                # A row only with its key: one abandoned meanwhile would let later ones pass.
                held = [row for row in rows if row.key is None or row.epoch in kept]
                renewed = await self._count(db, sql.RENEW, {**values, **_marks(held)})
        return (
            []
            if renewed == len(rows)
            else lost_rows(rows, await self.states([row.id for row in rows]))
        )


def _conditions(terms: ClaimTerms, *, alone: bool = False) -> dict[str, Any]:
    """The parameters of a claim, with a new token."""
    return {
        "lease": terms.lease,
        "owner": terms.owner,
        "alone": terms.alone,
        "left": terms.left,
        "token": new_token(alone=alone),
        "attempts": terms.attempts,
        "suspect": terms.suspect,
        "exhausted": EXHAUSTED,
    }


def _ranges(ranges: list[Range]) -> dict[str, Any]:
    return {"after": [after for after, _ in ranges], "before": [before for _, before in ranges]}


def _marks(rows: Iterable[Row]) -> dict[str, Any]:
    """The parameters that prove that rows are held."""
    held = list(rows)
    return {"ids": [row.id for row in held], "tokens": [row.token for row in held]}


def _leases(keys: Iterable[tuple[str, int | None]]) -> dict[str, Any]:
    pairs = list(keys)
    return {"keys": [key for key, _ in pairs], "epochs": [epoch for _, epoch in pairs]}
