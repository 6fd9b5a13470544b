"""The sequenced join: pairs of rows of two relations, over the time in which both are valid.

    left    [------a------)
    right        [-----b------)
    join         [--ab----)

At each instant the result is the plain join of the rows valid at that instant. Source: R. T.
Snodgrass, "Developing Time-Oriented Database Applications in SQL" (1999), sequenced joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.streams.base.errors import add_note, describe
from penstock.streams.base.keys import By
from penstock.streams.temporal.periods.intervals import Axis, in_row, read_all, read_ends

__all__ = ["Overlap", "Overlaps", "sequenced_join"]

L = TypeVar("L")
R = TypeVar("R")


# Not frozen, for the same reason as `Period`.
@dataclass(slots=True)
class Overlap(Generic[L, R]):
    """Both rows were valid from `begin` up to, but not including, `end`; None is open.

    `key` is None where there are no keys.
    """

    key: Any
    begin: Any
    end: Any
    left: L
    right: R


class Overlaps(list[Overlap[L, R]]):
    """The overlaps of two relations.

    `empty` is how many rows of both were skipped because they end where they begin.
    """

    def __init__(self, overlaps: Iterable[Overlap[L, R]] = (), *, empty: int = 0) -> None:
        super().__init__(overlaps)
        self.empty = empty


def sequenced_join(
    left: Iterable[L],
    right: Iterable[R],
    *,
    by: By[L] | None = None,
    begin: By[L] = "from",
    end: By[L] = "to",
    right_by: By[R] | None = None,
    right_begin: By[R] | None = None,
    right_end: By[R] | None = None,
) -> Overlaps[L, R]:
    """Each pair of a left and a right row with equal keys, over the time in which both are valid.

    Without `by` every two rows belong together. `begin` and `end` are those of `sequenced`; a field
    of the right rows has the same name as that of the left ones unless it is given. Keys come in
    the order in which they first appear on the left, the overlaps of a key in the order of their
    beginnings. Overlaps are not coalesced: a row that occurs twice is joined twice.

    O(n log n + overlaps) time, O(n + overlaps) memory. Raises what `sequenced` raises for a bad
    row, with its place in its relation as `row` and a note of which relation it is.

    >>> from penstock.streams.temporal import sequenced_join
    >>> for found in sequenced_join([(0, 6, "a")], [(4, 9, "b"), (6, 7, "c")], begin=0, end=1):
    ...     print(found.begin, found.end, found.left[2], found.right[2])
    4 6 a b
    """
    axis = Axis()
    one = _read("left", list(left), by, begin, end, axis)
    other = _read(
        "right",
        list(right),
        by if right_by is None else right_by,
        begin if right_begin is None else right_begin,
        end if right_end is None else right_end,
        axis,
    )
    found = Overlaps[L, R](empty=one.empty + other.empty)
    for key, rows in one.by_key.items():
        if key in other.by_key:
            found += _joined(key, rows, other.by_key[key])
    return found


class _Row(NamedTuple):
    begin: Any
    end: Any
    row: Any


class _Relation(NamedTuple):
    by_key: dict[Any, list[_Row]]
    empty: int


def _read(
    side: str, table: list[Any], by: By[Any] | None, begin: By[Any], end: By[Any], axis: Axis
) -> _Relation:
    try:
        return _grouped(table, by, begin, end, axis)
    except Exception as error:
        add_note(error, f"in the {side} relation")
        raise


def _grouped(
    table: list[Any], by: By[Any] | None, begin: By[Any], end: By[Any], axis: Axis
) -> _Relation:
    keys = [None] * len(table) if by is None else read_all(table, by)
    begins, ends, empty = Axis().intervals(*read_ends(table, begin, end), "row {}".format)
    if begins:
        try:
            # Both relations need points of one kind.
            axis.point(begins[0])
        except TypeError as error:
            raise in_row(error, 0) from None
    skipped = set(empty)
    by_key: dict[Any, list[_Row]] = {}
    for i, (key, row) in enumerate(zip(keys, map(_Row, begins, ends, table), strict=True)):
        if i in skipped:
            continue
        try:
            by_key.setdefault(key, []).append(row)
        except TypeError:
            kind = type(key).__name__
            raise in_row(TypeError(f"{describe(key)} of type {kind} cannot be a key"), i) from None
    return _Relation(by_key, len(empty))


def _joined(key: Any, left: list[_Row], right: list[_Row]) -> Iterator[Overlap[Any, Any]]:
    """Goes through the beginnings of both in order, with the rows of each side still valid."""
    beginnings = [(row.begin, 0, i) for i, row in enumerate(left)]
    beginnings += [(row.begin, 1, i) for i, row in enumerate(right)]
    valid: tuple[list[_Row], list[_Row]] = [], []
    for begin, side, i in sorted(beginnings):
        row = (left, right)[side][i]
        # Each row that stays makes an overlap, so what this costs is what is found.
        opposite = [one for one in valid[1 - side] if one.end is None or begin < one.end]
        valid[1 - side][:] = opposite
        for one in opposite:
            ends = [end for end in (row.end, one.end) if end is not None]
            pair = (one.row, row.row) if side else (row.row, one.row)
            yield Overlap(key, begin, min(ends, default=None), *pair)
        valid[side].append(row)
