"""What a test of a pipeline needs: virtual time, leak checks, marble diagrams.

The fixtures for pytest are in `streams.testing.plugin`, which this package does not import.
"""

from __future__ import annotations

from streams.testing.leaks import LeakCheck, Leaked, no_leaks, register
from streams.testing.loop import Stalled, VirtualTimeLoop, run_virtual
from streams.testing.marbles import Kind, Signal, parse_marbles, to_marbles

__all__ = [
    "Kind",
    "LeakCheck",
    "Leaked",
    "Signal",
    "Stalled",
    "VirtualTimeLoop",
    "no_leaks",
    "parse_marbles",
    "register",
    "run_virtual",
    "to_marbles",
]
