"""flat_map over iterables and finished Observables, done without Rx in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from reactivex import Observable
from reactivex.internal.utils import is_future

from streams.errors import PenstockError, describe
from streams.expanding import Expanding
from streams.run import Run
from streams.stage import StageInfo, Subscriber

__all__ = ["FlatMap"]


class FlatMap(Expanding):
    """Answers the n-th value with the items of `function(value, n)`."""

    __slots__ = ("_function", "_index")

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self._function = function
        self._index = 0

    def answer(self, value: Any) -> Iterable[Any]:
        result = self._function(value, self._index)
        self._index += 1
        return _items(result)


def _items(result: object) -> Iterable[Any]:
    """The items of what a flat_map's function returned: an iterable, or a finished Observable."""
    if isinstance(result, Observable):
        # What it is a stream of, nobody can say.
        return _finished_items(result)  # pyright: ignore[reportUnknownArgumentType]
    if is_future(result) or hasattr(type(result), "__await__"):
        raise PenstockError(
            "flat_map over futures starts work without bounds: use adaptive_flat_map(handler)"
        )
    if hasattr(type(result), "__iter__"):
        return cast(Iterable[Any], result)
    raise TypeError(f"flat_map needs an iterable for each value, not {describe(result, 80)}")


def _finished_items(observable: Observable[Any]) -> list[Any]:
    items: list[Any] = []
    ended: list[Exception | None] = []
    subscription = observable.subscribe(items.append, ended.append, lambda: ended.append(None))
    if not ended:
        subscription.dispose()
        raise PenstockError(
            "flat_map over an Observable that goes on later has no bound: use "
            "adaptive_flat_map with an async iterator, or Flowable.of(observable, on_overflow=...)"
        )
    if ended[0] is not None:
        raise ended[0]
    return items
