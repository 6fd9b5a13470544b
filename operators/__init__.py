"""Operators, one per module, each with its documentation at the top."""

from __future__ import annotations

if __name__ != "penstock.operators":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'operators' is 'penstock.operators': write `from penstock import ...`",
        name=__name__,
    )

from penstock.operators.adaptive_flat_map import adaptive_flat_map
from penstock.operators.batch import batch
from penstock.operators.chunk import chunk
from penstock.operators.count_over_time import count_over_time
from penstock.operators.distinct_within import distinct_within
from penstock.operators.group_by import group_by
from penstock.operators.in_processes import in_processes
from penstock.operators.in_threads import in_threads
from penstock.operators.monitor import monitor
from penstock.operators.rate_limit import rate_limit
from penstock.operators.spread import spread
from penstock.operators.stateful import stateful
from penstock.operators.using import using
from penstock.operators.violations import violations
from penstock.streams.base.pages import show_pages

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
    "stateful",
    "using",
    "violations",
]

show_pages(__name__, __all__)
