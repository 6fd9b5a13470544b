"""Operators, one per module, each with its documentation at the top."""

from __future__ import annotations

from operators.adaptive_flat_map import adaptive_flat_map
from operators.batch import batch
from operators.chunk import chunk
from operators.count_over_time import count_over_time
from operators.distinct_within import distinct_within
from operators.group_by import group_by
from operators.in_processes import in_processes
from operators.in_threads import in_threads
from operators.monitor import monitor
from operators.rate_limit import rate_limit
from operators.spread import spread
from operators.violations import violations
from streams.pages import show_pages

__all__ = [
    "adaptive_flat_map",
    "batch",
    "chunk",
    "count_over_time",
    "distinct_within",
    "group_by",
    "in_processes",
    "in_threads",
    "monitor",
    "rate_limit",
    "spread",
    "violations",
]

show_pages(__name__, __all__)
