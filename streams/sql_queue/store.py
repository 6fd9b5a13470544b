"""The interface of a queue store, the same for every database.

A row is claimed under a lease with a token that is new with every claim. Every later statement
about the row has to present the token; after another claim it changes nothing.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, cast

from penstock.streams.base.errors import PenstockError, describe
from penstock.streams.base.keys import key_function
from penstock.streams.delivery.commit import Kind, Part, Parts
from penstock.streams.delivery.lease import Lease
from penstock.streams.io.encoding import encoded
from penstock.streams.sql_queue.schema import DEAD, IN_PROCESS, Layout, Upsert

__all__ = [
    "CANCELLED",
    "EXHAUSTED",
    "MOST_REFUSED",
    "UNREADABLE",
    "Claim",
    "ClaimTerms",
    "DatabaseLost",
    "Enqueued",
    "Failure",
    "Insertion",
    "NotHeld",
    "PeriodicJob",
    "Refused",
    "Row",
    "Settlement",
    "Store",
    "columns_of",
    "lost_rows",
    "new_token",
    "payload_of",
    "sorted_out",
    "were_settled",
]

MOST_REFUSED = 100
"""If the database refuses what becomes of so many rows and of none in between does not, the cause
is hardly one of single rows, and the run ends."""

CANCELLED = "Cancelled: by 'penstock queue cancel'"
"""The error of a row that was cancelled."""

EXHAUSTED = (
    "LeaseLost: a reader crashed or hung, and its lease ran out, in the last attempt of row "
)
"""The error of a row whose attempts are used up, before its id."""


class DatabaseLost(PenstockError):
    """The database is unavailable at the moment: try again."""


class Refused(PenstockError):
    """A constraint, or a trigger, refuses what a statement does with rows: `error` says why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {str(error).strip()}")
        self.error = error


@dataclass(frozen=True, slots=True)
class ClaimTerms:
    """The terms of a reader's claims: its name, the seconds of a lease, and the attempts of a row.

    `by` is the column, or the field of the payload, whose values are keys: rows of a key are
    claimed by one reader at a time.
    """

    owner: str
    lease: float = 30.0
    attempts: int = 5
    by: str | None = None

    @property
    def suspect(self) -> int:
        """After how many attempts a row with an expired lease is claimed alone, from then on.

        -1 where rows have one attempt only.
        """
        return self.attempts - 1 if self.attempts > 1 else -1

    @property
    def alone(self) -> str:
        """The owner of a key that has only a suspect claimed, and may have nothing else claimed."""
        return f"{self.owner} alone"

    @property
    def left(self) -> str:
        """The owner of a key whose rows are left in the table, although this reader has it."""
        return f"{self.owner} left"


