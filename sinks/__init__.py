"""Sinks for results, one per module."""

from __future__ import annotations

if __name__ != "penstock.sinks":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'sinks' is 'penstock.sinks': write `from penstock import ...`",
        name=__name__,
    )

from penstock.sinks.collect import collect
from penstock.sinks.dead_letter import dead_letters
from penstock.sinks.for_each import for_each
from penstock.sinks.jetstream import write_jetstream
from penstock.sinks.jsonl import write_jsonl
from penstock.sinks.kafka import write_kafka
from penstock.sinks.latency import latency_histogram
from penstock.sinks.table import write_table
from penstock.streams.base.pages import show_pages

__all__ = [
    "collect",
    "dead_letters",
    "for_each",
    "latency_histogram",
    "write_jetstream",
    "write_jsonl",
    "write_kafka",
    "write_table",
]

show_pages(__name__, __all__)
