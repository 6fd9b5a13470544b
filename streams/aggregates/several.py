"""Several aggregates of the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orjson import dumps, loads

from penstock.streams.aggregates.aggregate import (
    Aggregate,
    BaseAggregate,
    can_merge,
    require_aggregate,
)
from penstock.streams.base.errors import BuildError

__all__ = ["Several"]


class Several(BaseAggregate[dict[str, Any]]):
    """A dict of aggregates, with a dict of their results. All of them have an event, or none."""

    def __init__(self, parts: Mapping[Any, Aggregate[Any]]) -> None:
        super().__init__()
        if not parts:
            raise BuildError("window({}): a dict of aggregates needs at least one")
        for name, part in parts.items():
            if not isinstance(name, str):
                raise BuildError(f"window(): a result needs a text as its name, not {name!r}")
            require_aggregate(part, f"window(), {name!r}")
        self.can_merge = all(map(can_merge, parts.values()))
        self._names = list(parts)
        self._parts = list(parts.values())
        # Those whose `put` may fail come before those that change what they have.
        ours = [one if isinstance(one, BaseAggregate) else _Own(one) for one in self._parts]
        self._readers = [one.read for one in ours]
        order = sorted(range(len(ours)), key=lambda at: not ours[at].may_fail)
        self._sure = [(at, ours[at].put) for at in order if not ours[at].may_fail]
        self._unsure = [(at, ours[at].put) for at in order if ours[at].may_fail]

    def start(self) -> Any:
        return [part.start() for part in self._parts]

    def add(self, acc: Any, value: Any, time: float, /) -> Any:
        read = [read(value) for read in self._readers]
        if self._unsure:
            self._put_unsure(acc, read, time)
        for at, put in self._sure:
            acc[at] = put(acc[at], read[at], time)
        return acc

    def _put_unsure(self, acc: Any, read: list[Any], time: float) -> None:
        """Add to those that may fail: to all of them, or to none."""
        before: list[Any] = []
        last = len(self._unsure) - 1
        try:
            for number, (at, put) in enumerate(self._unsure):
                one = acc[at]
                can_change = one.__class__ in (list, dict) and number < last
                before.append(loads(dumps(one)) if can_change else one)
                acc[at] = put(one, read[at], time)
        except Exception:
            for (at, _), one in zip(self._unsure, before, strict=False):
                acc[at] = one
            raise

    def merge(self, acc: Any, other: Any, /) -> Any:
        for at, part in enumerate(self._parts):
            acc[at] = part.merge(acc[at], other[at])
        return acc

    def result(self, acc: Any, /) -> dict[str, Any]:
        return {
            name: part.result(one)
            for name, part, one in zip(self._names, self._parts, acc, strict=True)
        }


class _Own(BaseAggregate[Any]):
    """A user's own aggregate: nothing is known of where it may fail."""

    may_fail = True

    def __init__(self, own: Aggregate[Any]) -> None:
        super().__init__(_itself)
        self._own = own

    def put(self, acc: Any, read: Any, time: float) -> Any:
        return self._own.add(acc, read, time)


def _itself(value: Any) -> Any:
    return value
