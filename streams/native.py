"""The commonest stock operators, done without Rx in between: map, filter and flat_map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from reactivex import Observable
from reactivex.internal.utils import is_future

from streams.errors import PenstockError, describe
from streams.event import Event
from streams.faults import blame
from streams.origins import Family
from streams.recognise import Part
from streams.run import Run
from streams.stage import Stage, StageInfo, Subscriber, in_chunks

__all__ = ["native_stage"]

MakeStage = Callable[[Subscriber[Any], Run, StageInfo], Any]


def native_stage(parts: Sequence[Part]) -> MakeStage | None:
    """What makes the stage for an operator that is done natively; None for all others."""
    if len(parts) != 1:
        return None
    (part,) = parts
    match part.name:
        case "map" if callable(part.arguments.get("mapper")):
            mapper = part.arguments["mapper"]
            return lambda downstream, run, info: _Map(downstream, info, mapper)
        case "filter" if callable(part.arguments.get("predicate")):
            predicate = part.arguments["predicate"]
            return lambda downstream, run, info: _Filter(downstream, info, predicate)
        case "flat_map" if _is_function(part.arguments.get("mapper")):
            project: Callable[..., Any] = part.arguments["mapper"]

            def unnumbered(value: Any, _: int) -> Any:
                return project(value)

            return lambda downstream, run, info: _FlatMap(downstream, info, unnumbered)
        case "flat_map_indexed" if _is_function(part.arguments.get("mapper_indexed")):
            numbered = part.arguments["mapper_indexed"]
            return lambda downstream, run, info: _FlatMap(downstream, info, numbered)
        case _:
            return None


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, Observable)


class _Native(Stage[Any, Any]):
    """A stage whose user function may raise, which stops the pipeline."""

    __slots__ = ("_function", "_info")

    def __init__(
        self, downstream: Subscriber[Any], info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream)
        self._info = info
        self._function = function

    def fault(self, event: Event[Any], error: Exception) -> None:
        blame(error, self._info, event)
        event.fail(error)
        self.upstream.cancel()
        self.downstream.on_error(error)

    def statistics(self) -> dict[str, Any]:
        return {}


class _InChunks(_Native):
    """A stage that takes several events in one call where the stage below does."""

    __slots__ = ("_chunky", "_done", "chunks")

    def __init__(
        self, downstream: Subscriber[Any], info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, info, function)
        self._chunky = in_chunks(downstream)
        self.chunks = self._chunky is not None
        self._done = False

    def cancel(self) -> None:
        self._done = True
        super().cancel()

    def pass_on(self, events: list[Event[Any]]) -> None:
        if events and self._chunky is not None:
            self._chunky.on_chunk(events)

    def fault_in(self, events: list[Event[Any]], at: int, error: Exception) -> None:
        """The event at `at` failed: those before it are through, the rest is given back."""
        for rest in events[at + 1 :]:
            rest.give_back()
        if self._done:
            blame(error, self._info, events[at])
            events[at].fail(error)
        else:
            self.fault(events[at], error)


class _Map(_InChunks):
    __slots__ = ()

    def on_next(self, event: Event[Any], /) -> None:
        try:
            event.value = self._function(event.value)
        except Exception as error:
            self.fault(event, error)
        else:
            self.downstream.on_next(event)

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        function = self._function
        for i, event in enumerate(events):
            try:
                event.value = function(event.value)
            except Exception as error:
                self.pass_on(events[:i])
                self.fault_in(events, i, error)
                return
        self.pass_on(events)


class _Filter(_InChunks):
    __slots__ = ()

    def on_next(self, event: Event[Any], /) -> None:
        try:
            passes = self._function(event.value)
        except Exception as error:
            self.fault(event, error)
            return
        if passes:
            self.downstream.on_next(event)
        else:
            event.drop("filter")
            self.upstream.request(1)

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        passed: list[Event[Any]] = []
        for i, event in enumerate(events):
            try:
                passes = self._function(event.value)
            except Exception as error:
                self.pass_on(passed)
                self.fault_in(events, i, error)
                return
            if passes:
                passed.append(event)
            else:
                event.drop("filter")
        dropped = len(events) - len(passed)
        self.pass_on(passed)
        if dropped and not self._done:
            self.upstream.request(dropped)


class _FlatMap(_Native):
    """Takes one result apart at a time, an item for each unit of demand."""

    __slots__ = ("_completed", "_current", "_demand", "_done", "_index", "_outstanding", "_pumping")

    def __init__(
        self, downstream: Subscriber[Any], info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, info, function)
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
                    if not self._demand:
                        return
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
