r"""Write each value into a database table: as a row of a queue, or into columns.

Items:   one row for each event, in order: its value as the JSON payload of a queue that
         `read_table` reads, or with `columns` the fields of the value in columns of a table. In
         `route(...)` a row is what `dead_letters` writes: `value`, `error`, `message`, ...
Time:    rows are written in batches, each in one transaction: those that came during the last one.
         No timers.
Memory:  at most 1,024 events and their rows, and the results of `read_table` rows that are not
         complete yet.
Demand:  1,024 at first, then one for each row that is written.
Ends:    an event is finished when its row is committed, on disk. In the database of a `Store` that
         the pipeline has, the row is in one transaction with the states that its event has changed
         and the record that the event is done: from a file, a table or Kafka each row is there
         exactly once (see docs/explanation/state.md). If it derives from a `read_table`
         of the same database (the same URL), the result and the mark that the source row is
         processed are one transaction: whatever crashes, both exist once or neither does; all
         results of a row are written together. A result of several rows goes with the first of them
         that is done. At the end of the stream accepted events are still written. Cancel returns
         those that are not.
Errors:  a value that cannot be encoded, that is not a JSON object (without `columns`: no reader
         could read it), or that the database refuses, fails its event: the pipeline stops, or
         `on_error="skip"`, `"revert"` or `route(sink)` go on. A missing table or column is
         TableMissing or ColumnMissing, at the start; a database that is unavailable for `patience`
         seconds is DatabaseUnavailable. A field that none of the first thousand events has is
         reported once: its column is null. With `key`, a missing index is CannotOpen at the start,
         and an event without a value for it fails.

    source        --a--b----------(cd)--|
    write_table   --a--b----------(cd)--|

With `key` and `on_conflict="update"`, the last value of a key is in the table:

    source        --a1--b1--a2--|
    the table       a1  a1  a2
                        b1  b1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.streams.base.errors import BuildError
from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from penstock.streams.sql_queue.scheduling import Scheduling
    from penstock.streams.sql_queue.schema import Upsert

__all__ = ["write_table"]


@recorded
def write_table(
    url: str,
    table: str = "queue",
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    key: str | Sequence[str] | None = None,
    on_conflict: Literal["error", "update", "ignore"] = "error",
    queue: Mapping[str, str] | None = None,
    beside: bool = False,
    run_at: By[Any] | None = None,
    priority: By[Any] | None = None,
    on_error: OnError = "stop",
    patience: float = 60.0,
    in_workers: bool = False,
) -> Sink[Any]:
    """Write into a table of SQLite (`sqlite:///work.db`) or PostgreSQL (`postgresql://...`).

    Without `columns` the table is a queue, and is created if it is missing. `columns` lists the
    columns to fill, from fields of the same names, or maps each to the name of its field; the table
    must exist. With `key`, one of these columns or several, a row that has the same key is updated
    in the other ones (`on_conflict="update"`) or stays as it is (`"ignore"`); the table needs a
    primary key or a unique index on the key.

    Your own queue table must exist too: `queue` gives the names of its columns, like `columns` of
    `read_table`, and `beside` is as there.

    `run_at`, a field of the value or a function of it, gives the time before which no reader claims
    the row: a datetime, a text in ISO 8601 (UTC unless it has a zone) or seconds since 1970.
    `priority` gives a whole number: rows with lower ones are claimed first. Without a value there
    the row is due now, with priority 0.

    With `in_workers` each process of a run with
    `workers=` writes its own results (see docs/several-cores.md), which cannot be in one
    transaction with rows of the source. Raises BuildError for invalid options, MissingExtra if
    PostgreSQL's package is not installed.

    >>> from penstock import from_iterable, write_table
    >>> totals = from_iterable([{"customer": "ann", "cents": 5}])
    >>> print(totals.to(write_table("sqlite:///shop.db", "totals", columns=["customer", "cents"])))
    <Pipeline from_iterable > write_table>
    """
    # Imported here: most pipelines read or write no database.
    from penstock.streams.sql_queue import open_store
    from penstock.streams.sql_queue.scheduling import Scheduling

    check_policy(on_error, "write_table")
    fields = None if columns is None else _fields_of(columns)
    upsert = _upsert_of(fields, key, on_conflict)
    if fields is not None and queue is not None:
        raise BuildError(
            "write_table(columns=..., queue=...): either columns are filled, or rows are enqueued"
        )
    if fields is not None and beside:
        raise BuildError(
            "write_table(columns=..., beside=True): either columns are filled, or rows are enqueued"
        )
    open_store(url, table, queue, beside=beside)
    for option, by in (("run_at", run_at), ("priority", priority)):
        if by is not None and fields is not None:
            raise BuildError(
                f"write_table(columns=..., {option}=...): {option}= is for the rows of a queue; a "
                "column is filled by columns="
            )
    if beside and priority is not None:
        raise BuildError(
            "write_table(beside=True, priority=...): a queue beside your table has no priorities"
        )
    scheduling = Scheduling(run_at, priority)
    return _Table(
        *(url, table, fields, upsert, queue, beside, on_error, patience, scheduling),
        in_workers=in_workers,
    )


def _fields_of(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The field that fills each column."""
    given: Any = columns
    names: list[tuple[Any, Any]] = []
    if isinstance(columns, Mapping):
        names += columns.items()
    elif isinstance(given, Sequence) and not isinstance(given, str):
        names += [(name, name) for name in columns]
    if not names or not all(isinstance(name, str) and name for pair in names for name in pair):
        raise BuildError(
            f"write_table(columns={columns!r}): a list with the names of the columns to fill is "
            "needed, or a dict from these to the names of fields"
        )
    return dict(names)


