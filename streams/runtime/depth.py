"""Room for the nested calls of a signal, which passes through all stages of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock

from penstock.streams.base.errors import TooManyStages, add_note
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["Room"]

# A signal takes up to so many calls in each stage (measured: 4 to 16, and some of functions in C).
_CALLS = 25
# A pipeline may have one stage for so many calls that Python allows. Chosen: 200 by default, whose
# calls fit into the stack of a thread on every system. So many fit without more room.
_EACH, _FEW = 5, 20

_lock = Lock()
# The calls of each room that is open.
_open: list[int] = []
# The limit without rooms, and the one that was set for them.
_own = _set = 0


class Room:
    """Lets signals pass through these stages, until `close`: raises Python's recursion limit, if
    there are many in a row. What the user's functions may call stays as deep as before.

    The end of the object closes it too, as when the loop of an unfinished pipeline is closed.

    Raises TooManyStages.
    """

    _is_open = False

    def __init__(self, pipeline: Sequence[StageInfo]) -> None:
        global _own
        stages = _in_a_row(pipeline)
        self.calls = 0 if stages <= _FEW else _CALLS * stages
        with _lock:
            now = sys.getrecursionlimit()
            own = _own if now == _set else now
            if stages > own // _EACH:
                raise _too_many(stages, own)
            if self.calls:
                _own = own
                _open.append(self.calls)
                self._is_open = True
                _adjust()

    def close(self) -> None:
        """No more signals will pass."""
        with _lock:
            self._close()

    def __del__(self) -> None:
        # Not waiting: this may happen in any call, also while the same thread has the lock.
        if self._is_open and _lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                _lock.release()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            _open.remove(self.calls)
            # Otherwise somebody else has set it since. Inside deeper calls it stays as it is until
            # the next room is closed.
            if sys.getrecursionlimit() == _set:
                with suppress(RecursionError):
                    _adjust()


def _in_a_row(pipeline: Sequence[StageInfo]) -> int:
    """How many stages a signal may pass. From a stream that a stage reads it may go on into one
    other, when the stage requests more there."""
    known: dict[int, int] = {}

    def down_to_last(stages: Iterable[StageInfo]) -> int:
        above = 0
        for stage in stages:
            if stage.number not in known:
                *_, second, longest = sorted((0, above, *map(down_to_last, stage.inputs)))
                known[stage.number] = 1 + longest + second
            above = known[stage.number]
        return above

    # Streams that are shared count twice above, and cannot be more than all.
    return min(down_to_last(pipeline), len(list(all_stages(pipeline))))


def _adjust() -> None:
    global _set
    limit = _own + max(_open, default=0)
    sys.setrecursionlimit(limit)
    _set = limit


def _too_many(stages: int, most: int) -> TooManyStages:
    error = TooManyStages(
        f"the pipeline has {stages:,} stages in a row, through which a signal passes in nested "
        f"calls; Python allows {most:,} of these, which is enough for {most // _EACH} stages. Do "
        "several steps in one function, as of map or adaptive_flat_map"
    )
    add_note(error, f"sys.setrecursionlimit({_EACH * stages}), before the start, allows them")
    return error
