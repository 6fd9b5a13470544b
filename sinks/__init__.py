"""Sinks for results, one per module."""

from __future__ import annotations

from sinks.collect import collect
from sinks.dead_letter import dead_letters
from sinks.for_each import for_each
from sinks.jetstream import write_jetstream
from sinks.jsonl import write_jsonl
from sinks.latency import latency_histogram
from sinks.table import write_table
from streams.pages import show_pages

__all__ = [
    "collect",
    "dead_letters",
    "for_each",
    "latency_histogram",
    "write_jetstream",
    "write_jsonl",
    "write_table",
]

show_pages(__name__, __all__)
