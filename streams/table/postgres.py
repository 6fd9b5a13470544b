"""A queue in PostgreSQL 15 or newer: a connection for work, and one that listens.

Claims lock with SKIP LOCKED, so that readers do not wait for each other. The database's clock
counts. Claims, and what became of rows, are committed without waiting for the disk, since rows
whose commit a crash of the server undid are worked on again; results and enqueued rows do wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import psycopg
from orjson import dumps
from psycopg import AsyncConnection, errors
from psycopg.sql import Literal

from streams.errors import CannotOpen, ColumnMissing, TableMissing
from streams.table import postgres_sql as sql
from streams.table.schema import DEAD, UNPROCESSED, Layout, quoted
from streams.table.store import (
    EXHAUSTED,
    Claim,
    DatabaseLost,
    Failure,
    Insertion,
    NotHeld,
    Row,
    Settlement,
    Store,
    Terms,
    columns_of,
    lost_rows,
    new_token,
    sorted_out,
    were_settled,
)
from streams.table.url import redacted

__all__ = ["PostgresStore"]

_OLDEST = 150000
_LONGEST_NAME = 63

_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
"""Errors after which the same may succeed, perhaps with a new connection."""

Connection = AsyncConnection[tuple[Any, ...]]


class PostgresStore(Store):
    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self._names = {
            **layout.names(),
            "now": "now()",
            "second": "interval '1 s'",
            "seconds": "date_part('epoch', ",
            "wake": layout.beside("_wake"),
            "id_type": "bigint",
        }
        self._channel = _channel(layout.table)
        self._names["channel_literal"] = Literal(self._channel).as_string(None)
        self._name_payload("json")
        self._columns: dict[str, str] = {}
        # Whether there has been a connection: then it is worth while to try again.
        self._known = False
        self._work: Connection | None = None
        self._listening: Connection | None = None
        self._lock = asyncio.Lock()
        self._statements: dict[tuple[str, str | None], str] = {}
        self._by: str | None = None
        # The last row claimed: those before it are not looked at every time.
        self._last: Any = None

    # The connection.

    async def open(self, fields: Sequence[str] | None = None, *, make: bool = True) -> None:
        if not self._known:
            try:
                async with self._using():
                    self._known = True
            except DatabaseLost as error:
                raise CannotOpen(f"Cannot use {redacted(self.url)}: {error}") from error
        async with self._transaction(durable=True) as db:
            await self._look(db, fields, make)

    async def _look(self, db: Connection, fields: Sequence[str] | None, make: bool) -> None:
        where = redacted(self.url)
        if db.info.server_version < _OLDEST:
            raise CannotOpen(
                f"{where} is PostgreSQL {db.info.server_version // 10000}: 15 or newer is needed."
            )
        names = self._names
        there = await self._types(db)
        if not there and make and fields is None and not self.layout.mapped:
            for statement in sql.CREATE:
                await self._all(db, statement, {"table": names["table"]})
            there = await self._types(db)
        elif not there:
            raise TableMissing(f"{where} has no table {self.layout.table!r}.")
        elif lacks := self.layout.missing(there, fields):
            raise ColumnMissing(self.layout.lacking(where, lacks))
        self._columns = there
        if fields is None:
            names["id_type"] = there[self.layout.column("id")]
            self._name_payload(there[self.layout.column("payload")])
            self._statements.clear()

    def _name_payload(self, kind: str) -> None:
        payload = f"t.{self._names['payload']}"
        self._payload_type = kind
        self._names["payload_of"] = payload if kind == "bytea" else f"{payload}::text"

    async def _types(self, db: Connection) -> dict[str, str]:
        return dict(await self._all(db, sql.COLUMNS_OF, {"table": self._names["table"]}))

    async def _connected(self) -> Connection:
        if self._work is None or self._work.closed:
            self._work = None
            self._work = await self._connect()
        return self._work

    async def _connect(self) -> Connection:
        db = await AsyncConnection.connect(
            self.url, autocommit=True, connect_timeout=10, application_name="penstock"
        )
        try:
            await db.execute("SET synchronous_commit = off")
            await db.execute(_made(sql.PLAN_BY_INDEX, {}))
        except BaseException:
            await db.close()
            raise
        return db

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[Connection, None]:
        """The connection, for statements that are a transaction each."""
        async with self._lock:
            try:
                yield await self._connected()
            except _PASSING as error:
                raise DatabaseLost(_first_line(error)) from error

    @asynccontextmanager
    async def _transaction(self, *, durable: bool = False) -> AsyncGenerator[Connection, None]:
        async with self._using() as db, db.transaction():
            if durable:
                await db.execute("SET LOCAL synchronous_commit = on")
            yield db

    async def close(self) -> None:
        async with self._lock:
            work, self._work = self._work, None
            listening, self._listening = self._listening, None
            for connection in (work, listening):
                if connection is not None:
                    await connection.close()

    def _text(self, text: str) -> Any:
        """A statement with its names, as psycopg takes it, made once."""
        made = self._statements.get((text, self._by))
        if made is None:
            key = "NULL" if self._by is None else self._key(self._by)
            made = _made(text, {**self._names, "key_of": key})
            self._statements[text, self._by] = made
        return made

    async def _all(
        self, db: Connection, text: str, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        cursor = await db.execute(self._text(text), values or {})
        return await cursor.fetchall() if cursor.description else []

    async def _count(self, db: Connection, text: str, values: Mapping[str, Any]) -> int:
        return (await db.execute(self._text(text), values)).rowcount

    # Claims.

    async def claim(self, count: int, terms: Terms, *, reclaim: bool = True) -> Claim:
        values = {"count": count, "reclaim": reclaim, **_conditions(terms)}
        if terms.by is not None:
            return await self._claim_by_key(terms.by, values, reclaim)
        text = sql.CLAIM
        if self._last is not None and not reclaim:
            text, values["behind"] = sql.CLAIM_BEHIND, self._last
        async with self._using() as db:
            claim = sorted_out(await self._all(db, text, values), values["token"])
        self._last = claim.rows[-1].id if claim.rows else None
        return claim

    async def claim_suspect(self, terms: Terms) -> Claim:
        values = _conditions(terms)
        async with self._using() as db:
            return sorted_out(await self._all(db, sql.CLAIM_SUSPECT, values), values["token"])

    async def _claim_by_key(self, by: str, values: dict[str, Any], reclaim: bool) -> Claim:
        if self._by is None:
            async with self._transaction() as db:
                for statement in sql.CREATE_KEYS:
                    await self._all(db, statement, {"table": self._names["keys"]})
            self._by = by
        buried: list[Any] = []
        async with self._transaction() as db:
            if reclaim:
                rows = await self._all(db, sql.RECLAIM_KEYS, values)
                buried += [id for id, status in rows if status == DEAD]
            leased = await self._all(db, sql.LEASE_KEYS, values)
            rows = await self._all(db, sql.CLAIM_OF_KEYS, values)
            epochs = {row[5]: row[6] for row in rows}
            unused = [(key, epoch) for key, epoch, new in leased if new and key not in epochs]
            if unused:
                await self._all(db, sql.RELEASE, _leases(unused))
        found = sorted_out([row[:6] for row in rows], values["token"], epochs)
        found.buried += buried
        return found

    def _key(self, by: str) -> str:
        """What a row's key is in SQL: a column, else a field of the payload."""
        if by in self._columns:
            return f"coalesce(t.{quoted(by)}::text, '')"
        if self._payload_type not in ("json", "jsonb"):
            raise CannotOpen(
                f"by={by!r}: table {self.layout.table!r} has no such column, and fields cannot be "
                f"read from a payload of type {self._payload_type}. Name a column, or let the "
                "payload be of type json."
            )
        return f"coalesce(t.{self._names['payload']} ->> {Literal(by).as_string(None)}, '')"

    # What became of rows.

    async def settle(self, settlement: Settlement, terms: Terms) -> list[Row]:
        if settlement.failed or settlement.returned:
            self._last = None
        try:
            if settlement.only_finished:
                async with self._using() as db:
                    await self._finish(db, settlement.finished)
            else:
                # With results to keep, their commit counts.
                async with self._transaction(durable=bool(settlement.inserts)) as db:
                    await self._write(db, settlement, terms)
        except NotHeld:
            rows = settlement.rows()
            states = await self._states(rows)
            return [] if were_settled(rows, states) else lost_rows(rows, states)
        return []

    async def _finish(self, db: Connection, rows: list[Row]) -> None:
        if rows and await self._count(db, sql.FINISH, _marks(rows)) < len(rows):
            raise NotHeld

    async def _write(self, db: Connection, settlement: Settlement, terms: Terms) -> None:
        await self._finish(db, settlement.finished)
        returned = settlement.returned
        if returned and await self._count(db, sql.RETURN, _marks(returned)) < len(returned):
            raise NotHeld
        if settlement.failed:
            await self._fail(db, settlement.failed, terms)
        if settlement.idle_keys:
            await self._all(db, sql.RELEASE, _leases(settlement.idle_keys))
        for insertion in settlement.inserts:
            await self._insert(db, insertion)

    async def _fail(self, db: Connection, failed: list[Failure], terms: Terms) -> None:
        values = {
            **_marks([failure.row for failure in failed]),
            "errors": [failure.error for failure in failed],
            "delays": [failure.delay or 0.0 for failure in failed],
            "finals": [failure.delay is None for failure in failed],
            "attempts": terms.attempts,
        }
        left = dict(await self._all(db, sql.FAIL, values))
        if len(left) < len(failed):
            raise NotHeld
        parked = {
            failure.row.key: (failure.row.epoch, failure.delay)
            for failure in failed
            if failure.row.key is not None and left[failure.row.id] == UNPROCESSED
        }
        if parked:
            keys = {
                "keys": list(parked),
                "epochs": [epoch for epoch, _ in parked.values()],
                "delays": [delay for _, delay in parked.values()],
            }
            await self._all(db, sql.PARK_KEYS, keys)
            await self._all(db, sql.PARK_ROWS, keys)

    async def _states(self, rows: Sequence[Row]) -> dict[Any, tuple[Any, int]]:
        async with self._using() as db:
            found = await self._all(db, sql.STATES, {"ids": [row.id for row in rows]})
        return {id: (token, status) for id, token, status in found}

    async def renew(self, rows: Sequence[Row], terms: Terms) -> list[Row]:
        async with self._transaction() as db:
            keys = {(row.key, row.epoch) for row in rows if row.key is not None}
            values = {"lease": terms.lease, "owner": terms.owner}
            if keys:
                await self._all(db, sql.RENEW_KEYS, {**values, **_leases(keys)})
            renewed = await self._count(db, sql.RENEW, {**values, **_marks(rows)})
        return [] if renewed == len(rows) else lost_rows(rows, await self._states(rows))

    # What comes in.

    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        if fields is None:
            return dumps(value).decode()
        return dumps(dict(zip(fields, columns_of(value, fields), strict=True)))

    async def insert(self, insertions: Sequence[Insertion]) -> None:
        async with self._transaction(durable=True) as db:
            for insertion in insertions:
                await self._insert(db, insertion)

    async def _insert(self, db: Connection, insertion: Insertion) -> None:
        """Queues are notified by hand too: a table of the user's may lack the trigger."""
        names = insertion.layout.names()
        fields = insertion.fields
        if fields is None:
            text = sql.PUT.partition("RETURNING")[0]
            values: dict[str, Any] = {"payloads": insertion.values, "delay": 0.0}
        else:
            text = sql.INSERT
            names["columns"] = ", ".join(map(quoted, fields))
            values = {"values": f"[{b','.join(insertion.values).decode()}]"}
        await db.execute(_made(text, names), values)
        if fields is None:
            await self._all(db, sql.NOTIFY, {"channel": _channel(insertion.layout.table)})

    async def put(self, payloads: Sequence[str | bytes], delay: float = 0.0) -> list[Any]:
        texts = [text.decode() if isinstance(text, bytes) else text for text in payloads]
        async with self._transaction(durable=True) as db:
            ids = await self._all(db, sql.PUT, {"payloads": texts, "delay": delay})
            await self._all(db, sql.NOTIFY, {"channel": self._channel})
        return [id for (id,) in ids]

    async def changed(self, within: float) -> None:
        listening = self._listening
        try:
            if listening is None or listening.closed:
                self._listening = listening = await self._connect()
                await listening.execute(_made(f"LISTEN {quoted(self._channel)}", {}))
                return  # Something may have come before.
            async for _ in listening.notifies(timeout=within, stop_after=1):
                pass
        except _PASSING as error:
            raise DatabaseLost(_first_line(error)) from error

    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        async with self._transaction(durable=True) as db:
            await self._all(db, sql.PLAN_FREELY)
            return await self._all(db, text, parameters)

    async def read(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        return await self.query(text, **parameters)


def _made(text: str, names: Mapping[str, str]) -> Any:
    """A statement as psycopg takes it. A parameter is a word after one colon; two are a cast."""
    marked = re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", text.replace("%", "%%"))
    return marked.format_map({name: value.replace("%", "%%") for name, value in names.items()})


def _conditions(terms: Terms) -> dict[str, Any]:
    """What a claim says of itself, with a token of its own."""
    return {
        "lease": terms.lease,
        "owner": terms.owner,
        "token": new_token(),
        "attempts": terms.attempts,
        "suspect": terms.suspect,
        "exhausted": EXHAUSTED,
    }


def _marks(rows: Iterable[Row]) -> dict[str, Any]:
    """What shows that rows are held."""
    held = list(rows)
    return {"ids": [row.id for row in held], "tokens": [row.token for row in held]}


def _leases(keys: Iterable[tuple[str, int | None]]) -> dict[str, Any]:
    pairs = list(keys)
    return {"keys": [key for key, _ in pairs], "epochs": [epoch for _, epoch in pairs]}


def _channel(table: str) -> str:
    """The channel of a table: its name, or a digest where that is too long for one."""
    name = f"penstock_{table}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"penstock_{sha256(table.encode()).hexdigest()[:32]}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
