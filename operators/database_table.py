"""Describe a table of a database, for `lookup`: the row of each key as it is now.

Items:   a `DatabaseTable`, not a stream. `lookup` emits `(event, row)`, or `(event, None)` without
         one, in the order of the events. A row is a dict of the columns, with the values that the
         driver of the database makes of them.
Time:    at once if the row of the key is in memory, where it is for `ttl` seconds, or if it is
         known for as long that there is none. Otherwise when a query has read it: there is one at
         a time, for the keys of all events that wait.
Memory:  the rows of the `cache` keys that were used last, and up to 1,000 events that wait.
Demand:  none of its own: `lookup` requests events as results are requested, at most 1,000 ahead.
Ends:    with the run, which closes its connection. Cancel returns the events that wait.
Errors:  BuildError when it is made, for wrong options. A missing table or column is TableMissing or
         ColumnMissing, at the start; a database that is away for `patience` seconds is
         DatabaseUnavailable, and ends the pipeline. A key that the column cannot have, or that
         several rows have, is an error of its event, as one that is missing or unhashable.

    the table               a..........b..........
    events                  --1--2-----------3----|
    lookup(database_table)  --1a-2a----------3b---|     (1, a), (2, a), (3, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import (
    is_at_least,
    is_text,
    require_count,
    seconds_in,
    texts_of,
)
from penstock.streams.joins.database_table import DatabaseTable

__all__ = ["database_table"]


@recorded
def database_table(
    url: str,
    table: str,
    by: str,
    ttl: float | timedelta,
    *,
    cache: int = 10_000,
    columns: Sequence[str] | None = None,
    patience: float = 60.0,
) -> DatabaseTable:
    """A table, or a view, of SQLite (`sqlite:///shop.db`) or PostgreSQL (`postgresql://...`), whose
    rows `lookup` reads by the column `by`.

    That column must be unique, and should have an index. A row may be `ttl` seconds old (or a
    timedelta) when an event gets it; with 0 each event gets the row as it is when it comes. The
    rows of at most `cache` keys are in memory, those that were used last. `columns` are those of a
    row; None: all that the table has when the run begins. A database that is away is tried again
    for `patience` seconds. Raises BuildError for wrong options, and MissingExtra if PostgreSQL's
    package is not installed.

    >>> from penstock import database_table, from_iterable, lookup
    >>> plans = database_table("sqlite:///shop.db", "plans", by="user_id", ttl=60)
    >>> clicks = from_iterable([{"user": "ann", "page": "/a"}])
    >>> print(clicks.pipe(lookup(plans, by="user")))
    <Flowable from_iterable > lookup>
    """
    # Imported here: most pipelines read or write no database.
    from penstock.streams.sql_queue.url import open_rows

    if not is_text(by):
        raise BuildError(f"database_table({by=}): the name of a column is needed")
    seconds = seconds_in("database_table", ttl=ttl)
    require_count("database_table", cache=cache)
    chosen = None if columns is None else texts_of(columns)
    if chosen == () or isinstance(columns, str):
        raise BuildError(f"database_table({columns=}): a list with the names of columns is needed")
    if not is_at_least(patience, 0):
        raise BuildError(f"database_table({patience=}): at least 0 s is needed")
    open_rows(url, table)
    opened = partial(open_rows, url, table)
    name = f"{table} in {redacted(url)}"
    return DatabaseTable(opened, name, by, seconds, cache, chosen, patience)
