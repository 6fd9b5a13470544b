"""Opens the store that a database URL names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.streams.base.database_url import database_at, file_of, parameters, redacted
from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import missing_extra
from penstock.streams.sql_queue.rows import KeyedRows
from penstock.streams.sql_queue.schema import Layout
from penstock.streams.sql_queue.store import Store

__all__ = ["database_of", "open_rows", "open_store", "place_of"]

_KNOWN = 'a URL such as "sqlite:///work.db" or "postgresql://user@host/name"'


def open_store(
    url: str,
    table: str = "queue",
    columns: Mapping[str, str] | None = None,
    *,
    beside: bool = False,
) -> Store:
    """The store for a table, not connected yet.

    Raises BuildError for a URL of an unknown kind of database, and MissingExtra if PostgreSQL's
    package is not installed.
    """
    if _scheme(url) == "sqlite":
        layout = Layout(table, columns, beside)
        from penstock.streams.sql_queue.sqlite.claims import SqliteStore

        return SqliteStore(url, file_of(url), layout)
    try:
        from penstock.streams.sql_queue.postgres.claims import PostgresStore
        from penstock.streams.sql_queue.postgres.table import LONGEST_NAME
    except ImportError as error:
        raise missing_extra(f"A queue in PostgreSQL needs psycopg ({error})", "postgres") from error
    parameters(url)
    return PostgresStore(url, Layout(table, columns, beside, LONGEST_NAME))


def open_rows(url: str, table: str) -> KeyedRows:
    """The rows of a table by their keys, not connected yet. Raises as `open_store`."""
    if _scheme(url) == "sqlite":
        from penstock.streams.sql_queue.sqlite.rows import SqliteRows

        return SqliteRows(url, file_of(url), Layout(table))
    try:
        from penstock.streams.sql_queue.postgres.rows import PostgresRows
        from penstock.streams.sql_queue.postgres.table import LONGEST_NAME
    except ImportError as error:
        raise missing_extra(f"A table in PostgreSQL needs psycopg ({error})", "postgres") from error
    parameters(url)
    return PostgresRows(url, Layout(table, longest=LONGEST_NAME))


def _scheme(url: Any) -> str:
    scheme = url.partition(":")[0].lower() if isinstance(url, str) else ""
    if scheme == "sqlite":
        return scheme
    if scheme in ("postgresql", "postgres"):
        return "postgresql"
    raise BuildError(f"{redacted(url)!r} does not name a known database: give {_KNOWN}")


def database_of(url: str) -> tuple[Any, ...]:
    """An identity that is equal for two URLs of the same database and user."""
    if _scheme(url) == "sqlite":
        return ("sqlite", os.path.realpath(file_of(url)))
    return database_at(url)


def place_of(url: str, table: str) -> str:
    """The name of a table, the same for each user and from each folder."""
    kind, *where = database_of(url)
    if kind == "sqlite":
        return f"{where[0]}/{table}"
    found = dict(where)
    return f"{found['host']}:{found['port']}/{found.get('dbname', found.get('user', ''))}/{table}"
