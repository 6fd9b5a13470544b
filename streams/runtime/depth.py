"""Room for the nested calls of a signal, which passes through all stages of a pipeline."""

from __future__ import annotations

import sys
from threading import Lock

from penstock.streams.errors import TooManyStages, add_note

__all__ = ["Room"]

# A signal takes up to so many calls in each stage (measured: 4 to 16, and some of functions in C).
_CALLS = 25
# A pipeline may have one stage for so many calls that Python allows. Chosen: 200 by default, whose
# calls fit into the stack of a thread on every system. So many fit without more room.
_EACH, _FEW = 5, 20

_lock = Lock()
_rooms: set[Room] = set()
# The limit without rooms, and the one that was set for them.
_own = _set = 0


class Room:
    """Lets signals pass through so many stages, until `close`: raises Python's recursion limit, if
    there are many. What the user's functions may call stays as deep as before.

    Raises TooManyStages.
    """

    def __init__(self, stages: int) -> None:
        global _own
        self.calls = 0 if stages <= _FEW else _CALLS * stages
        with _lock:
            now = sys.getrecursionlimit()
            own = _own if _rooms and now == _set else now
            if stages > own // _EACH:
                raise _too_many(stages, own)
            if self.calls:
                _own = own
                _rooms.add(self)
                _adjust()

    def close(self) -> None:
        """No more signals will pass."""
        with _lock:
            if self in _rooms:
                _rooms.remove(self)
                # Otherwise somebody else has set it since.
                if sys.getrecursionlimit() == _set:
                    _adjust()


def _adjust() -> None:
    global _set
    _set = _own + max((room.calls for room in _rooms), default=0)
    sys.setrecursionlimit(_set)


def _too_many(stages: int, most: int) -> TooManyStages:
    error = TooManyStages(
        f"the pipeline has {stages:,} stages, through which a signal passes in nested calls; "
        f"Python allows {most:,} of these, which is enough for {most // _EACH} stages. Do several "
        "steps in one function, as of map or adaptive_flat_map"
    )
    add_note(error, f"sys.setrecursionlimit({_EACH * stages}), before the start, allows them")
    return error
