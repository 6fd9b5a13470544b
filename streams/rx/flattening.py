"""flat_map over iterables, streams and finished Observables, done without Rx in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, cast

from reactivex import Observable
from reactivex.abc import DisposableBase
from reactivex.operators import take

from penstock.streams.errors import HoldExceeded, PenstockError, describe
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.rx.flat_map import Expanding
from penstock.streams.rx.lift import HOLD
from penstock.streams.rx.scheduler import LoopScheduler

__all__ = ["FlatMap"]


class FlatMap(Expanding):
    """Answers the n-th value with the items of `function(value, n)`."""

    __slots__ = ("_function", "_index", "_scheduler")

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self._function = function
        self._index = 0
        # One of its own: in reactivex's trampoline, where this stage may run, they would wait.
        self._scheduler = LoopScheduler(run, info)

    def answer(self, value: Any) -> Iterable[Any]:
        result = self._function(value, self._index)
        self._index += 1
        if isinstance(result, Flowable):
            # What it is a stream of, nobody can say.
            return self.read(result)  # pyright: ignore[reportUnknownArgumentType]
        return _items(result, self._scheduler)


def _items(result: object, scheduler: LoopScheduler) -> Iterable[Any]:
    """The items of what a flat_map's function returned: an iterable, or a finished Observable."""
    if isinstance(result, Observable):
        # What it is a stream of, nobody can say.
        return _finished_items(result, scheduler)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(result, Future) or hasattr(type(result), "__await__"):
        raise PenstockError(
            "flat_map over futures starts work without bounds: use adaptive_flat_map(handler)"
        )
    if hasattr(type(result), "__iter__"):
        return cast(Iterable[Any], result)
    raise TypeError(f"flat_map needs an iterable for each value, not {describe(result, 80)}")


def _finished_items(observable: Observable[Any], scheduler: LoopScheduler) -> Iterable[Any]:
    """Its values, of which no more than `HOLD` are kept: it cannot be asked for one at a time."""
    items: list[Any] = []
    ended: list[Exception | None] = []
    beginning = observable.pipe(take(HOLD + 1))

    def subscribe(*_: object) -> DisposableBase:
        return beginning.subscribe(
            items.append, ended.append, lambda: ended.append(None), scheduler=scheduler
        )

    # Inside of the scheduler, which lets it emit when it has subscribed, and not before: then it
    # can be unsubscribed from half-way.
    subscription = scheduler.schedule(subscribe)
    if not ended:
        subscription.dispose()
        raise PenstockError(
            "flat_map over an Observable that goes on later has no bound: return "
            "Flowable.of(observable, on_overflow=...), "
            "or use adaptive_flat_map with an async iterator"
        )
    if ended[0] is not None:
        raise ended[0]
    return items if len(items) <= HOLD else _beginning(items[:HOLD])


def _beginning(items: list[Any]) -> Iterator[Any]:
    """The first values of an Observable: to want more than these is an error."""
    yield from items
    raise HoldExceeded(
        f"flat_map's function returned an Observable that emits more than {HOLD:,} values at once "
        "and cannot be asked for fewer: return an iterable, such as a generator, or a stream of "
        "this library, such as from_iterable(...), which are read as far as they are wanted"
    )
