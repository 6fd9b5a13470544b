"""``python -m benchmarks.temporal``: what was measured, next to its bounds."""

from __future__ import annotations

from benchmarks.temporal.figure import table

table()
