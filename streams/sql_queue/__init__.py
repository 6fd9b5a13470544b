"""A database table as a queue: the store that the source, the sink and the command share.

`open_store(url)` gives the store for a URL: `sqlite:///work.db` or `postgresql://host/name`. The
store claims rows, settles their outcomes, renews leases and inserts; it runs no stream.
"""

from __future__ import annotations

from penstock.streams.base.database_url import redacted
from penstock.streams.sql_queue.claimed import Claim, ClaimTerms, Failure, Refused, Row, Settlement
from penstock.streams.sql_queue.schema import (
    COLUMNS,
    DEAD,
    IN_PROCESS,
    PROCESSED,
    UNPROCESSED,
    Layout,
)
from penstock.streams.sql_queue.store import DatabaseLost, Insertion, Store
from penstock.streams.sql_queue.url import database_of, open_store

__all__ = [
    "COLUMNS",
    "DEAD",
    "IN_PROCESS",
    "PROCESSED",
    "UNPROCESSED",
    "Claim",
    "ClaimTerms",
    "DatabaseLost",
    "Failure",
    "Insertion",
    "Layout",
    "Refused",
    "Row",
    "Settlement",
    "Store",
    "database_of",
    "open_store",
    "redacted",
]
