"""What a store of queued rows does: one interface for every database.

A row is claimed under a lease with a token that is new with every claim. Whatever is said of the
row later has to show the token; when another claim has come in between, it changes nothing.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from streams.errors import PenstockError
from streams.keys import key_function
from streams.table.schema import DEAD, IN_PROCESS, Layout

__all__ = [
    "EXHAUSTED",
    "UNREADABLE",
    "Claim",
    "DatabaseLost",
    "Failure",
    "Insertion",
    "NotHeld",
    "Row",
    "Settlement",
    "Store",
    "Tenure",
    "Terms",
    "columns_of",
    "lost_rows",
    "new_token",
    "sorted_out",
    "were_settled",
]

EXHAUSTED = "LeaseLost: the lease ran out in the last of its attempts; its reader crashed or hung"


class DatabaseLost(PenstockError):
    """The database cannot be reached, or refuses to work, at the moment: try again."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a reader claims: who it is, for how many seconds, and how often a row is tried.

    `by` is the column, or the field of the payload, whose values are keys: rows of a key are
    claimed by one reader at a time.
    """

    owner: str
    lease: float = 30.0
    attempts: int = 5
    by: str | None = None

    @property
    def suspect(self) -> int:
        """How many attempts a row has had that is claimed alone when its lease runs out.

        -1 where rows have one attempt only.
        """
        return self.attempts - 1 if self.attempts > 1 else -1


@dataclass(slots=True, eq=False)
class Tenure:
    """The time for which it is certain that rows are still their reader's.

    It lasts `until` a time of the reader's own clock, and as long as renewals come before that it
    goes on. Once it is over it stays so, whatever a late renewal finds: among the rows that were
    claimed in it some may have been worked on elsewhere, and those behind them must not overtake.
    """

    until: float


class Row:
    """A claimed row. `age` is the seconds since it was enqueued, `results` what came of it.

    `payload` is None only in a table of a user's that lets it be null.

    `begun` tells that user code was called with it, `ended` that what becomes of it is known, if
    not written down yet.

    `epoch` is that of the lease of its key, larger for every reader that the key is given to.
    `tenure` is what its reader holds it by.
    """

    __slots__ = (
        "age",
        "attempts",
        "begun",
        "ended",
        "epoch",
        "id",
        "key",
        "payload",
        "results",
        "tenure",
        "token",
    )

    tenure: Tenure

    def __init__(
        self,
        id: Any,
        token: int,
        attempts: int,
        payload: str | bytes | None,
        age: float = 0.0,
        key: str | None = None,
        epoch: int | None = None,
    ) -> None:
        self.id = id
        self.token = token
        self.attempts = attempts
        self.payload = payload
        self.age = age
        self.key = key
        self.epoch = epoch
        self.begun = self.ended = False
        self.results: list[Any] | None = None

    def __str__(self) -> str:
        return f"row {self.id}"

    __repr__ = __str__


@dataclass(slots=True)
class Claim:
    """What a claim brought: rows in the order of their ids.

    `buried` are the ids of rows whose lease ran out after their last attempt: they have failed
    for good.
    """

    rows: list[Row] = field(default_factory=list[Row])
    buried: list[Any] = field(default_factory=list[Any])


@dataclass(slots=True)
class Failure:
    """A row that failed, and why. Without a `delay` (seconds) it has failed for good.

    With one it is tried again after it, unless its attempts are used up.
    """

    row: Row
    error: str
    delay: float | None = None


@dataclass(slots=True)
class Insertion:
    """Values for a table, each as `encoded` made it: payloads for a queue, or some columns.

    `fields` maps those columns to the fields of the values that go there.
    """

    layout: Layout
    fields: Mapping[str, str] | None
    values: list[Any] = field(default_factory=list[Any])


@dataclass(slots=True)
class Settlement:
    """What became of rows, to be written down in one transaction, with what came of them.

    `idle_keys` are the keys and epochs whose rows are all settled with it: others may have them.
    `abandoned` rows were being worked on when their lease ran out, and are left as a reader leaves
    those that it dies of; later rows of their keys are returned.
    """

    finished: list[Row] = field(default_factory=list[Row])
    failed: list[Failure] = field(default_factory=list[Failure])
    returned: list[Row] = field(default_factory=list[Row])
    inserts: list[Insertion] = field(default_factory=list[Insertion])
    idle_keys: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])
    abandoned: list[Row] = field(default_factory=list[Row])

    @property
    def only_finished(self) -> bool:
        """Whether there is nothing in it but rows that are finished."""
        others = self.failed or self.returned or self.abandoned or self.inserts or self.idle_keys
        return not others

    def rows(self) -> list[Row]:
        """All rows that are settled."""
        failed = (failure.row for failure in self.failed)
        return [*self.finished, *self.returned, *self.abandoned, *failed]


class Store(ABC):
    """A queue in a database. One connection, opened when it is first needed.

    Every method but `close` raises DatabaseLost when the database cannot be reached for the
    moment; it may be called again then, and connects anew.
    """

    url: str
    layout: Layout

    @abstractmethod
    async def open(self, fields: Sequence[str] | None = None, *, make: bool = True) -> None:
        """Connect and look at the table; make it, if it is ours and missing (and `make`).

        With `fields` it is not a queue but a table that must have those columns. Raises CannotOpen
        where there is no database or it lets nobody in, TableMissing, ColumnMissing.
        """

    @abstractmethod
    async def claim(self, count: int, terms: Terms, *, reclaim: bool = True) -> Claim:
        """Claim up to `count` rows that are due, oldest first, in one statement.

        With `reclaim` it is for all of them, and those whose lease has run out are among them.
        Without, it may begin behind the rows that the last claim took.
        """

    @abstractmethod
    async def has_suspects(self, terms: Terms) -> bool:
        """Whether there is a row for `claim_suspect`."""

    @abstractmethod
    async def claim_suspect(self, terms: Terms) -> Claim:
        """Claim a row whose lease has run out, and which may have no attempt but the last.

        `claim` leaves such rows alone: what is claimed beside them may crash with them. So does
        what crashed beside them, perhaps: none has failed for good before it was claimed like this.
        """

    @abstractmethod
    async def settle(self, settlement: Settlement, terms: Terms) -> list[Row]:
        """Write down what became of rows, all of it or nothing.

        Returns the rows whose lease was lost; if there are any, nothing was written. A settlement
        that was written before, by a call whose answer was lost, is not written again.
        """

    @abstractmethod
    async def renew(self, rows: Sequence[Row], terms: Terms) -> list[Row]:
        """Let the leases of `rows` begin anew; returns those that are lost."""

    @abstractmethod
    def encoded(self, fields: Mapping[str, str] | None, value: Any) -> Any:
        """`value` as an insertion takes it. Raises TypeError if the database cannot hold it."""

    @abstractmethod
    async def insert(self, insertions: Sequence[Insertion]) -> None:
        """Insert values in one transaction, for good."""

    @abstractmethod
    async def put(self, payloads: Sequence[str | bytes], delay: float = 0.0) -> list[Any]:
        """Enqueue payloads (JSON), due in `delay` seconds; returns their ids."""

    @abstractmethod
    async def changed(self, within: float) -> None:
        """Wait until something may have been enqueued, at most `within` seconds."""

    @abstractmethod
    async def query(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement of any kind in a transaction of its own and return its rows.

        `{table}`, `{id}`, `{status}` ... stand for the quoted names, `{now}` for the database's
        time, `{seconds}` opens a conversion of a time, or a difference of two, into seconds (close
        it with `)`), `{payload_of}` for the payload as text or bytes where the table is called `t`,
        and `:name` for parameters. Braces otherwise are doubled.
        """

    @abstractmethod
    async def read(self, text: str, /, **parameters: Any) -> list[tuple[Any, ...]]:
        """As `query`, for a statement that only reads: it waits for nobody, and nobody for it."""

    @abstractmethod
    async def close(self) -> None:
        """Let the connection go."""


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
        raise TypeError(f"columns take fields, and a {type(value).__name__} has none of them")
    return [read.get(name) for name in fields.values()]


