"""The connection to a PostgreSQL table: one for work, one that listens for notifications."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.sql import Literal

from penstock.streams.base.database_url import conninfo, first_line, redacted
from penstock.streams.base.errors import CannotOpen, ColumnMissing, RightsMissing, TableMissing
from penstock.streams.delivery.commit import Parts
from penstock.streams.io.encoding import encoded
from penstock.streams.sql_queue.claimed import Refused
from penstock.streams.sql_queue.passed import Passed
from penstock.streams.sql_queue.position import Position
from penstock.streams.sql_queue.postgres import table_statements as sql
from penstock.streams.sql_queue.postgres.encoding import Encoding
from penstock.streams.sql_queue.postgres.key_texts import (
    SAME_TEXTS,
    equal_key,
    field_in_json,
    key_in_json,
    short_key,
)
from penstock.streams.sql_queue.postgres.pooling import check_session
from penstock.streams.sql_queue.postgres.refusals import PASSING, may_pass, refusals
from penstock.streams.sql_queue.schema import (
    ANY,
    NUMBERS,
    OWN,
    PRIORITY,
    Layout,
    Required,
    Upsert,
    quoted,
)
from penstock.streams.sql_queue.store import (
    DatabaseLost,
    Enqueued,
    PeriodicJob,
    Store,
    columns_of,
    payload_of,
)

__all__ = ["LONGEST_NAME", "Connection", "PostgresTable"]

_OLDEST = 150000
LONGEST_NAME = 63
# Seconds for the question who blocks a statement.
_ASKING = 2.0
_TIMES = ("run_at", "enqueued", "started", "finished", "expires")
_WITHOUT_ZONE = "timestamp without time zone"
_OF_TIMES = ("timestamp with time zone", _WITHOUT_ZONE)

Connection = AsyncConnection[tuple[Any, ...]]


class PostgresTable(Store):
    """Connects, looks at its table, inserts and waits; claims and settles in a subclass."""

    commits_in_order = False
    needs = (
        "A reader or writer needs SELECT, INSERT and UPDATE on {table!r}; with by= also on its "
        "table of keys, with DELETE. Whatever of these is missing is made, which needs CREATE."
    )
    """The rights that it needs."""

    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self._names = {
            **layout.names(),
            "now": "now()",
            "second": "interval '1 s'",
            "seconds": "date_part('epoch', ",
            "as_text": "::text",
            "wake": layout.next_to("_wake"),
            "key_function": layout.next_to("_key"),
            "id_type": "bigint",
            "spared": "",
            "only": "",
            "mirrored": "".join(
                f", {quoted(layout.column(time))} = n.{quoted(time)}" for time in layout.mirrored
            ),
            # A row that is claimed again stays in process.
            "moved": " OR b.started IS DISTINCT FROM n.started"
            if "started" in layout.mirrored
            else "",
        }
        self._names |= sql.order(self._names, ranked=False)
        self._spared = []
        self._channel = _channel(layout.table)
        self._names["channel"] = quoted(self._channel)
        self._names["channel_literal"] = Literal(self._channel).as_string(None)
        self._encoding = Encoding()
        self._name_payload("json")
        self._columns: dict[str, str] = {}
        # Columns of the user's table that have times of the session's zone, as points in time.
        self._times: dict[str, str] = {}
        # Whether there has ever been a connection: then it is worth trying again.
        self._known = False
        self._work: Connection | None = None
        self._listening: Connection | None = None
        self._lock = asyncio.Lock()
        self._statements: dict[tuple[str, str | None], str] = {}
        self._by: str | None = None
        self._position = Position()
        self._passed = Passed()
        self._ids_are_whole = False

    # The connection.

    async def open(self, required: Required = ANY) -> None:
        if not self._known:
            try:
                async with self._using():
                    self._known = True
            except DatabaseLost as error:
                raise CannotOpen(f"Cannot use {redacted(self.url)}: {error}") from error
        async with self._transaction(durable=True) as db:
            await self._look(db, required)
            if required.fields is not None and required.upsert is not None:
                await self._look_for_index(db, required.fields, required.upsert)

    async def _look(self, db: Connection, required: Required) -> None:
        where = redacted(self.url)
        if db.info.server_version < _OLDEST:
            raise CannotOpen(
                f"{where} is PostgreSQL {db.info.server_version // 10000}: 15 or newer is needed."
            )
        names = self._names
        columns = await self._types(db)
        if not columns:
            tables = [name for (name,) in await self._all(db, sql.TABLES)]
            self.layout.check_may_make(where, tables, required)
            for statement in sql.CREATE:
                await self._all(db, statement, {"table": names["table"]})
            columns = await self._types(db)
            self.near = self.layout.near(tables)
        else:
            self.layout.check(where, columns, required.fields)
        self._columns = columns
        self.columns = list(columns)
        brought = self.layout.context(columns, required.context)
        names["context"] = "".join(f", {self.layout.value(name)}::text" for name in brought)
        if required.fields is None:
            self._rank(needed=required.ranked)
            for name in NUMBERS:
                if name in OWN or not (self.layout.beside or name == PRIORITY):
                    self.layout.check_number(where, name, columns[self.layout.column(name)])
            self._check_types(where)
            names["id_type"] = columns[self.layout.column("id")]
            self._ids_are_whole = names["id_type"] in ("smallint", "integer", "bigint")
            names["in_range"] = sql.IN_RANGE.format_map(names) if self._ids_are_whole else ""
            if not self.layout.beside:
                self._times = {
                    time: f"{names[time]}::timestamptz"
                    for time in _TIMES
                    if columns[self.layout.column(time)] == _WITHOUT_ZONE
                }
            self._name_payload(columns[self.layout.column("payload")])
            self._statements.clear()
            if required.only is not None:
                field, values = required.only
                listed = ", ".join(Literal(value).as_string(None) for value in values)
                names["only"] = f" AND {self._field(field)} IN ({listed})"
                names["spared"] = names["only"]
            if self.layout.beside:
                await self._look_beside(db, required.make)

    async def _look_for_index(self, db: Connection, fields: Sequence[str], upsert: Upsert) -> None:
        try:
            # The server looks for the index itself, and for the rights.
            names = self.layout.names() | _filling(fields, upsert)
            await db.execute(_made(f"EXPLAIN {sql.UPSERT}", names), {"values": "[]"})
        except errors.InvalidColumnReference as error:
            raise CannotOpen(self.layout.no_index(redacted(self.url), upsert.key)) from error
        values = {"table": names["table"], "key": sorted(upsert.key)}
        for (name,) in await self._all(db, sql.DEFERRABLE, values):
            raise CannotOpen(
                f"Constraint {name!r} of table {self.layout.table!r} in {redacted(self.url)} is "
                "DEFERRABLE, which no row can be updated by: key= needs one that is not."
            )

    def _rank(self, *, needed: bool) -> None:
        self.is_ranked = self.layout.ranks(self._columns)
        if needed and not self.is_ranked:
            raise ColumnMissing(self.layout.no_priority(redacted(self.url)))
        if self.is_ranked:
            kind = self._columns[self.layout.column(PRIORITY)]
            self.layout.check_number(redacted(self.url), PRIORITY, kind)
        self._names |= sql.order(self._names, self.is_ranked)
        self._statements.clear()

    async def upgrade(self) -> bool:
        if self.layout.mapped:
            raise CannotOpen(self.layout.no_upgrade(redacted(self.url)))
        if self.is_ranked:
            return False
        async with self._transaction(durable=True) as db:
            for statement in sql.UPGRADE:
                await self._all(db, statement, {"table": self._names["table"]})
            self._columns = await self._types(db)
        self._rank(needed=True)
        return True

    def _check_types(self, where: str) -> None:
        """Raise CannotOpen if a column cannot hold what a queue writes there."""
        if self.layout.beside:
            return
        wanted = {"token": ("bigint", "numeric")} | dict.fromkeys(_TIMES, _OF_TIMES)
        for name, kinds in wanted.items():
            column = self.layout.column(name)
            if self._columns[column] not in kinds:
                raise CannotOpen(
                    f"Column {column!r} of table {self.layout.table!r} in {where} is of type "
                    f"{self._columns[column]}. A queue needs {kinds[0]} there."
                )

    async def _look_beside(self, db: Connection, make: bool) -> None:
        table = {"table": self._names["table"]}
        if not (await self._all(db, sql.HAS_TABLE, table))[0][0]:
            if not make:
                raise TableMissing(self.layout.no_table_beside(redacted(self.url)))
            for statement in sql.CREATE_BESIDE:
                await self._all(db, statement, table)

    def _name_payload(self, kind: str) -> None:
        payload = self.layout.value(self.layout.column("payload"))
        self._payload_type = self._names["payload_type"] = kind
        self._names["payload_of"] = payload if kind == "bytea" else f"{payload}::text"
        if self._encoding.is_ascii and kind != "bytea":
            # It may be any bytes.
            self._names["payload_of"] = f"convert_to({payload}::text, 'SQL_ASCII')"

    async def _types(self, db: Connection) -> dict[str, str]:
        own = self._names["own" if self.layout.beside else "table"]
        return dict(await self._all(db, sql.COLUMNS_OF, {"table": own}))

    async def _connected(self) -> Connection:
        if self._work is None or self._work.closed:
            self._work = None
            db = await self._connect()
            async with _closed_unless_good(db):
                await check_session(db, self._connect, redacted(self.url))
                await db.execute(_made(sql.SESSION, {}))
            self._encoding = Encoding(db.info.parameter_status("server_encoding"))
            self._work = db
        return self._work

    async def _connect(self) -> Connection:
        return await AsyncConnection.connect(conninfo(self.url), autocommit=True)

    @asynccontextmanager
    async def _using(self) -> AsyncGenerator[Connection, None]:
        """The connection, for statements that are a transaction each."""
        async with self._lock:
            try:
                yield await self._connected()
            except errors.InsufficientPrivilege as error:
                raise RightsMissing(
                    f"{redacted(self.url)}: {first_line(error)}. "
                    + self.needs.format(table=self.layout.table)
                ) from error
            except psycopg.Error as error:
                if may_pass(error):
                    raise DatabaseLost(first_line(error)) from error
                raise

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

    def _key(self, by: str) -> str:
        """The SQL of a row's key: a column, else a field of the payload."""
        if by in self._columns:
            value = self.layout.value(by)
            if self._columns[by] in SAME_TEXTS:
                return equal_key(short_key(f"{value}::text"))
            return equal_key(short_key(f"{self._names['key_function']}({value})"))
        if self._payload_type not in ("json", "jsonb"):
            raise CannotOpen(f"by={self._no_field(by)}")
        payload = self.layout.value(self.layout.column("payload"))
        field = Literal(by).as_string(None)
        if self._payload_type == "jsonb":
            return equal_key(short_key(f"({payload} ->> {field})"))
        return equal_key(key_in_json(payload, field, self._names["key_function"]))

    async def _all(
        self, db: Connection, text: str, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        cursor = await db.execute(self._text(text), self._encoding.values(values or {}))
        return await cursor.fetchall() if cursor.description else []

    async def _count(self, db: Connection, text: str, values: Mapping[str, Any]) -> int:
        return (await db.execute(self._text(text), self._encoding.values(values))).rowcount

    # What comes in.

    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        if fields is None:
            return payload_of(value)
        return encoded(dict(zip(fields, columns_of(value, fields), strict=True)))

    async def write(self, parts: Parts) -> None:
        async with self._transaction(durable=True) as db:
            for kind, values in parts.items():
                await kind.write(db, values)

    async def insert(
        self,
        db: Connection,
        fields: Mapping[str, str] | None,
        values: list[Any],
        upsert: Upsert | None = None,
    ) -> None:
        """Queues are also notified explicitly: a user's own table may lack the trigger."""
        if fields is None:
            await self._put(db, values)
            await self._all(db, sql.NOTIFY, {"channel": self._channel})
            return
        text = sql.INSERT if upsert is None else sql.UPSERT
        names = self.layout.names() | _filling(list(fields), upsert)
        await db.execute(_made(text, names), {"values": f"[{b','.join(values).decode()}]"})

    async def _put(
        self, db: Connection, values: Sequence[Enqueued], delay: float = 0.0
    ) -> list[Any]:
        """Enqueue rows; returns their ids. Those without a time are due in `delay` seconds."""
        run_ats = [value.run_at for value in values]
        parameters: dict[str, Any] = {
            "payloads": [self._encoding.json(value.payload) for value in values],
            "run_ats": run_ats,
            "priorities": [value.priority for value in values],
            "delay": delay,
        }
        text = sql.PUT_OWN if self.layout.beside else sql.PUT
        ids = [id for (id,) in await self._all(db, text, parameters)]
        if self.layout.beside and (delay or any(time is not None for time in run_ats)):
            late = [(i, t) for i, t in zip(ids, run_ats, strict=True) if delay or t is not None]
            times = {"ids": [id for id, _ in late], "run_ats": [time for _, time in late]}
            await self._all(db, sql.DELAY_OWN, {**times, "delay": delay})
        return ids

    def announce(self) -> None:
        """The database does."""

    async def put(
        self, payloads: Sequence[str | bytes], delay: float = 0.0, priority: int = 0
    ) -> list[Any]:
        texts = [text.decode() if isinstance(text, bytes) else text for text in payloads]
        async with self._transaction(durable=True) as db:
            values = [Enqueued(text, None, priority) for text in texts]
            ids = await self._put(db, values, delay)
            await self._all(db, sql.NOTIFY, {"channel": self._channel})
        return ids

    async def is_paused(self) -> bool:
        async with self._using() as db:
            found = await self._all(db, sql.HAS_TABLE, {"table": self._names["paused"]})
        return bool(found[0][0])

    async def pause(self, paused: bool) -> None:
        async with self._transaction(durable=True) as db:
            for statement in sql.PAUSE if paused else sql.RESUME:
                await self._all(db, statement, {"table": self._names["table"]})
            await self._all(db, sql.NOTIFY, {"channel": self._channel})

    async def now(self) -> float:
        async with self._using() as db:
            return float((await self._all(db, sql.TIME))[0][0])

    async def plan(self, name: str, schedule: str, first: float) -> None:
        values = {"name": name, "schedule": schedule, "first": first}
        async with self._transaction(durable=True) as db:
            for statement in sql.CREATE_PERIODIC:
                await self._all(db, statement, {"table": self._names["table"]})
            await self._all(db, sql.PLAN, values)

    async def planned(self) -> dict[str, PeriodicJob]:
        async with self._using() as db:
            if not (await self._all(db, sql.HAS_TABLE, {"table": self._names["periodic"]}))[0][0]:
                return {}
            found = await self._all(db, sql.PLANNED)
        return {row[0]: PeriodicJob(*row) for row in found}

    async def move(
        self, name: str, time: float, after: float, rows: list[Enqueued], missed: int = 0
    ) -> bool:
        last = rows[-1].run_at if rows else None
        values = {"name": name, "time": time, "after": after, "last": last, "missed": missed}
        async with self._transaction(durable=True) as db:
            if not await self._all(db, sql.MOVE, values):
                return False
            await self.insert(db, None, rows)
        return True

    async def changed(self, within: float) -> bool:
        listening = self._listening
        try:
            if listening is None or listening.closed:
                listening = await self._connect()
                async with _closed_unless_good(listening):
                    await self._all(listening, sql.LISTEN)
                self._listening = listening
                return True  # Something may have come before.
            async for _ in listening.notifies(timeout=within, stop_after=1):
                return True
            return False
        except PASSING as error:
            raise DatabaseLost(first_line(error)) from error

    def spare(self, id: Any, refused: Refused) -> None:
        super().spare(id, refused)
        ids = ", ".join(Literal(str(one)).as_string(None) for one in self._spared)
        self._names["spared"] = f"{self._names['only']} AND t.{self._names['id']} NOT IN ({ids})"
        self._statements.clear()

    async def blockers(self) -> str:
        work = self._work
        with suppress(psycopg.Error, TimeoutError):
            if work is not None:
                async with asyncio.timeout(_ASKING), await self._connect() as db:
                    found = await db.execute(sql.BLOCKERS, [work.info.backend_pid])
                    return " and ".join([str(who) for (who,) in await found.fetchall()])
        return ""

    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        with refusals():
            async with self._transaction(durable=True) as db:
                await self._all(db, sql.PLAN_FREELY)
                return await self._all(db, text, parameters)

    async def read(
        self, text: str, /, *, field: str | None = None, **parameters: Any
    ) -> list[tuple[Any, ...]]:
        names = {**self._names, **self._times}
        names["is_due"] = "({run_at} IS NULL OR {run_at} <= now() OR {run_at} <= {enqueued})"
        names["is_due"] = names["is_due"].format_map(names)
        if field is not None:
            names["field"] = self._field(field)
        made = _made(text, names)
        async with self._transaction() as db:
            await self._all(db, sql.PLAN_FREELY)
            return await (await db.execute(made, self._encoding.values(parameters))).fetchall()

    def _field(self, field: str) -> str:
        if field in self._columns:
            return f"{self.layout.value(field)}::text"
        if self._payload_type not in ("json", "jsonb"):
            raise CannotOpen(self._no_field(field))
        payload = self.layout.value(self.layout.column("payload"))
        name = Literal(field).as_string(None)
        if self._payload_type == "jsonb":
            return f"({payload} ->> {name})"
        return field_in_json(payload, name)

    def _no_field(self, field: str) -> str:
        return (
            f"{field!r}: table {self.layout.table!r} has no such column, and fields cannot be read "
            f"from a payload of type {self._payload_type}. Name a column, or let the payload be of "
            "type json."
        )


def _filling(columns: Sequence[str], upsert: Upsert | None) -> dict[str, str]:
    """The names for INSERT and UPSERT."""
    names = {"columns": ", ".join(map(quoted, columns))}
    if upsert is not None:
        names["values_of"] = ", ".join(f"r.{quoted(name)}" for name in columns)
        names["key"] = ", ".join(f"r.{quoted(name)}" for name in upsert.key)
        names["last_or_first"] = "DESC" if upsert.replaces else "ASC"
        names["on_conflict"] = upsert.clause(columns)
    return names


@asynccontextmanager
async def _closed_unless_good(db: Connection) -> AsyncGenerator[None, None]:
    try:
        yield
    except BaseException:
        await db.close()
        raise


def _made(text: str, names: Mapping[str, str]) -> Any:
    """A statement as psycopg takes it. A parameter is a word after one colon; two are a cast."""
    marked = re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", text.replace("%", "%%"))
    return marked.format_map({name: value.replace("%", "%%") for name, value in names.items()})


def _channel(table: str) -> str:
    """The channel of a table: its name, or a digest where that is too long for one."""
    name = f"penstock_{table}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"penstock_{sha256(table.encode()).hexdigest()[:32]}"
