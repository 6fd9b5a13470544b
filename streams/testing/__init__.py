"""What a test of a pipeline needs: virtual time, probes, marbles, twins and leak checks.

The fixtures for pytest are in `streams.testing.plugin`, which this package does not import.
"""

from __future__ import annotations

from streams.testing.leaks import LeakCheck, Leaked, no_leaks, register
from streams.testing.ledger import Ledger
from streams.testing.loop import Stalled, VirtualTimeLoop, run_virtual
from streams.testing.marbles import Kind, Signal, parse_marbles, to_marbles
from streams.testing.player import COMPLETED, Completed, VirtualClock, play
from streams.testing.probe import Probe, Received
from streams.testing.publisher import ManualPublisher, ManualSubscription
from streams.testing.sink import MemorySink
from streams.testing.sources import CountedSource, MemorySource

__all__ = [
    "COMPLETED",
    "Completed",
    "CountedSource",
    "Kind",
    "LeakCheck",
    "Leaked",
    "Ledger",
    "ManualPublisher",
    "ManualSubscription",
    "MemorySink",
    "MemorySource",
    "Probe",
    "Received",
    "Signal",
    "Stalled",
    "VirtualClock",
    "VirtualTimeLoop",
    "no_leaks",
    "parse_marbles",
    "play",
    "register",
    "run_virtual",
    "to_marbles",
]
