"""The test kit for pipelines: virtual time, probes, marbles, in-memory twins and leak checks.

The fixtures for pytest are in `penstock.streams.testing.plugin`, which this package does not
import.
"""

from __future__ import annotations

from penstock.streams.testing.leaks import LeakCheck, Leaked, no_leaks, register
from penstock.streams.testing.ledger import Ledger
from penstock.streams.testing.loop import Stalled, VirtualTimeLoop, run_virtual
from penstock.streams.testing.marbles import Kind, Signal, parse_marbles, to_marbles
from penstock.streams.testing.player import COMPLETED, Completed, VirtualClock, play
from penstock.streams.testing.probe import Probe, Received
from penstock.streams.testing.publisher import ManualPublisher, ManualSubscription
from penstock.streams.testing.scheduler import SchedulerLoop, on_scheduler
from penstock.streams.testing.sink import MemorySink
from penstock.streams.testing.sources import CountedSource, MemorySource

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
    "SchedulerLoop",
    "Signal",
    "Stalled",
    "VirtualClock",
    "VirtualTimeLoop",
    "no_leaks",
    "on_scheduler",
    "parse_marbles",
    "play",
    "register",
    "run_virtual",
    "to_marbles",
]
