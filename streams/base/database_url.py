"""URLs of databases: for display without their passwords, the file that one of SQLite names, and as
PostgreSQL reads them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from penstock.streams.base.errors import BuildError

__all__ = [
    "conninfo",
    "database_at",
    "file_of",
    "first_line",
    "is_postgresql",
    "parameters",
    "redacted",
]

_HERE = ("localhost", "127.0.0.1", "::1")

_PASSWORD = re.compile(r"(^\w+://[^/?#:@]*:)[^/?#]*(?=@)|([?&]password=)[^&]*")

# A host that is gone, or behind a network that is cut, does not answer and does not refuse: the
# system then ends a connection within half a minute. By itself it takes a quarter of an hour where
# something was sent, and two hours otherwise.
_DEFAULTS: dict[str, Any] = {
    "application_name": "penstock",
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def redacted(url: Any) -> str:
    """A URL without its password, for display."""
    if not isinstance(url, str):
        return repr(url)
    return _PASSWORD.sub(r"\1\2***", url)


def file_of(url: str, scheme: str = "sqlite") -> str:
    """The file of a URL with this scheme: three slashes and a relative path, or four slashes and an
    absolute one."""
    before, _, path = url.partition("///")
    if before.lower() != f"{scheme}:" or not path or path == ":memory:":
        what = "file" if scheme == "sqlite" else "folder"
        raise BuildError(
            f"{url!r} does not name a {what}: write {scheme}:///work.db, or "
            f"{scheme}:////var/work.db for an absolute path. What is in memory "
            "would not survive its process."
        )
    if set("?#") & set(path):
        raise BuildError(
            f"{url!r} names a file and something else: write %3F for a ? in the name of a file and "
            "%23 for a #. There are no options."
        )
    try:
        name = unquote(path, errors="strict")
    except UnicodeDecodeError:
        name = "\0"
    if "\0" in name:
        raise BuildError(f"{url!r} does not name a file: its name is not text in UTF-8")
    return name


def is_postgresql(url: str) -> bool:
    """Whether this is the URL of a PostgreSQL database."""
    return url.partition("://")[0].lower() in ("postgresql", "postgres")


def parameters(url: str) -> dict[str, Any]:
    """The parameters in a URL of PostgreSQL, as its driver reads it. Raises BuildError, and
    ImportError if the driver is not installed."""
    # Imported here: few pipelines need it.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return dict(conninfo_to_dict(url))
    except ProgrammingError as error:
        shown = redacted(url)
        # The message may quote a password.
        why = f": {first_line(error)}" if shown == url else ""
        raise BuildError(f"{shown!r} is not a valid PostgreSQL URL{why}") from None


def database_at(url: str) -> tuple[Any, ...]:
    """An identity that is equal for two URLs of the same PostgreSQL database and user."""
    found = {"port": "5432", **parameters(url)}
    found.pop("password", None)
    host = str(found.get("host", "")).lower()
    found["host"] = "localhost" if host in _HERE else host
    return ("postgresql", *sorted(found.items()))


def conninfo(url: str) -> str:
    """The parameters of a connection to PostgreSQL; those in the URL take precedence."""
    from psycopg.conninfo import make_conninfo

    return make_conninfo("", **{**_DEFAULTS, **parameters(url)})


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its others are details of the server."""
    return str(error).partition("\n")[0] or type(error).__name__
