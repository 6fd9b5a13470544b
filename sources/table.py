r"""Read a database table as a queue: one event for each row that is due.

Items:   the payload of each row, a JSON object, as a dict; oldest first, in the order of their ids.
         A row is claimed under a lease; no two readers get the same one. With `by` the rows of a
         key go to one reader at a time, in order.
Time:    rows are claimed when there is demand, unless the queue is paused, which the reader sees
         within a second. When none is due the reader waits: on PostgreSQL for a notification; on
         SQLite it checks whether the file has changed, at least every half second, and at once for
         rows enqueued by this process. Every `poll` seconds it looks for rows that have become due.
         An event counts as created when its row was enqueued.
Memory:  the rows of one claim, at most `batch`; a few hundred bytes for each row in the pipeline.
Demand:  no rows are claimed of a key that has its share of the memory of a `group_by` with the
         same key as `by`; they stay unprocessed. A claim is one statement, for the present demand,
         or for that expected in the next 20 ms (or in four times the time of a claim) if it is
         larger; at most `batch`.
Ends:    never: with `follow=True` it waits for rows that are enqueued later. With `follow=False`
         when nothing is left to do: no row is due, none is to be tried again, and no other reader
         has any in work, which it might return. What it still waits for is reported once; the rows
         of a crashed reader come when their lease has run out. With `wait_for_leases=False` it
         leaves them to others, and reports that. Rows that are due later and were never tried are
         not waited for. A row is marked as processed when its event has finished, in batches; with
         `write_table` to the same database in one transaction with its results. Behind it a stage
         may keep states in a `Store`: its commits mark the rows, or remember them until they are
         marked if the store is in another database (see docs/explanation/state.md). Drain and
         cancel return rows that were claimed and not processed, which is not an attempt.
Errors:  a row that is cancelled in the table is dropped, with its call, within about a second. A
         handler that raises Snooze gets its row again after its seconds: no attempt counts. An
         event that a stage reverts (`on_error="revert"`), or that stops the pipeline, returns its
         row, to be tried again after `backoff`; after `attempts` it has failed for good (status
         -1), with the error. Skipped and routed events have failed for good at once. A row whose
         lease ran out counts as LeaseLost, and its outcome is void; so does one that no reader
         survived in all its attempts, to the reader that finds it. A payload that is not a JSON
         object makes a bad row: it is reported, counted and has failed for good. A missing table or
         column is TableMissing or ColumnMissing; a database that is unavailable for `patience`
         seconds is DatabaseUnavailable.

    rows         --1--2------3--
    read_table   --a--b------c--
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isinf
from socket import gethostname
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_at_least, is_count
from penstock.streams.failures.backoff import Backoff, check_backoff
from penstock.streams.io.paths import is_path
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.sql_queue.periodic import Periodic
    from penstock.streams.state.store import Store

__all__ = ["read_table"]


@recorded
@source
def read_table(
    url: str,
    table: str = "queue",
    *,
    columns: Mapping[str, str] | None = None,
    beside: bool = False,
    by: str | None = None,
    attempts: int = 5,
    backoff: Backoff | None = None,
    lease: float = 30.0,
    batch: int = 500,
    follow: bool = True,
    wait_for_leases: bool = True,
    only: Mapping[str, str | Sequence[str]] | None = None,
    dead_on: type[Exception] | tuple[type[Exception], ...] = (),
    periodic: Mapping[str, Periodic] | None = None,
    from_id: str | Sequence[str] | None = None,
    position: str | os.PathLike[str] | Store | None = None,
    poll: float = 1.0,
    patience: float = 60.0,
    name: str | None = None,
) -> Flowable[dict[str, Any]]:
    """Read a queue in SQLite (`sqlite:///work.db`) or PostgreSQL (`postgresql://host/name`).

    A reader that follows creates `table` if it is missing; it must exist with `follow=False`, and
    with `columns`, which maps the names of a queue's columns to those of your own table. With
    `beside`, your table need only have an id, a payload and a status: all else is kept in a table
    beside it. `by` is a column, or a field of the payload, whose values are keys. `attempts` counts
    the first one; `backoff` (by default from 1 s, doubling up to 5 minutes) is the wait between
    them. `lease` is the seconds after which the rows of a crashed reader go to another; it is
    renewed while events are in the pipeline. `follow` says whether to wait for more rows for ever
    or to end when all are done, `wait_for_leases` whether that includes rows that another reader
    has in work, dead or alive. `only` maps a column, or a field of the payload, to its value, or a
    list of values, in the rows that this reader claims, as in `only={"kind": ["mail", "sms"]}`; all
    others are left to other readers. A reverted row whose error is one of the types `dead_on` is
    not tried again. `periodic` maps names to `Periodic` jobs, whose rows this reader enqueues at
    their times; of several readers one does.

    `from_id` names a column of whole numbers that grow, such as the primary key, in an ordinary
    table without payload and status, which is only read: each row that is inserted is an event, a
    dict of all columns. Rows that commit late, after rows with higher ids, come when they are
    there. Updates and deletes are not seen. A pair, as in `from_id=("created_at", "id")`, names a
    column of times, and a unique one that tells rows of equal times apart. `position` is the path
    of a small file that records what is finished, where the next run continues, or a `Store`, which
    commits it together with the states that the rows have changed. See docs/how-to/tables.md.

    `name` is the reader's name, by default the machine and the process.
    Raises BuildError for invalid options, MissingExtra if PostgreSQL's package is not installed.

    >>> from penstock import read_table, write_table
    >>> url = "sqlite:///orders.db"
    >>> print(read_table(url, "orders", by="customer").to(write_table(url, "bills")))
    <Pipeline read_table > write_table>
    """
    # Imported here: most pipelines read or write no database.
    from penstock.streams.sql_queue import ClaimTerms, open_store, redacted
    from penstock.streams.sql_queue.reader import ReaderOptions, TableReader

    for option, count in (("attempts", attempts), ("batch", batch)):
        if not is_count(count):
            raise BuildError(
                f"read_table({option}={count!r}): a whole number of at least 1 is needed"
            )
    for option, seconds, least in (("lease", lease, 0.1), ("poll", poll, 0.01)):
        if not is_at_least(seconds, least) or isinf(seconds):
            raise BuildError(f"read_table({option}={seconds!r}): at least {least} s is needed")
    if from_id is not None:
        _require_alone(
            by=by,
            columns=columns,
            beside=beside or None,
            only=only,
            dead_on=dead_on or None,
            periodic=periodic,
            backoff=backoff,
            attempts=None if attempts == 5 else attempts,
            lease=None if lease == 30.0 else lease,
            wait_for_leases=None if wait_for_leases else False,
            name=name,
        )
    elif position is not None:
        raise BuildError(
            f"read_table(position={position!r}) needs from_id=: a queue keeps its own position"
        )
    if not is_at_least(patience, 0):
        raise BuildError(f"read_table(patience={patience!r}): at least 0 s is needed")
    check_backoff("read_table", backoff)
    texts: dict[str, Any] = {"by": by, "name": name}
    for option, text in texts.items():
        if text is not None and not (isinstance(text, str) and text):
            raise BuildError(f"read_table({option}={text!r}): a name is needed")
    types: Any = dead_on if isinstance(dead_on, tuple) else (dead_on,)
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in types):
        raise BuildError(
            f"read_table(dead_on={dead_on!r}): an Exception type, or a tuple of them, is needed"
        )
    if from_id is not None:
        return _growing(url, table, from_id, position, batch, follow, poll, patience)
    kinds = _kinds_of(only)
    open_store(url, table, columns, beside=beside)
    details = [redacted(url), table, *([f"by {by}"] if by is not None else [])]
    if kinds is not None:
        details.append(f"only {kinds[0]} {' or '.join(kinds[1])}")
    info = StageInfo(
        "read_table",
        ", ".join(details),
        batch,
        f"claims up to {batch} rows",
        delivery=Delivery(acknowledges=True, enlists=True),
    )

    manner = ReaderOptions(
        *(backoff or Backoff(1.0, cap=300.0), batch, follow, poll, patience, wait_for_leases),
        kinds,
        types,
        _jobs_of(periodic),
    )

    def attach(downstream: Subscriber[dict[str, Any]], run: Run) -> None:
        owner = f"{name or f'{gethostname()}:{os.getpid()}'}:{os.urandom(4).hex()}"
        TableReader(
            downstream,
            run,
            flowable.info,
            open_store(url, table, columns, beside=beside),
            ClaimTerms(owner, lease, attempts, by),
            manner,
        ).start()

    flowable: Flowable[dict[str, Any]] = Flowable(attach, info)
    return flowable


def _jobs_of(periodic: Mapping[str, Periodic] | None) -> Mapping[str, Periodic] | None:
    from penstock.streams.sql_queue.periodic import Periodic

    given: Any = periodic
    if given is None:
        return None
    if isinstance(given, Mapping):
        jobs: dict[Any, Any] = {}
        jobs |= given
        if all(isinstance(name, str) and isinstance(job, Periodic) for name, job in jobs.items()):
            return jobs
    raise BuildError(
        f"read_table(periodic={periodic!r}): a dict is needed, of names to Periodic jobs"
    )


def _require_alone(**options: Any) -> None:
    """Raise BuildError for options of a queue where rows are read by a growing column."""
    for option, given in options.items():
        if given is not None:
            raise BuildError(
                f"read_table(from_id=..., {option}={given!r}): {option}= is for a queue, whose "
                "rows are claimed; an ordinary table is only read"
            )


def _growing(
    url: str,
    table: str,
    from_id: str | Sequence[str],
    position: str | os.PathLike[str] | Store | None,
    batch: int,
    follow: bool,
    poll: float,
    patience: float,
) -> Flowable[dict[str, Any]]:
    """The rows of an ordinary table, by a growing column, or a column of times."""
    from penstock.streams.sql_queue import open_store, redacted
    from penstock.streams.sql_queue.growing_reader import GrowingReader
    from penstock.streams.sql_queue.growing_rows import GrowingOptions

    given: Any = [from_id] if isinstance(from_id, str) else from_id
    columns: list[Any] = [*given] if isinstance(given, list | tuple) else []
    if not (
        0 < len(set(columns)) == len(columns) < 3
        and all(isinstance(name, str) and name for name in columns)
    ):
        raise BuildError(
            f"read_table(from_id={from_id!r}): the name of a column is needed, or a pair of them, "
            "of times and of ids"
        )
    open_store(url, table)
    marks: Any = position if hasattr(position, "marks_in") else None
    if position is not None and marks is None and not is_path(position):
        raise BuildError(
            f"read_table(position={position!r}): the path of a file is needed, in which the "
            "position is kept, or a Store"
        )
    kept = os.fspath(position) if is_path(position) else marks
    info = StageInfo(
        "read_table",
        f"{redacted(url)}, {table}, from {' and '.join(columns)}",
        batch,
        f"reads up to {batch} rows",
        delivery=Delivery(acknowledges=kept is not None, continues=kept is not None, store=marks),
    )
    options = GrowingOptions(columns, kept, batch, follow, poll, patience)

    def attach(downstream: Subscriber[dict[str, Any]], run: Run) -> None:
        GrowingReader(downstream, run, flowable.info, open_store(url, table), options).start()

    flowable: Flowable[dict[str, Any]] = Flowable(attach, info)
    return flowable


def _kinds_of(only: Mapping[str, str | Sequence[str]] | None) -> tuple[str, list[str]] | None:
    """The column or field, and its values. Raises BuildError for anything else."""
    if only is None:
        return None
    given: Any = only
    if isinstance(given, Mapping) and len(only) == 1:
        ((field, values),) = only.items()
        many: Any = [values] if isinstance(values, str) else values
        texts: list[Any] = []
        if isinstance(many, Sequence):
            texts += many
        if texts and all(isinstance(one, str) for one in texts):
            return str(field), texts
    raise BuildError(
        f"read_table(only={only!r}): a dict is needed, of a column or a field of the payload to "
        'its value or a list of values, all texts, such as {"kind": ["mail", "sms"]}'
    )
