"""What is done of a partition, as it is stored with the states of its keys."""

from __future__ import annotations

from typing import Any

from orjson import dumps, loads

from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range, finished_in, text_of_most

__all__ = ["mark_of", "ranges_in"]

# Bytes of the text of what is done above the floor: enough for any pattern of so many positions as
# may be done above it.
_TEXT = 1 << 19


def mark_of(ledger: Ledger[Any], born: str) -> bytes:
    """All that is done in a ledger of a stream that was created then."""
    floor = ledger.floor or 0
    text, left_out = text_of_most(floor, ledger.finished(), _TEXT)
    assert not left_out
    return dumps({"born": born, "floor": floor, "above": text})


def ranges_in(mark: bytes, born: str) -> list[Range]:
    """The positions that are done, of a stream that was created then: none of an earlier one."""
    fields = loads(mark)
    if fields["born"] != born:
        return []
    floor: int = fields["floor"]
    return [(0, floor), *finished_in(floor, fields["above"])]
