"""An aggregate that is a function of what is known and one more value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from orjson import dumps, loads

from penstock.streams.aggregates.aggregate import BaseAggregate
from penstock.streams.aggregates.plain import require_plain
from penstock.streams.base.errors import BuildError, describe
from penstock.streams.base.validation import is_async, require_parameters

__all__ = ["Folded"]

S = TypeVar("S")

# Of what a function returns only the kind is looked at: the rest would take as long as it is large.
_PLAIN = frozenset({str, int, float, bool, list, dict, type(None)})


class Folded(BaseAggregate[S]):
    """What a function made of the values one by one, in the order in which they came."""

    may_fail = True

    def __init__(
        self,
        start: S,
        function: Callable[[S, Any], S],
        merge: Callable[[S, S], S] | None,
    ) -> None:
        super().__init__(_itself)
        for name, one in {"function": function, "merge": merge}.items():
            if one is None:
                continue
            if not callable(one) or is_async(one):
                raise BuildError(f"agg.fold({name}={describe(one)}): a plain function is needed")
            require_parameters(one, f"agg.fold({name}=)", 2, "two values")
        try:
            require_plain(start, "agg.fold(start=)")
        except ValueError as error:
            raise BuildError(str(error)) from None
        self._initial, self._function, self._merge = start, function, merge
        self.can_merge = merge is not None

    def start(self) -> Any:
        return _copied(self._initial)

    def put(self, acc: Any, read: Any, time: float) -> Any:
        return _checked(self._function(acc, read), "function")

    def merge(self, acc: Any, other: Any, /) -> Any:
        assert self._merge is not None
        # A user's function may change both, or make the second a part of the first.
        return _checked(self._merge(acc, _copied(other)), "merge")

    def result(self, acc: Any, /) -> S:
        found: S = _copied(acc)
        return found


def _itself(value: Any) -> Any:
    return value


def _copied(acc: Any) -> Any:
    return loads(dumps(acc)) if acc.__class__ in (list, dict) else acc


def _checked(found: Any, name: str) -> Any:
    if found.__class__ not in _PLAIN:
        raise ValueError(
            f"agg.fold({name}=) returned {describe(found)}, which is not a text, a number, None, a "
            "list or a dict"
        )
    return found
