"""``python -m benchmarks.temporal``: the measurements, next to their bounds."""

from __future__ import annotations

from benchmarks.temporal.figure import table

table()
