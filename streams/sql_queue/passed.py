"""Where claims by key have to look, when rows of keys that may not be claimed are in front."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["Passed", "Range"]

Range = tuple[int, int]
"""Whole numbers between two, both excluded."""

# Ids are between these.
_LEAST, _LARGEST = -(2**63) + 1, 2**63 - 1
# The most holes that are looked at one by one. Chosen: each takes some microseconds of every claim.
_MOST = 500


class Passed:
    """The rows up to the id `end` that need not be looked at again, because their keys may not be
    claimed. Without an `end` all are looked at.

    Rows may become visible in another order than their ids'. But no row takes the id of one that
    exists: so unknown rows are in the `holes`, the ranges without a row. Each row up to
    `end` that is in no hole, and is waiting or in work, has a key with a span around it. Until the
    key can be claimed, nobody but who has the key changes such a row. What somebody changes by hand
    is found as `changed`.

    Memory: two numbers for each such key, and for each of at most 500 holes.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Look at all rows again."""
        self.end: int | None = None
        self._holes: list[Range] = []
        self._spans: dict[str, Range] = {}

    @property
    def keys(self) -> list[str]:
        """The keys of the rows."""
        return list(self._spans)

    def begin(self, first: int) -> None:
        """The first row that is waiting or in work has this id."""
        self.end = first - 1
        self._holes = [(_LEAST, first)]

    def where(self, blocked: Collection[str]) -> list[Range]:
        """Where rows may be that can be claimed, if none of the `blocked` keys can, in order."""
        if self.end is None:
            return [(_LEAST, _LARGEST)]
        return _joined([*self._holes, *self._free(blocked), (self.end, _LARGEST)])

    def again(self, blocked: Collection[str], last: int | None, end: int) -> list[Range]:
        """Where rows may be whose keys are to be noted, so that the rows up to `end` are passed by.

        All rows of keys that are not `blocked` were claimed, or those up to the `last`: so far
        their spans begin anew.
        """
        spans = self._free(blocked)
        if last is not None:
            spans = [(after, min(before, last + 1)) for after, before in spans if after < last]
        return _joined([*spans, (end if self.end is None else self.end, end + 1)])

    def _free(self, blocked: Collection[str]) -> list[Range]:
        return [(a - 1, b + 1) for key, (a, b) in self._spans.items() if key not in blocked]

    def passed(
        self,
        blocked: Collection[str],
        last: int | None,
        end: int,
        holes: Iterable[Range],
        keys: Iterable[tuple[str, int, int]],
    ) -> None:
        """The rows up to `end` are passed by: `keys` have the first and last of those `again`."""
        self.end = end
        self._add(holes)
        spans = {key: span for key, span in self._spans.items() if key in blocked}
        if last is not None:
            for key, (a, b) in self._spans.items():
                if key not in blocked and b > last:
                    spans[key] = (max(a, last + 1), b)
        for key, first, until in keys:
            a, b = spans.get(key, (first, until))
            spans[key] = (min(a, first), max(b, until))
        self._spans = spans
        if not spans:
            self.forget()

    def changed(self, ids: Iterable[int]) -> None:
        """Rows that were changed by hand: they are looked at again."""
        self._add((id - 1, id + 1) for id in ids)

    def _add(self, holes: Iterable[Range]) -> None:
        self._holes = _joined([*self._holes, *holes])
        if len(self._holes) > _MOST:
            # What is between the first of them is looked at, too.
            half = len(self._holes) // 2
            self._holes[:half] = [(_LEAST, self._holes[half - 1][1])]


def _joined(ranges: list[Range]) -> list[Range]:
    """The same numbers in ranges that are in order and apart."""
    found: list[Range] = []
    for after, before in sorted(ranges):
        if found and after < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], before))
        else:
            found.append((after, before))
    return found
