"""The stages of one-to-many operators: outputs are taken one per unit of demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, cast

from reactivex import Observable
from reactivex.abc import DisposableBase

from penstock.streams.errors import HoldExceeded, PenstockError, describe
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.acknowledgement import Family, Nobody
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.demand_stage import DemandStage
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.protocol.time_slice import TimeSlice, fitting
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import HOLD
from penstock.streams.rx.nested import NOT_YET, Nested
from penstock.streams.rx.scheduler import LoopScheduler

__all__ = ["Expanding", "FlatMap"]

_NOBODY = Nobody()
_NOTHING = object()


class Expanding(DemandStage):
    """Takes answers apart, at most `feeders` at a time; their values are children of their events.

    `answer(value)` returns the outputs for one input; `rest()` the outputs after the last input,
    which acknowledge nothing. One value of each open answer is sent in rotation, and another answer
    is opened as soon as there is room. An answer may be endless: the stage yields to the loop
    between its values. The clock is read once per chunk of them.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, feeders: int = 1
    ) -> None:
        super().__init__(downstream, run, info)
        self._feeders = feeders
        self._open: deque[tuple[Event[Any], Family, Iterator[Any]]] = deque()
        # Whether the answer that was opened last has sent nothing yet.
        self._is_new = False
        self._rest: Iterator[Any] | None = None
        self._ahead: Any = _NOTHING
        self._slice = TimeSlice(run, self.go_on)
        self._chunk = 1
        self._chunk_began = run.now()
        self._left = 0

    def answer(self, value: Any) -> Iterable[Any]:
        """The outputs for one event."""
        raise NotImplementedError

    def rest(self) -> Iterable[Any]:
        """The outputs after the last event."""
        return ()

    def survives(self, event: Event[Any], error: Exception) -> bool:
        """Settle an event that could not be answered. Returns False if the stream ends with the
        error."""
        blame(error, self.info, event)
        event.fail(error)
        return False

    def family(self, event: Event[Any]) -> Family:
        """The origin of an event's values, and why it is dropped if there are none."""
        return Family(event, self.info.name)

    def waits(self) -> bool:
        """Whether the open answers wait for the one that is requested."""
        return False

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        try:
            items = iter(self.answer(event.value))
        except Exception as error:
            if not self.survives(event, error):
                self.fail(error)
        else:
            # Its first value is next, before the rotation goes on.
            self._open.appendleft((event, self.family(event), items))
            self._is_new = True

    def step(self) -> bool:
        if not self.demand:
            # The end needs none.
            return self.ended and not self._open and self._end()
        if len(self._open) < self._feeders and not (self.asked or self.ended or self._is_new):
            self.ask(1)
            return True
        if self.asked and self.waits():
            return False
        if not self._open:
            return self.ended and self._end()
        return (self._left > 0 or self._has_time()) and self._next()

    def _has_time(self) -> bool:
        """Whether another chunk of values may be sent before the loop goes on."""
        before, self._chunk_began = self._chunk_began, self.run.now()
        self._chunk = fitting(self._chunk, self._chunk_began - before)
        if self._slice.is_over(self._chunk_began):
            return False
        self._left = self._chunk
        return True

    def _next(self) -> bool:
        """Send the next value of the first answer; False if it is still to come."""
        event, family, items = answer = self._open.popleft()
        self._is_new = False
        self._left -= 1
        try:
            item = next(items)
        except StopIteration:
            family.close()
            return True
        except Exception as error:
            blame(error, self.info, event)
            event.fail(error)
            self.fail(error)
            family.close()
            return True
        self._open.append(answer)
        if self.done:
            # It has cancelled its own stream.
            self.leave()
            return False
        if item is NOT_YET:
            return False
        child = family.child(item)
        if type(items) is Nested:
            child = items.joined(child)
        self.demand -= 1
        self.downstream.on_events([child])
        return True

    def _end(self) -> bool:
        """Send one value of the rest, if any may go now, or complete after the last."""
        if self._rest is None:
            self._rest = iter(self.rest())
            self._ahead = next(self._rest, _NOTHING)
        if self._ahead is _NOTHING:
            self.complete()
        elif not (self.demand and (self._left > 0 or self._has_time())):
            return False
        else:
            self._left -= 1
            value, self._ahead = self._ahead, next(self._rest, _NOTHING)
            self.send(Event(value, self.run.now(), _NOBODY))
        return True

    def leave(self) -> None:
        errors: list[Exception] = []
        while self._open:
            event, family, items = self._open.popleft()
            close: Callable[[], None] | None = getattr(items, "close", None)
            try:
                if close is not None:
                    close()
            except Exception as error:
                errors.append(error)
            event.give_back()
            family.close()
        for each in errors:
            (self.run.failed if self.error is None else self.run.late_error)(each)

    def statistics(self) -> dict[str, Any]:
        """The events whose answers have not been taken to their end."""
        return {"waiting": len(self._open)}


class FlatMap(Expanding):
    """flat_map without Rx in between: the n-th value is answered with the items of
    `function(value, n)`."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self._function = function
        self._index = 0
        # A separate scheduler: in reactivex's trampoline, where this stage may run, they would
        # wait.
        self._scheduler = LoopScheduler(run, info)

    def answer(self, value: Any) -> Iterable[Any]:
        result: Any = self._function(value, self._index)
        kind = cast("type[Any]", result.__class__)
        self._index += 1
        if issubclass(kind, Flowable):
            return Nested(result, self.run, self.go_on)
        if issubclass(kind, Observable):
            return _values(result, self._scheduler)
        if issubclass(kind, Future) or hasattr(kind, "__await__"):
            raise PenstockError(
                "flat_map over futures starts work without bounds: use adaptive_flat_map(handler)"
            )
        if hasattr(kind, "__iter__"):
            return cast(Iterable[Any], result)
        raise TypeError(f"flat_map needs an iterable for each value, not {describe(result, 80)}")


def _values(observable: Observable[Any], scheduler: LoopScheduler) -> Iterable[Any]:
    """The values of a finished Observable, at most `HOLD`: it cannot be read one at a time."""
    # Imported here: slow to import, and `spread` needs this module in most pipelines.
    from reactivex.operators import take

    items: list[Any] = []
    ended: list[Exception | None] = []
    beginning = observable.pipe(take(HOLD + 1))

    def subscribe(*_: object) -> DisposableBase:
        return beginning.subscribe(
            items.append, ended.append, lambda: ended.append(None), scheduler=scheduler
        )

    # Inside the scheduler, which lets it emit when it has subscribed, and not before: then it
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
    """The first values of an Observable: a request for more is an error."""
    yield from items
    raise HoldExceeded(
        f"flat_map's function returned an Observable that emits more than {HOLD:,} values at once "
        "and cannot be asked for fewer: return an iterable, such as a generator, or a stream of "
        "this library, such as from_iterable(...), which are read only as far as needed"
    )
