"""Latencies of the keys with the most events, in bounded memory; all other keys together.

Which keys have the most is found as by the Space-Saving algorithm ("Efficient Computation of
Frequent and Top-k Elements in Data Streams", Metwally, Agrawal and El Abbadi, 2005): a key that is
new when there is no room begins with the count of those that were forgotten for it. Here half of
the keys are forgotten at once, as in "A High-Performance Algorithm for Identifying Frequent Items
in Data Streams" (Anderson et al., 2017), which takes O(1) for an event on average.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import accumulate, chain
from operator import add, attrgetter
from struct import pack, unpack
from typing import Any

__all__ = ["KEPT", "PARTS", "KeyLatencies"]

KEPT = 5
"""So many times as many keys are counted as are shown; between two clearings twice as many."""

PARTS = ("waiting", "service", "total")

# Times that are counted together.
_TOGETHER = 128

# Of a float32, its power of two and the first 6 of its 23 digits: cells at most 1.6 % wide.
_CUT = 17


class _Cells:
    """Counts of values by cells that are at most 1.6 % wide: 64 for each power of two."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def count(self, values: Iterable[float]) -> None:
        """Count values; those below 0 as 0."""
        bits = array("I", array("f", values).tobytes())
        # The first bit is the sign.
        self.counts.update([0 if one >> 31 else one >> _CUT for one in bits])

    def summary(self) -> dict[str, float]:
        """Median, p99 and max, each as the upper end of its cell, in the unit of a millionth."""
        cells = sorted(self.counts)
        ends = list(accumulate(map(self.counts.__getitem__, cells)))
        if not ends:
            return {"median": 0.0, "p99": 0.0, "max": 0.0}
        ranks = (max(1, int(share * ends[-1] + 0.5)) for share in (0.5, 0.99, 1.0))
        median, p99, most = (_upper(cells[bisect_left(ends, rank)]) for rank in ranks)
        return {"median": median / 1e6, "p99": p99 / 1e6, "max": most / 1e6}


def _upper(cell: int) -> float:
    """The upper end of a cell; 0 has a cell of its own."""
    upper: float = unpack("f", pack("I", (cell + 1) << _CUT))[0]
    return upper if cell else 0.0


class _Times:
    """The times of one key since it is counted, or of many together."""

    __slots__ = ("_cells", "_service", "_waiting", "before", "count", "most")

    def __init__(self, before: int = 0) -> None:
        self.before = before
        """The most events that it may have had before it was counted."""
        self.count = 0
        self.most = before
        """The most events that it may have had."""
        # Times that are not counted yet: most keys never have as many as are counted together.
        self._waiting: list[float] = []
        self._service: list[float] = []
        self._cells: dict[str, _Cells] | None = None

    def note(self, waiting: list[float], service: list[float]) -> None:
        """Add the times of events, in microseconds."""
        self.count += len(waiting)
        self.most += len(waiting)
        self._waiting += waiting
        self._service += service
        if len(self._waiting) >= _TOGETHER:
            self._counted()

    def _counted(self) -> dict[str, _Cells]:
        if self._cells is None:
            self._cells = {part: _Cells() for part in PARTS}
        waiting, service = self._waiting, self._service
        if waiting:
            self._cells["waiting"].count(waiting)
            self._cells["service"].count(service)
            self._cells["total"].count(map(add, waiting, service))
            waiting.clear()
            service.clear()
        return self._cells

    def add(self, other: _Times) -> None:
        """Add the times of other events; `other` keeps them."""
        self.note(other._waiting, other._service)
        if other._cells is not None:
            self.count += other.count - len(other._waiting)
            mine = self._counted()
            for part, cells in other._cells.items():
                mine[part].counts.update(cells.counts)

    def summaries(self) -> dict[str, Any]:
        """The summary of each part, in seconds."""
        return {part: cells.summary() for part, cells in self._counted().items()}


class KeyLatencies:
    """The latencies of the `shown` hottest keys, and of all others together.

    A key with more than a fifth of 1/`shown` of the events is always among those that are counted;
    `before` says how many it may have had before it was. Time: O(1) for an event on average.
    Memory: three times some 2,000 counts at most, usually a hundred, and 256 times, for 10 times
    `shown` keys.
    """

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._keys: dict[Any, _Times] = {}
        self._forgotten = _Times()
        # No forgotten key has had more events.
        self._floor = 0

    def count(self, times: Mapping[Any, tuple[list[float], list[float]]]) -> None:
        """Count the waiting and service times of events, in microseconds, by their keys."""
        for key, (waiting, service) in times.items():
            one = self._keys.get(key)
            if one is None:
                if len(self._keys) >= 2 * KEPT * self._shown:
                    self._forget()
                one = self._keys[key] = _Times(self._floor)
            one.note(waiting, service)

    def _forget(self) -> None:
        """Forget the half of the keys that has the fewest events."""
        order = sorted(self._keys.items(), key=lambda pair: pair[1].most, reverse=True)
        kept, forgotten = order[: KEPT * self._shown], order[KEPT * self._shown :]
        self._floor = forgotten[0][1].most
        for _, one in forgotten:
            self._forgotten.add(one)
        self._keys = dict(kept)

    def statistics(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The numbers of the hottest keys, and those of all other keys together."""
        hottest = nlargest(
            self._shown, self._keys.items(), key=lambda pair: attrgetter("count", "most")(pair[1])
        )
        shown = {key for key, _ in hottest}
        others = _Times()
        for one in chain(
            (one for key, one in self._keys.items() if key not in shown), (self._forgotten,)
        ):
            others.add(one)
        return (
            [
                {"key": key, "count": one.count, "before": one.before, **one.summaries()}
                for key, one in hottest
            ],
            {"count": others.count, **others.summaries()},
        )
