"""Aggregates of the values of a window: `agg.py` has what users write. Knows nothing of streams."""
