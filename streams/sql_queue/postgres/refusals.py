"""The meaning of an error of PostgreSQL: the database refuses a row, or is away for now."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from penstock.streams.sql_queue.claimed import Refused

__all__ = ["PASSING", "may_pass", "refusals"]

# Classes of errors of SQL that say that a row is refused, by a constraint or a trigger, and those
# that say so of a value, in a function of a user.
_REFUSALS = ("23", "27", "44", "P0")
_OF_VALUES = ("22", "38", "39")

PASSING = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
"""Errors after which the same call may succeed, perhaps with a new connection."""

# From the server's source. A full disk is an operational error; an exceeded quota or file size is
# an internal error, whose text is in the server's language.
_EXTENDS_FILE = ("mdextend", "mdzeroextend")


@contextmanager
def refusals() -> Generator[None, None, None]:
    """Raise Refused where the database refuses what it is told to write."""
    try:
        yield
    except psycopg.Error as error:
        if _refuses(error):
            raise Refused(error) from error
        raise


def _refuses(error: psycopg.Error) -> bool:
    state = error.sqlstate
    if state is None or error.diag.source_function in _EXTENDS_FILE:
        return False
    if state[:2] in _REFUSALS:
        return True
    if state[:2] in _OF_VALUES:
        # Otherwise the value is one of ours, and other rows get it too.
        context = error.diag.context or ""
        return "SQL" in context or "PL/" in context
    try:
        errors.lookup(state)
    except KeyError:
        return True  # Only a trigger, or a function, of a user's raises it.
    return False


def may_pass(error: psycopg.Error) -> bool:
    """Whether the same call may succeed later, perhaps with a new connection."""
    if _refuses(error):
        return False
    return isinstance(error, PASSING) or error.diag.source_function in _EXTENDS_FILE
