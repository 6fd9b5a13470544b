"""Claimed rows, and what becomes of them, the same for every database.

A row is claimed under a lease with a token that is new with every claim. Every later statement
about the row has to present the token; after another claim it changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from penstock.streams.base.errors import PenstockError
from penstock.streams.delivery.commit import Kind, Part, Parts
from penstock.streams.delivery.lease import Lease
from penstock.streams.sql_queue.schema import DEAD, IN_PROCESS

__all__ = [
    "CANCELLED",
    "EXHAUSTED",
    "UNREADABLE",
    "Claim",
    "ClaimTerms",
    "Failure",
    "NotHeld",
    "Refusals",
    "Refused",
    "Row",
    "Settlement",
    "apart",
    "in_order",
    "lost_rows",
    "new_token",
    "sorted_out",
    "were_settled",
]

CANCELLED = "Cancelled: by 'penstock queue cancel'"
"""The error of a row that was cancelled."""

EXHAUSTED = (
    "LeaseLost: a reader crashed or hung, and its lease ran out, in the last attempt of row "
)
"""The error of a row whose attempts are used up, before its id."""


class Refused(PenstockError):
    """A constraint, or a trigger, refuses what a statement does with rows: `error` says why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {str(error).strip()}")
        self.error = error


Refusals = list[tuple[Any, Refused]]
"""The ids of rows, each with why the database refuses to change it."""


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
    refused: Refusals = field(default_factory=list[tuple[Any, Refused]])


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


async def apart(
    refusals: Callable[[], AbstractContextManager[None]],
    claim: Callable[[Refusals | None], Awaitable[Claim]],
) -> Claim:
    """A claim; if the database refuses it, by the `refusals` of that database, without the rows for
    which it does so."""
    try:
        with refusals():
            return await claim(None)
    except Refused:
        refused: Refusals = []
        found = await claim(refused)
        found.refused = refused
        return found


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
