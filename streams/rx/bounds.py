"""Default bounds of the operators that read several streams.

Apart from them, because the fluent methods name these defaults and must not import the operators.
"""

from __future__ import annotations

__all__ = ["MOST_OPEN", "PREFETCH"]

MOST_OPEN = 32
"""How many of the streams that are a stream's values are read at once."""

PREFETCH = 64
"""How many events of one input may wait, or be requested."""
