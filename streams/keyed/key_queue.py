"""Names of the keyed queues by which the stages that call handlers still ask for them."""

from __future__ import annotations

from penstock.streams.keyed.queues import KeyQueue as Lane
from penstock.streams.keyed.queues import release as end_turns

__all__ = ["Lane", "end_turns"]