class Row:
    """A claimed row. `age` is the seconds since it was enqueued, `came` when that was in seconds
    since 1970, and `created` in the loop's time; `parts` were made of it.

    `payload` is None only in a user's own table that allows null. `priority` is 0 in a table
    without priorities; with keys it is the lowest of the row and the later ones of its key that
    were claimed with it.

    `begun` is true when user code was called with it, `ended` when its outcome is known, although
    perhaps not recorded yet, `recorded` when the transaction of a store has recorded it, `dead`
    when it has failed for good.

    `epoch` is its key's lease's, which grows with every reader that gets the key. `lease` is shared
    by all rows of its reader. `headers` are the context of a trace, set only where columns bring
    one.
    """

    __slots__ = (
        "age",
        "attempts",
        "begun",
        "came",
        "created",
        "dead",
        "ended",
        "epoch",
        "headers",
        "id",
        "key",
        "lease",
        "parts",
        "payload",
        "priority",
        "recorded",
        "token",
    )

    created: float
    headers: dict[str, str]
    lease: Lease

    def __init__(
        self,
        id: Any,
        token: int,
        attempts: int,
        payload: str | bytes | None,
        age: float = 0.0,
        key: str | None = None,
        epoch: int | None = None,
        came: float = 0.0,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.token = token
        self.attempts = attempts
        self.payload = payload
        self.age = age
        self.came = came
        self.priority = priority
        self.key = key
        self.epoch = epoch
        self.begun = self.ended = self.recorded = self.dead = False
        self.parts: list[Part[Row]] | None = None

    def add(self, part: Part[Row]) -> None:
        """A part was made of the row, perhaps among others."""
        if self.parts is None:
            self.parts = []
        self.parts.append(part)

    def __str__(self) -> str:
        return f"row {self.id}"

    __repr__ = __str__


@dataclass(slots=True)
class Claim:
    """The result of a claim: rows in the order of their priorities and ids.

    `buried` are the ids of rows whose lease ran out after their last attempt: they have failed
    for good. So have those that the database `refused` to let anybody claim, for an error each,
    unless it refuses that too: then they are left alone.
    """

    rows: list[Row] = field(default_factory=list[Row])
    buried: list[Any] = field(default_factory=list[Any])
    refused: list[tuple[Any, Refused]] = field(default_factory=list[tuple[Any, Refused]])


@dataclass(slots=True)
class Failure:
    """A failed row and its error. Without a `delay` (seconds) it has failed for good.

    With one it is tried again after the delay, unless its attempts are used up; one that is
    `snoozed` has not failed, and the attempt does not count. `held_back`: the later rows of its key
    that were claimed with it are given back.
    """

    row: Row
    error: str
    delay: float | None = None
    held_back: bool = False
    snoozed: bool = False

    @property
    def parks(self) -> bool:
        """Whether later rows of its key are given back, unless it has failed for good."""
        return self.held_back or self.delay is not None


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


@dataclass(slots=True)
class Settlement:
    """The outcomes of rows, to be written in one transaction together with their `parts`, such as
    results. Rows that were `dropped` on purpose are marked as those that finished.

    `idle_keys` are the keys and epochs whose last rows it settles: other readers may have them.
    `abandoned` rows were being processed when their lease ran out, and are left as a crashed reader
    would leave them; later rows of their keys are returned.
    """

    finished: list[Row] = field(default_factory=list[Row])
    failed: list[Failure] = field(default_factory=list[Failure])
    returned: list[Row] = field(default_factory=list[Row])
    parts: Parts = field(default_factory=dict[Kind, list[Any]])
    idle_keys: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])
    abandoned: list[Row] = field(default_factory=list[Row])
    dropped: list[Row] = field(default_factory=list[Row])

    def __len__(self) -> int:
        return len(self.rows())

    @property
    def processed(self) -> list[Row]:
        """The rows that are marked as finished."""
        return [*self.finished, *self.dropped]

    @property
    def only_processed(self) -> bool:
        """Whether it contains no other rows, and nothing else."""
        others = self.failed or self.returned or self.abandoned or self.parts or self.idle_keys
        return not others

    def rows(self) -> list[Row]:
        """All rows that are settled."""
        failed = (failure.row for failure in self.failed)
        return [*self.processed, *self.returned, *self.abandoned, *failed]

    @property
    def held_back(self) -> set[str]:
        """The keys of rows that are to be tried again before any later ones."""
        failed = (failure.row for failure in self.failed if failure.parks)
        return {row.key for row in (*failed, *self.abandoned) if row.key is not None}

    def halves(self) -> tuple[Settlement, Settlement]:
        """The outcomes of its rows in two; what finished comes before what holds a key back."""
        rows = self.rows()
        middle = len(rows) // 2
        return self.without(set(rows[middle:])), self.without(set(rows[:middle]))

    def cut(self, most: int) -> Settlement:
        """Keep the first `most` of those that finished; returns the others."""
        rest = Settlement(self.finished[most:])
        del self.finished[most:]
        return rest

    def without(self, rows: Collection[Row]) -> Settlement:
        """The outcomes of the other rows alone."""
        return Settlement(
            [row for row in self.finished if row not in rows],
            [failure for failure in self.failed if failure.row not in rows],
            [row for row in self.returned if row not in rows],
            abandoned=[row for row in self.abandoned if row not in rows],
            dropped=[row for row in self.dropped if row not in rows],
        )


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
    async def open(
        self,
        fields: Sequence[str] | None = None,
        *,
        upsert: Upsert | None = None,
        make: bool = True,
        there: bool = False,
        context: str | None = None,
        ranked: bool = False,
        only: tuple[str, Sequence[str]] | None = None,
    ) -> None:
        """Connect and look at the table; make it, if it is ours and missing (and `make`).

        `there`: the table, and the database, must exist; what belongs to it is still made. With
        `fields` it is not a queue but a table that must have those columns, and with `upsert` a
        unique index on its key. `context` names the column with the context of a trace, which
        claimed rows get if there is such a column. `ranked`: rows must have priorities. `only`
        is a column, or a field of the payload, and its values in the rows that are claimed.
        Raises CannotOpen if there is no database, it refuses the connection or there is no such
        index, TableMissing and ColumnMissing.
        """

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


