"""The interface of a queue store, the same for every database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.base.keys import key_function
from penstock.streams.delivery.commit import Parts
from penstock.streams.io.encoding import encoded
from penstock.streams.sql_queue.claimed import Claim, ClaimTerms, Refused, Row, Settlement
from penstock.streams.sql_queue.schema import ANY, Layout, Required, Upsert

__all__ = [
    "MOST_REFUSED",
    "DatabaseLost",
    "Enqueued",
    "Insertion",
    "PeriodicJob",
    "Store",
    "columns_of",
    "payload_of",
]

MOST_REFUSED = 100
"""If the database refuses what becomes of so many rows and of none in between does not, the cause
is hardly one of single rows, and the run ends."""


class DatabaseLost(PenstockError):
    """The database is unavailable at the moment: try again."""


class Enqueued(NamedTuple):
    """A new row of a queue: its payload (JSON), the seconds since 1970 at which it is due (now if
    None), and its priority."""

    payload: str
    run_at: float | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A periodic job as the database has it: its name and schedule, the `next` of its times and the
    `last` for which a row was enqueued (None before the first), in seconds since 1970, and how many
    of its times were `missed`: no reader was running until a minute later."""

    name: str
    schedule: str
    next: float
    last: float | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Insertion:
    """The kind of the values that a store inserts: `Enqueued` rows for a queue, or some columns,
    as its `encoded` made them.

    `fields` maps those columns to the fields of the values that go there. The transaction may
    belong to another store of the same database. With `upsert` the rows that are there are known by
    their keys.
    """

    store: Store
    fields: Mapping[str, str] | None
    upsert: Upsert | None = None

    def write(self, transaction: Any, values: list[Any], /) -> Any:
        return self.store.insert(transaction, self.fields, values, self.upsert)


