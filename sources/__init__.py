"""Sources of events, one per module: `read_x` is in `x.py`, `WorkPool` in `work.py`."""

from __future__ import annotations

if __name__ != "penstock.sources":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'sources' is 'penstock.sources': write `from penstock import ...`",
        name=__name__,
    )

from penstock.sources.inbox import Inbox, inbox
from penstock.sources.jetstream import read_jetstream
from penstock.sources.jsonl import read_jsonl
from penstock.sources.kafka import read_kafka
from penstock.sources.lines import read_lines
from penstock.sources.queue_stats import queue_stats
from penstock.sources.table import read_table
from penstock.sources.work import WorkPool
from penstock.streams.base.pages import show_pages

__all__ = [
    "Inbox",
    "WorkPool",
    "inbox",
    "queue_stats",
    "read_jetstream",
    "read_jsonl",
    "read_kafka",
    "read_lines",
    "read_table",
]

# `Inbox` is returned by `inbox`, and documents its own methods.
show_pages(__name__, [name for name in __all__ if name != "Inbox"])
