"""Sources of events, one per module, named like its module."""

from __future__ import annotations

from sources.inbox import Inbox, inbox
from sources.jetstream import read_jetstream
from sources.jsonl import read_jsonl
from sources.lines import read_lines
from sources.queue_stats import queue_stats
from sources.table import read_table
from sources.work import WorkPool
from streams.pages import show_pages

__all__ = [
    "Inbox",
    "WorkPool",
    "inbox",
    "queue_stats",
    "read_jetstream",
    "read_jsonl",
    "read_lines",
    "read_table",
]

# `Inbox` is returned by `inbox`, and documents its own methods.
show_pages(__name__, [name for name in __all__ if name != "Inbox"])
