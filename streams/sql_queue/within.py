"""How rows end whose events are done in the commits of a store: in these, or after them.

If the store is in the database of the rows, their ends are in its transactions. A lease that was
lost undoes the transaction, and it is tried again without the row. If the store is elsewhere, it
remembers the rows that are done, until their ends are recorded in the table: after a crash between
the two such a row is claimed once more, and is not done again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple

from orjson import dumps, loads

from penstock.streams.base.errors import BuildError
from penstock.streams.delivery.commit import Part
from penstock.streams.delivery.marks import MarksOfRun, Participant
from penstock.streams.protocol.event import DROPPED, FINISHED, Ending, Event
from penstock.streams.sql_queue.claimed import ClaimTerms, Failure, NotHeld, Row, Settlement
from penstock.streams.sql_queue.ledger import Ledger, text_of
from penstock.streams.sql_queue.reconnect import Reconnecting
from penstock.streams.sql_queue.schema import IN_PROCESS, UNPROCESSED
from penstock.streams.sql_queue.store import Store

__all__ = ["Ends", "ends_in"]


class Remembered(NamedTuple):
    """A row that is done, by its id, if that is a number; `error` if it has failed for good."""

    id: int | None
    error: str | None


class Ends(Participant):
    """How rows of a reader end whose events a store commits."""

    lends = True

    def done(self, row: Row) -> Remembered | None:
        """What is known of a row that was claimed and is done already; None if it is not."""
        return None

    def begins(self, row: Row) -> bool:
        """Whether a row that was claimed is to be emitted; otherwise it is given back."""
        return True

    def recorded(self, settlement: Settlement) -> None:
        """The outcomes are recorded in the table."""


async def ends_in(
    stores: Sequence[MarksOfRun],
    reader: str,
    place: str,
    database: tuple[Any, ...],
    ledger: Ledger,
    store: Store,
    terms: ClaimTerms,
    insist: Reconnecting,
) -> tuple[MarksOfRun, Ends] | None:
    """How rows end that are done in one of the `stores` of a run, and which; None without any.

    Raises BuildError if there are several, and CannotOpen if another stage reads the same table and
    the store is elsewhere.
    """
    if not stores:
        return None
    if len(stores) > 1:
        raise BuildError(
            f"{reader} is in a pipeline with {len(stores)} stores: after a crash only one of them "
            "would know which of its rows are done. Give all stages the same store"
        )
    if stores[0].database == database:
        return stores[0], _Within(ledger, store, terms)
    ends = _Elsewhere(stores[0], place, ledger, store)
    await insist(ends.open)
    return stores[0], ends


class _Within(Ends):
    """Rows that end in transactions of a store in the same database; the kind of these ends.

    They are `recorded` then.
    """

    def __init__(self, ledger: Ledger, store: Store, terms: ClaimTerms) -> None:
        self._ledger = ledger
        self._store = store
        self._terms = terms

    def during_commit(self) -> AbstractAsyncContextManager[Any]:
        lock: AbstractAsyncContextManager[Any] = self._ledger.one_at_a_time
        return lock

    def has(self, event: Event[Any]) -> bool:
        return event.token in self._ledger.held

    def end(self, event: Event[Any], ending: Ending, why: Any) -> Part[Any]:
        row: Row = event.token
        return Part(self, (row, ending, why), [], partial(self._settled, row))

    def write(self, transaction: Any, values: list[tuple[Row, Ending, Any]], /) -> Any:
        settlement = Settlement(
            [row for row, ending, _ in values if ending is FINISHED],
            [Failure(row, text_of(why)) for row, ending, why in values if ending > FINISHED],
            dropped=[row for row, ending, _ in values if ending is DROPPED],
        )
        settlement.idle_keys = self._ledger.idle_keys(settlement)
        return self._store.record(transaction, settlement, self._terms)

    def _settled(self, row: Row, part: Part[Any], error: Exception | None) -> bool:
        if part.is_void:
            return False
        row.recorded = True
        if error is None:
            self._ledger.recorded(row)
        elif isinstance(error, NotHeld):
            self._ledger.lost_to_another(row)
        else:
            self._ledger.refuses(row, error)
        return False


class _Elsewhere(Ends):
    """Rows that are done in a store elsewhere, and whose ends are recorded after that.

    Memory, also in the store: an entry for each that is not recorded yet. It is one that the reader
    has claimed; and what a crash has left, which is forgotten when the next reader finds that it is
    recorded.
    """

    outlives_power = True

    def __init__(self, marks: MarksOfRun, place: str, ledger: Ledger, store: Store) -> None:
        self._partition = f"table {place}"
        self._ledger = ledger
        self._store = store
        # By identity: the rows that were emitted last, those whose ends are being committed, and
        # those that are done.
        self._out: dict[str, Row] = {}
        self._writing: dict[str, Remembered] = {}
        self._done: dict[str, Remembered] = {}
        mark = marks.mark(self._partition)
        if mark is not None:
            self._done = {name: Remembered(id, error) for name, id, error in loads(mark)}

    async def open(self) -> None:
        """Forget what the table has recorded."""
        ids = [one.id for one in self._done.values() if one.id is not None]
        if ids:
            states = await self._store.states(ids)
            there = {
                id for id, (_, status) in states.items() if status in (UNPROCESSED, IN_PROCESS)
            }
            self._done = {
                name: one for name, one in self._done.items() if one.id is None or one.id in there
            }

    def done(self, row: Row) -> Remembered | None:
        return self._done.get(self._name(row)) if self._done else None

    def begins(self, row: Row) -> bool:
        name = self._name(row)
        if name in self._writing:
            # Its lease was lost. It is known soon whether it is done.
            return False
        self._out[name] = row
        return True

    def recorded(self, settlement: Settlement) -> None:
        for row in settlement.rows():
            name = self._name(row)
            if self._out.get(name) is row:
                del self._out[name]
                self._writing.pop(name, None)
        # One that is given back may be another claim of a row that is done.
        failed = [failure.row for failure in settlement.failed if failure.delay is None]
        for row in (*settlement.processed, *failed):
            self._done.pop(self._name(row), None)

    def _name(self, row: Row) -> str:
        # As in its identity. A row without a time of its own came when it was claimed.
        came = f"{row.came:.6f} " if self._store.layout.knows_arrivals else ""
        return f"{came}{row.id!r}"

    def has(self, event: Event[Any]) -> bool:
        row: Row = event.token
        return row in self._ledger.held and self._out.get(self._name(row)) is row

    def end(self, event: Event[Any], ending: Ending, why: Any) -> None:
        row: Row = event.token
        self._writing[self._name(row)] = Remembered(
            row.id if isinstance(row.id, int) else None,
            text_of(why) if ending > FINISHED else None,
        )

    def marks(self, events: Sequence[Event[Any]]) -> Iterator[tuple[str, bytes]]:
        new = {name: self._writing[name] for event in events if (name := self._name(event.token))}
        yield self._partition, dumps([(n, *kept) for n, kept in {**self._done, **new}.items()])

    def finish(self, events: Sequence[Event[Any]]) -> None:
        for event in events:
            name = self._name(event.token)
            self._done[name] = self._writing.pop(name)
