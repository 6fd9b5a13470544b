"""The metrics of one run as a text."""

from __future__ import annotations

from typing import Any

from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from penstock.streams.recording.recorder import Recorder
from penstock.streams.telemetry.metrics import Families

__all__ = ["exposition"]


def exposition(numbers: dict[str, Any], recorder: Recorder, *, show_values: bool = False) -> bytes:
    """The metrics of a run in the format OpenMetrics 1.0, from its statistics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families(numbers, recorder, show_values=show_values))
    return bytes(generate_latest(registry))