def new_token(*, alone: bool = False) -> int:
    """A token that no other claim has; below 0 for a row that is claimed alone."""
    token = 1 + secrets.randbits(62)
    return -token if alone else token


def lost_rows(rows: Iterable[Row], states: Mapping[Any, tuple[Any, int]]) -> list[Row]:
    """The rows that another claim has taken, or that are gone.

    `states` has the token and status of each existing row.
    """
    return [row for row in rows if states.get(row.id, (None, 0))[0] != row.token]


def were_settled(rows: Iterable[Row], states: Mapping[Any, tuple[Any, int]]) -> bool:
    """Whether a settlement that could not be applied in full had been recorded before.

    It is written all at once, so one row decides for all.
    """
    return any(
        row.id in states and states[row.id][0] == row.token and states[row.id][1] != IN_PROCESS
        for row in rows
    )


UNREADABLE = "\x01unreadable"
"""The key of rows whose key the database cannot read."""


class NotHeld(Exception):
    """A row of a settlement is no longer held: nothing is to be written."""


# How many columns of a claimed row come before `Layout.context`.
_COLUMNS = 8


def sorted_out(
    rows: Iterable[tuple[Any, ...]],
    token: int,
    epochs: Mapping[str, int] | None = None,
    now: float = 0.0,
) -> Claim:
    """A claim from the rows that its statement returned, in any order.

    Rows are (id, status, attempts, payload, age, came, key, priority) and the columns of
    `Layout.context`, if there are any. In a user's own table the age and when the row came may be
    null. With `now` in seconds since 1970 the age is counted from when the row came.
    """
    found = Claim()
    ordered = in_order(rows)
    contexts: dict[Any, tuple[Any, ...]] = {}
    if ordered and len(ordered[0]) > _COLUMNS:
        contexts = {row[0]: row[_COLUMNS:] for row in ordered}
        ordered = [row[:_COLUMNS] for row in ordered]
    for id, status, attempts, payload, age, came, key, priority in ordered:
        if status == DEAD:
            found.buried.append(id)
        else:
            epoch = None if epochs is None else epochs[key]
            if now and came:
                age = now - came
            age = float(age or 0.0)
            row = Row(id, token, attempts, payload, age, key, epoch, came or 0.0, priority)
            found.rows.append(row)
    if epochs is not None:
        _inherit(found.rows)
    found.rows.sort(key=attrgetter("priority"))
    if contexts:
        for row in found.rows:
            row.headers = _headers(contexts[row.id])
    return found


def _inherit(rows: list[Row]) -> None:
    """Give each of these rows, which are in the order of ids, the lowest priority of it and the
    later ones of its key: none overtakes an earlier one."""
    lowest: dict[str | None, int] = {}
    for row in reversed(rows):
        row.priority = lowest[row.key] = min(row.priority, lowest.get(row.key, row.priority))


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows by their ids; a column of SQLite may have numbers, texts and bytes, in this order."""
    found = list(rows)
    try:
        return sorted(found, key=lambda row: row[0])
    except TypeError:
        return sorted(found, key=lambda row: (_KINDS.get(type(row[0]), 0), row[0]))


_KINDS: dict[Any, int] = {str: 1, bytes: 2}


def _headers(context: Sequence[str | bytes | None]) -> dict[str, str]:
    """Columns with the context of a trace as the headers of W3C Trace Context."""
    return {
        name: value if isinstance(value, str) else value.decode("utf-8", "replace")
        for name, value in zip(("traceparent", "tracestate"), context, strict=False)
        if value is not None
    }
