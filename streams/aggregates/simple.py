"""Aggregates whose state is one value: the count, the least and greatest, the first and last."""

from __future__ import annotations

from operator import ge, gt, lt
from typing import Any

from penstock.streams.aggregates.aggregate import BaseAggregate, reader
from penstock.streams.aggregates.plain import is_plain, require_plain
from penstock.streams.base.errors import describe
from penstock.streams.base.keys import By, key_name

__all__ = ["Count", "Extreme", "First", "Last", "plain_reader"]


class Count(BaseAggregate[int]):
    """The number of values."""

    def start(self) -> Any:
        return 0

    def put(self, acc: Any, read: Any, time: float) -> Any:
        return acc + 1

    def add(self, acc: Any, value: Any, time: float, /) -> Any:
        return acc + 1

    def merge(self, acc: Any, other: Any, /) -> Any:
        return acc + other

    def result(self, acc: Any, /) -> int:
        count: int = acc
        return count


_ORDERED = frozenset({int, float, str})


class Extreme(BaseAggregate[Any]):
    """The least or the greatest of a number or text of each value."""

    # Texts and numbers have no order.
    may_fail = True

    def __init__(self, of: By[Any], name: str) -> None:
        super().__init__(self._ordered)
        self._what = f"{name}({key_name(of)})"
        self._read = reader(of, name)
        self._is_before = lt if name == "least" else gt

    def start(self) -> Any:
        return None

    def _ordered(self, value: Any) -> Any:
        """What is read of a value. ValueError for what has no order."""
        found = self._read(value)
        if found.__class__ in _ORDERED and is_plain(found):
            return found
        raise ValueError(f"{self._what}: {describe(found)} is not a number or a text")

    def put(self, acc: Any, read: Any, time: float) -> Any:
        try:
            return read if acc is None or self._is_before(read, acc) else acc
        except TypeError:
            raise ValueError(
                f"{self._what}: {describe(read)} cannot be compared with {describe(acc)}"
            ) from None

    def merge(self, acc: Any, other: Any, /) -> Any:
        return acc if other is None else self.put(acc, other, 0.0)

    def result(self, acc: Any, /) -> Any:
        return acc


class First(BaseAggregate[Any]):
    """The value, or a field of it, with the least time; of equal times, the one that came first."""

    _name = "first"
    _replaces = staticmethod(lt)

    def __init__(self, of: By[Any] | None) -> None:
        super().__init__(plain_reader(of, self._name))

    def start(self) -> Any:
        return None

    def put(self, acc: Any, read: Any, time: float) -> Any:
        if acc is None or self._replaces(time, acc[0]):
            return [time, read]
        return acc

    def merge(self, acc: Any, other: Any, /) -> Any:
        return acc if other is None else self.put(acc, other[1], other[0])

    def result(self, acc: Any, /) -> Any:
        return acc[1]


class Last(First):
    """The value, or a field of it, with the greatest time; of equal times, the one that came
    last."""

    _name = "last"
    _replaces = staticmethod(ge)


def plain_reader(of: By[Any] | None, name: str) -> Any:
    """Reads the field `of`, or the value itself. ValueError for what is not plain."""
    read = None if of is None else reader(of, name)
    what = f"{name}({'' if of is None else key_name(of)})"

    def read_plain(value: Any) -> Any:
        found = value if read is None else read(value)
        require_plain(found, what)
        return found

    return read_plain
