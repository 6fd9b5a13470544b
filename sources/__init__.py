"""Where events come from: one source a module, named as its module."""

from __future__ import annotations

from sources.jetstream import read_jetstream
from sources.jsonl import read_jsonl
from sources.queue_stats import queue_stats
from sources.table import read_table
from sources.work import WorkPool

__all__ = ["WorkPool", "queue_stats", "read_jetstream", "read_jsonl", "read_table"]