def new_token(*, alone: bool = False) -> int:
    """A number that no other claim has; below 0 for a row that is claimed alone."""
    token = 1 + secrets.randbits(62)
    return -token if alone else token


def lost_rows(rows: Iterable[Row], states: Mapping[Any, tuple[Any, int]]) -> list[Row]:
    """The rows that another claim has taken, or that are gone.

    `states` has the token and status of each row that is there.
    """
    return [row for row in rows if states.get(row.id, (None, 0))[0] != row.token]


def were_settled(rows: Iterable[Row], states: Mapping[Any, tuple[Any, int]]) -> bool:
    """Whether a settlement, of which not all could be done, had been written down before.

    It is written all at once, so one row tells of all.
    """
    return any(
        row.id in states and states[row.id][0] == row.token and states[row.id][1] != IN_PROCESS
        for row in rows
    )


UNREADABLE = "\x01unreadable"
"""The key of rows whose key the database cannot read."""


class NotHeld(Exception):
    """Some row of a settlement is not held any more: nothing is to be written."""


def sorted_out(
    rows: Iterable[tuple[Any, ...]], token: int, epochs: Mapping[str, int] | None = None
) -> Claim:
    """A claim from what its statement returned, which comes in no order.

    Rows are (id, status, attempts, payload, age, key); in a table of a user's the age may be null.
    """
    found = Claim()
    for id, status, attempts, payload, age, key in sorted(rows, key=lambda row: row[0]):
        if status == DEAD:
            found.buried.append(id)
        else:
            epoch = None if epochs is None else epochs[key]
            found.rows.append(Row(id, token, attempts, payload, float(age or 0.0), key, epoch))
    return found