class Store(ABC):
    """A queue in a database. One connection, opened when it is first needed.

    Every method but `close` raises DatabaseLost when the database is unavailable at the moment; it
    may be called again, and then reconnects.
    """

    url: str
    layout: Layout
    near: Sequence[str] = ()
    """Tables whose names are near to that of the one that `open` has made."""
    columns: Sequence[str] = ()
    """The columns of the table, once the store is open."""
    commits_in_order = True
    """Whether one transaction writes at a time, so that ids are committed in their order."""
    is_ranked = False
    """Whether rows have priorities, once the store is open."""
    _spared: list[Any]

    @abstractmethod
    async def open(self, required: Required = ANY) -> None:
        """Connect and look at the table; make it, if it is ours and missing. Raises CannotOpen if
        there is no database, it refuses the connection or there is no such index, TableMissing and
        ColumnMissing."""

    @abstractmethod
    async def claim(
        self, count: int, terms: ClaimTerms, *, reclaim: bool = True, left: Collection[str] = ()
    ) -> Claim:
        """Claim up to `count` rows that are due, in one statement: those with the lowest
        priorities, and of these the oldest. With keys, those of a key in the order of their ids.

        With keys, none of those that are `left`: they remain this reader's while it holds rows of
        them.

        With `reclaim` it covers all of them, including those whose lease has run out. Without it,
        it may begin after the rows that the last claim took.
        """

    @abstractmethod
    async def has_suspects(self, terms: ClaimTerms) -> bool:
        """Whether there is a row for `claim_suspect`."""

    @abstractmethod
    async def claim_suspect(self, terms: ClaimTerms) -> Claim:
        """Claim a row whose lease has run out, and which had one attempt left or none.

        `claim` leaves such rows alone, because rows claimed with them may crash with them. A row
        may also be a suspect only because it was claimed beside the culprit, and a lease may run
        out for another reason: one fails for good when as many leases in a row have run out in
        which it was alone as it has attempts.

        With keys, it may be of a key whose suspect this reader has claimed before.
        """

    @abstractmethod
    async def settle(self, settlement: Settlement, terms: ClaimTerms) -> list[Row]:
        """Record the outcomes of rows, all or none; of rows that have only finished perhaps some.

        Returns the rows whose lease was lost; if there are any, the others are to be settled again.
        Raises Refused if the database refuses an outcome; if it refuses a part, its own error.
        A settlement that was written before, by a call whose answer was lost, is not written again.
        """

    @abstractmethod
    def record(self, db: Any, settlement: Settlement, terms: ClaimTerms) -> Any:
        """Record outcomes within a transaction, which may be that of another connection: see
        `Insertion`. Raises NotHeld if a lease was lost, and Refused."""

    @abstractmethod
    async def states(self, ids: Sequence[Any]) -> dict[Any, tuple[Any, int]]:
        """The token and the status of each row that exists, by its id."""

    @abstractmethod
    async def cancelled(self, ids: Sequence[Any]) -> set[Any]:
        """Those of the rows in work with these ids that were cancelled."""

    @abstractmethod
    async def release(self, keys: Sequence[tuple[str, int | None]]) -> None:
        """Leave keys, each with its epoch, to other readers: no row of them is in work here."""

    @abstractmethod
    async def renew(self, rows: Sequence[Row], terms: ClaimTerms) -> list[Row]:
        """Renew the leases of `rows`; returns those that are lost. May raise Refused."""

    def spare(self, id: Any, refused: Refused) -> None:
        """Leave a row alone from now on, because the database refuses every change of it.

        Raises `refused` if there are too many: then the cause is hardly one of single rows.
        """
        if len(self._spared) == MOST_REFUSED:
            raise refused
        self._spared.append(id)

    @abstractmethod
    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        """The payload, or the columns, of `value`. Raises TypeError if the database cannot hold
        it."""

    @abstractmethod
    async def write(self, parts: Parts) -> None:
        """Write values in one durable transaction."""

    @abstractmethod
    def insert(
        self,
        db: Any,
        fields: Mapping[str, str] | None,
        values: list[Any],
        upsert: Upsert | None = None,
    ) -> Any:
        """Insert values within a transaction: see `Insertion`."""

    @abstractmethod
    def announce(self) -> None:
        """Wake readers in this process, if nothing else does: another connection has inserted
        rows."""

    @abstractmethod
    async def put(
        self, payloads: Sequence[str | bytes], delay: float = 0.0, priority: int = 0
    ) -> list[Any]:
        """Enqueue payloads (JSON), due in `delay` seconds; returns their ids."""

    @abstractmethod
    async def upgrade(self) -> bool:
        """Add the columns and indexes that an older version has not made; whether any was missing.

        `open` comes first. Raises CannotOpen for a user's own table.
        """

    @abstractmethod
    async def is_paused(self) -> bool:
        """Whether readers claim nothing for now."""

    @abstractmethod
    async def pause(self, paused: bool) -> None:
        """Let no reader claim anything, until this is undone."""

    @abstractmethod
    async def now(self) -> float:
        """The time of the database, in seconds since 1970."""

    @abstractmethod
    async def plan(self, name: str, schedule: str, first: float) -> None:
        """Note a periodic job whose next time is the `first`, unless it has this `schedule`
        already."""

    @abstractmethod
    async def planned(self) -> dict[str, PeriodicJob]:
        """The periodic jobs by their names, also those that nobody runs any more."""

    @abstractmethod
    async def move(
        self, name: str, time: float, after: float, rows: list[Enqueued], missed: int = 0
    ) -> bool:
        """Let the next time of a periodic job be the one `after`, with so many more `missed`, and
        enqueue rows, in one transaction; False if it was not `time` any more, and nothing was
        done."""

    @abstractmethod
    async def changed(self, within: float) -> bool:
        """Wait until something may have been enqueued, at most `within` seconds; whether that is
        so."""

    @abstractmethod
    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement of any kind in a separate transaction and return its rows.

        `{table}`, `{id}`, `{status}`, ... are replaced by the quoted names, `{rows}` by what has
        all rows and is to be given a name (`{rows} AS t`; it may be two tables), `{now}` for the
        database's time, `{seconds}` opens a conversion of a time, or a difference of two, into
        seconds (close it with `)`), `{as_text}` after a value makes it a text that the database
        takes for the value again, if the value itself is not;
        `{payload_of}` for the payload as text or bytes where the table
        is called `t`, `{spared}` for a further condition of rows that may be changed, `{is_due}`
        for that of rows that need not wait (in `read`), `{waits}` for that of waiting rows and
        `{by_index}` for the order in which these are claimed, where the table is called `t`, and
        `:name` for parameters. Braces otherwise are doubled. Raises Refused.
        """

    @abstractmethod
    async def read(
        self, text: str, /, *, field: str | None = None, **parameters: Any
    ) -> list[tuple[Any, ...]]:
        """As `query`, for a statement that only reads: it neither waits for others nor blocks
        them.

        `{field}` is replaced by an expression for `field`, which is a column, or else a field of
        the payload, where the table is called `t`. Its value is text or bytes, null for a row
        without it.
        """

    @abstractmethod
    async def blockers(self) -> str:
        """Whom a call that is under way waits for, as far as the database says so within two
        seconds; else an empty text."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


def payload_of(value: Any) -> str:
    """A value as a row of a queue takes it, and as `read_table` can read it again.

    Raises TypeError for what is not an object of JSON.
    """
    payload = encoded(value)
    if not payload.startswith(b"{"):
        raise TypeError(
            f"a row of a queue takes JSON objects, such as those of dicts and records, and "
            f"{describe(value)} is not one: make it a field of one"
        )
    return payload.decode()


def columns_of(value: Any, fields: Mapping[str, str]) -> list[Any]:
    """The fields of a value that go into columns; one that is missing is null."""
    if isinstance(value, Mapping):
        found = cast(Mapping[str, Any], value)
        return [found.get(name) for name in fields.values()]
    read: dict[str, Any] = {}
    for name in fields.values():
        with suppress(LookupError, TypeError, AttributeError):
            read[name] = key_function(name)(value)
    if not read:
        raise TypeError(f"columns take fields, and a {type(value).__name__} has none")
    return [read.get(name) for name in fields.values()]
