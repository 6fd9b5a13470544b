"""flat_map over iterables and finished Observables, done without Rx in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from reactivex import Observable
from reactivex.internal.utils import is_future

from streams.errors import PenstockError, describe
from streams.event import Event
from streams.native import Native
from streams.origins import Family
from streams.run import Run
from streams.slices import Slice, fitting
from streams.stage import StageInfo, Subscriber

__all__ = ["FlatMap"]


class FlatMap(Native):
    """Takes one result apart at a time, an item for each unit of demand.

    A result may be endless: the loop gets a turn between its items. The clock is read once in
    a chunk of them.
    """

    __slots__ = (
        "_chunk",
        "_chunk_began",
        "_completed",
        "_current",
        "_demand",
        "_done",
        "_index",
        "_left",
        "_outstanding",
        "_pumping",
        "_run",
        "_slice",
    )

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, info, function)
        self._run = run
        self._slice = Slice(run, self._pump)
        self._chunk = 1
        self._chunk_began = run.now()
        self._left = 0
        self._current: tuple[Event[Any], Family, Iterator[Any]] | None = None
        self._demand = self._index = 0
        self._outstanding = self._completed = self._pumping = self._done = False

    def request(self, n: int, /) -> None:
        self._demand += n
        self._pump()

    def on_next(self, event: Event[Any], /) -> None:
        self._outstanding = False
        if self._done or self._completed:
            event.give_back()
            return
        try:
            result = self._function(event.value, self._index)
            self._index += 1
            items = iter(_items(result))
        except Exception as error:
            self._completed = self._done = True
            self.fault(event, error)
            return
        self._current = (event, Family(event, self._info.name), items)
        self._pump()

    def on_completed(self) -> None:
        self._completed = True
        self._outstanding = False
        self._pump()

    def on_error(self, error: BaseException, /) -> None:
        self._completed = True
        self._leave()
        self.downstream.on_error(error)

    def cancel(self) -> None:
        if not self._completed:
            self._completed = True
            self.upstream.cancel()
        self._leave()

    def _leave(self) -> None:
        self._done = True
        current, self._current = self._current, None
        if current is not None:
            event, family, items = current
            _close(items)
            event.give_back()
            family.close()

    def _pump(self) -> None:
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._done:
                if self._current is not None:
                    if not self._demand or (not self._left and self._slice_is_over()):
                        return
                    self._left -= 1
                    self._step(*self._current)
                elif self._completed:
                    self._done = True
                    self.downstream.on_completed()
                elif self._demand and not self._outstanding:
                    self._outstanding = True
                    self.upstream.request(1)
                else:
                    return
        finally:
            self._pumping = False

    def _slice_is_over(self) -> bool:
        before, self._chunk_began = self._chunk_began, self._run.now()
        self._chunk = fitting(self._chunk, self._chunk_began - before)
        if self._slice.is_over(self._chunk_began):
            return True
        self._left = self._chunk
        return False

    def _step(self, event: Event[Any], family: Family, items: Iterator[Any]) -> None:
        try:
            item = next(items)
        except StopIteration:
            self._current = None
            family.close()
        except Exception as error:
            self._current = None
            self._done = True
            self.fault(event, error)
            family.close()
        else:
            self._demand -= 1
            self.downstream.on_next(family.child(item))

    def statistics(self) -> dict[str, Any]:
        return {"waiting": int(self._current is not None)}


def _close(items: Iterator[Any]) -> None:
    close: Callable[[], None] | None = getattr(items, "close", None)
    # A generator that cancels its own stream is running: it cannot be closed from inside.
    if close is not None and not getattr(items, "gi_running", False):
        close()


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
