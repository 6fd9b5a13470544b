"""The rows of a commit, made a few at a time: the loop waits for no more than a slice of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from penstock.streams.state.backend import Columns, Unit
from penstock.streams.state.changes import Change, Room

__all__ = ["add_rows"]

# Seconds after which the loop goes on, and the number of rows after which the clock is read.
_SLICE = 0.002
_AT_ONCE = 16


async def add_rows(
    unit: Unit, changes: Mapping[Room, list[Change]], now: Callable[[], float]
) -> None:
    """Add the rows of the last changes of keys to a unit, and the keys that are deleted."""
    until = now() + _SLICE
    for room, changed in changes.items():
        rows: list[Columns] = []
        gone: list[bytes] = []
        for at in range(0, len(changed), _AT_ONCE):
            room.write(changed[at : at + _AT_ONCE], rows, gone)
            if now() > until:
                await asyncio.sleep(0)
                until = now() + _SLICE
        if rows:
            unit.rows[room.name] = rows
        if gone:
            unit.gone[room.name] = gone
