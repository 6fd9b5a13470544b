"""From a URL to the store of its database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from streams.errors import BuildError, MissingExtra
from streams.table.schema import Layout
from streams.table.store import Store

__all__ = ["database_of", "open_store", "redacted"]

_KNOWN = 'a URL such as "sqlite:///work.db" or "postgresql://user@host/name"'

_HERE = ("localhost", "127.0.0.1", "::1")


def open_store(url: str, table: str = "queue", columns: Mapping[str, str] | None = None) -> Store:
    """The store for a table, not connected yet.

    Raises BuildError for a URL that names no database we know, and MissingExtra where the
    package for it is not installed.
    """
    layout = Layout(table, columns)
    if _scheme(url) == "sqlite":
        try:
            from streams.table.sqlite import SqliteStore
        except ImportError as error:
            raise _missing("aiosqlite", "sqlite", error) from error
        return SqliteStore(url, file_of(url), layout)
    try:
        from streams.table.postgres import PostgresStore
    except ImportError as error:
        raise _missing("psycopg", "postgres", error) from error
    return PostgresStore(url, layout)


def _scheme(url: Any) -> str:
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme == "sqlite":
        return scheme
    if scheme in ("postgresql", "postgres"):
        return "postgresql"
    raise BuildError(f"{redacted(url)!r} names no database: give {_KNOWN}")


def _missing(package: str, extra: str, error: ImportError) -> MissingExtra:
    return MissingExtra(
        f"A queue in this database needs {package} ({error}): pip install 'penstock[{extra}]'"
    )


def file_of(url: str) -> str:
    """The file of a `sqlite:` URL: three slashes and a relative name, or four and a whole one."""
    parts = urlsplit(url)
    name = unquote(parts.path[1:])
    if parts.netloc or not name or name == ":memory:":
        raise BuildError(
            f"{url!r} names no file: write sqlite:///work.db, or sqlite:////var/work.db for a "
            "whole path. A queue in memory would not survive its process."
        )
    return name


def database_of(url: str) -> tuple[Any, ...]:
    """What two URLs of the same database, and the same user of it, have in common."""
    if _scheme(url) == "sqlite":
        return ("sqlite", os.path.realpath(file_of(url)))
    parts = urlsplit(url)
    query = tuple(sorted(parts.query.split("&")))
    host = "localhost" if parts.hostname in _HERE else parts.hostname
    return ("postgresql", parts.username, host, parts.port or 5432, parts.path, query)


def redacted(url: Any) -> str:
    """A URL as it may be shown: without the password."""
    if not isinstance(url, str):
        return repr(url)
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user = f"{parts.username or ''}:***@" + parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=user).geturl()
