"""The lag of a source: what it has still to read, as each kind of source calls it."""

from __future__ import annotations

from typing import Any

__all__ = ["UNREAD", "unread"]

UNREAD = ("pending", "lag")
"""Of a table or a stream: rows or messages. Of topics of Kafka: records that are not finished."""


def unread(stage: dict[str, Any]) -> int | None:
    """Rows, messages or records, from the statistics of a stage; None if it does not know."""
    return next((stage[name] for name in UNREAD if stage.get(name) is not None), None)
