"""A count of a million intervals, nearly all of whose ends differ."""

from __future__ import annotations

import random
from time import process_time

from streams.temporal import sequenced

__all__ = ["count_a_million"]


def count_a_million() -> tuple[str, float]:
    """What was done, and the seconds it took; at most 3."""
    dice = random.Random(1)
    begins = [dice.random() * 1e6 for _ in range(1_000_000)]
    rows = [(begin, begin + dice.random() * 100) for begin in begins]
    before = process_time()
    periods = sequenced(rows, begin=0, end=1)
    took = process_time() - before
    return f"count {len(rows):,} intervals into {len(periods):,} periods", took