def _upsert_of(
    fields: Mapping[str, str] | None, key: str | Sequence[str] | None, on_conflict: str
) -> Upsert | None:
    from penstock.streams.sql_queue.schema import Upsert

    if on_conflict not in ("error", "update", "ignore"):
        raise BuildError(
            f'write_table(on_conflict={on_conflict!r}): "error", "update" or "ignore" is needed'
        )
    if key is None:
        if on_conflict != "error":
            raise BuildError(
                f"write_table(on_conflict={on_conflict!r}) needs key=: the columns that tell which "
                "row is the same"
            )
        return None
    given: Any = [key] if isinstance(key, str) else key
    names: list[Any] = []
    if isinstance(given, Sequence):
        names += given
    if not names or not all(isinstance(name, str) for name in names):
        raise BuildError(
            f"write_table(key={key!r}): the name of a column is needed, or a list of several"
        )
    if on_conflict == "error":
        raise BuildError(
            f"write_table(key={key!r}) needs on_conflict=: what becomes of a row that has the key, "
            '"update" or "ignore"'
        )
    if fields is None:
        raise BuildError(
            f"write_table(key={key!r}) needs columns=: the columns to fill, those of the key among "
            "them"
        )
    if missing := [name for name in names if name not in fields]:
        raise BuildError(
            f"write_table(key={key!r}): {', '.join(map(repr, missing))} must be among the columns "
            f"to fill; columns= has: {', '.join(map(repr, fields))}"
        )
    return Upsert(list(dict.fromkeys(names)), on_conflict == "update")


class _Table(Sink[Any]):
    def __init__(
        self,
        url: str,
        table: str,
        fields: Mapping[str, str] | None,
        upsert: Upsert | None,
        queue: Mapping[str, str] | None,
        beside: bool,
        on_error: OnError,
        patience: float,
        scheduling: Scheduling,
        *,
        in_workers: bool,
    ) -> None:
        from penstock.streams.sql_queue import database_of, redacted
        from penstock.streams.sql_queue.writer import WINDOW

        self.info = StageInfo(
            "write_table",
            f"{redacted(url)}, {table}",
            WINDOW,
            "one transaction per batch",
            routed=routed_by(on_error),
            policy=on_error,
            delivery=Delivery(database=database_of(url)),
        )
        self.in_workers = in_workers
        self._url = url
        self._table = table
        self._fields = fields
        self._upsert = upsert
        self._queue = queue
        self._beside = beside
        self._on_error: OnError = on_error
        self._patience = patience
        self._scheduling = scheduling

    def check_in_workers(self, run: Run) -> None:
        from penstock.streams.sql_queue.reader import TableReader
        from penstock.streams.sql_queue.url import database_of

        database = database_of(self._url)
        if any(store.database == database for store in run.root.stores):
            raise BuildError(
                "write_table(in_workers=True) writes into the database of the pipeline's store, "
                "and a worker process cannot write a result and the state that it was made with in "
                "one transaction: leave in_workers out"
            )
        readers = [one for one in run.nesting.sources if isinstance(one, TableReader)]
        if any(one.database == database for one in readers):
            raise BuildError(
                "write_table(in_workers=True) writes into the database that read_table reads, and "
                "a worker process cannot write a result and mark the row that it was made from in "
                "one transaction: leave in_workers out"
            )

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        from penstock.streams.sql_queue import open_store
        from penstock.streams.sql_queue.writer import TableWriter

        store = open_store(self._url, self._table, self._queue, beside=self._beside)
        return TableWriter(
            *(run, closed, store, self._fields, self._upsert, self._on_error, self._patience),
            self._scheduling,
        )
