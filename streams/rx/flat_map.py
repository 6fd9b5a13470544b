"""The stages of one-to-many operators: outputs are taken one per unit of demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, cast

from reactivex import Observable
from reactivex.abc import DisposableBase

from penstock.streams.boundary.async_items import NOT_YET
from penstock.streams.errors import HoldExceeded, PenstockError, as_raised, describe
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.acknowledgement import AckHook, Family, Joined, Lessor
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.demand_stage import DemandStage
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import (
    CLOSED,
    UNCONNECTED,
    StageInfo,
    Subscriber,
    Subscription,
    is_second,
)
from penstock.streams.protocol.time_slice import TimeSlice, fitting
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import HOLD
from penstock.streams.rx.scheduler import LoopScheduler

__all__ = ["Answer", "Expanding", "FlatMap"]


class _Nested(AckHook, Iterator[Any]):
    """Iterates over the events of `stream`, each requested when it is needed.

    If an event does not come at once, the result is NOT_YET, and `arrived` is called when it is
    there, or the end. Memory: one event. The stream has its own run, which lasts until the stream
    and all its events have ended. Its error is raised; `close` cancels it.
    """

    upstream: Subscription = UNCONNECTED

    def __init__(
        self, stream: Flowable[Any], run: Run, arrived: Callable[[_Nested], object]
    ) -> None:
        self._run = run
        self._arrived = arrived
        self._event: Event[Any] | None = None
        self._ending: tuple[BaseException | None] | None = None
        self._asked = self._left = False
        self._unfinished = 0
        self._lessors: list[Lessor] = []
        self._own = run.nested()
        self._own.on_failed = self.on_error
        leased = len(run.lessors)
        try:
            stream.attach(self, self._own)
        except BaseException:
            self.close()
            raise
        finally:
            # Stages below also check whether leased events may begin.
            self._lessors = run.lessors[leased:]

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._asked = False
        (event,) = events
        if self._ending is not None:
            event.give_back()
            return
        event.outer = (event.origin, event.outer)
        event.origin = self
        self._unfinished += 1
        self._event = event
        self._arrived(self)

    def on_completed(self) -> None:
        self._over(None)

    def on_error(self, error: BaseException, /) -> None:
        self._over(error)

    def _over(self, error: BaseException | None) -> None:
        if self._ending is None:
            self._ending = (error,)
            self._arrived(self)
            self._leave_if_over()
        elif error is not None:
            self._run.late_error(error)

    def __next__(self) -> Any:
        if self._event is None and self._ending is None and not self._asked:
            self._asked = True
            self.upstream.request(1)
        event, self._event = self._event, None
        if event is not None:
            return event
        if self._ending is None:
            return NOT_YET
        (error,) = self._ending
        if error is not None:
            raise as_raised(error)
        raise StopIteration

    @staticmethod
    def joined(child: Event[Any]) -> Event[Any]:
        """Join the event in the value of `child` with it: both origins are notified of its end."""
        event: Event[Any] = child.value
        joined = Event(event.value, child.created, Joined((child, event)), child.token)
        joined.started = child.started
        if child.started is not None:
            joined.ended = child.ended
        joined.turn, child.turn = child.turn, None
        return joined

    def ended(
        self, events: list[Event[Any]], ending: Ending, error: BaseException | None, /
    ) -> None:
        self._unfinished -= len(events)
        self._leave_if_over()

    def _leave_if_over(self) -> None:
        if self._ending is not None and not self._unfinished and not self._left:
            self._left = True
            for lessor in self._lessors:
                self._run.lessors.remove(lessor)
            self._run.leave(self._own)

    def close(self) -> None:
        """Cancel the stream, and return the event that has come from it and was not taken."""
        if self._ending is None:
            self._ending = (None,)
            self.upstream.cancel()
        event, self._event = self._event, None
        if event is not None:
            event.give_back()
        self._leave_if_over()


class Answer:
    """The outputs for one event, which are taken out of `items` and are children in its `family`.

    `place` is that of the last one among all that the stage has sent, for a stage that counts them.
    """

    __slots__ = ("event", "family", "items", "place")

    def __init__(self, event: Event[Any], family: Family, items: Iterator[Any]) -> None:
        self.event = event
        self.family = family
        self.items = items
        self.place = 0


class Expanding(DemandStage):
    """Takes answers apart, at most `feeders` at a time; their values are children of their events.

    `answer(value)` returns the outputs for one input. One value of each open answer is sent in
    rotation, and another answer is opened as soon as there is room. An answer whose next value is
    NOT_YET leaves the rotation until its iterator is passed to `came`. An answer may be endless:
    the stage yields to the loop between its values. The clock is read once per chunk of them.
    """

    cause = ""
    """Why an event without values is dropped; by default the name of the stage."""

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, feeders: int = 1
    ) -> None:
        super().__init__(downstream, run, info)
        self._feeders = feeders
        self._open: deque[Answer] = deque()
        self._away: dict[Iterator[Any], Answer] = {}
        # Whether no other is opened before the first one's next value: it was opened last.
        self._is_new = False
        self._slice = TimeSlice(run, self._drain)
        self._chunk = 1
        self._chunk_began = run.now()
        self._left = 0

    def answer(self, value: Any) -> Iterable[Any]:
        """The outputs for one event."""
        raise NotImplementedError

    def survives(self, event: Event[Any], error: Exception) -> bool:
        """Settle an event that could not be answered. Returns False if the stream ends with the
        error."""
        blame(error, self.info, event)
        event.fail(error)
        return False

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
            family = Family(event, self.cause or self.info.name)
            self._open.appendleft(Answer(event, family, items))
            self._is_new = True

    def step(self) -> bool:
        is_empty = not (self._open or self._away)
        if not self.demand:
            # The end needs none.
            return bool(self.state) and is_empty and self.send_rest()
        if self._has_room() and not (self.asked or self.state or self._is_new):
            self.ask(1)
            return True
        if (self.asked or self._away) and not self._open:
            return False
        if self.asked and self.waits():
            return False
        if not self._left and not self._has_time():
            return False
        self._left -= 1
        return self._next() if self._open else self.send_rest()

    def _has_room(self) -> bool:
        return self.opened < self._feeders

    def came(self, items: Iterator[Any]) -> None:
        """The value that an answer waited for is there, or its end or an error."""
        answer = self._away.pop(items, None)
        if answer is not None:
            self._open.append(answer)
        self._drain()

    def absent(self, answer: Answer) -> bool:
        """The next value has not come. Returns whether the rotation goes on without it."""
        self._away[answer.items] = answer
        return True

    def sent(self, answer: Answer) -> None:
        """A value of this answer is being sent."""

    def _has_time(self) -> bool:
        """Whether another chunk of values may be sent before the loop goes on."""
        before, self._chunk_began = self._chunk_began, self.run.now()
        self._chunk = fitting(self._chunk, self._chunk_began - before)
        if self._slice.is_over(self._chunk_began):
            return False
        self._left = self._chunk
        return True

    def _next(self) -> bool:
        """Send the next value of the first answer."""
        answer = self._open.popleft()
        event, family, items = answer.event, answer.family, answer.items
        self._is_new = False
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
        if item is NOT_YET:
            return self.absent(answer)
        self._open.append(answer)
        if self.state >= CLOSED:
            # It has cancelled its own stream.
            self.release()
            return False
        child = family.child(item)
        if type(items) is _Nested:
            child = items.joined(child)
        self.sent(answer)
        self.demand -= 1
        self.downstream.on_events([child])
        return True

    def release(self) -> None:
        errors: list[Exception] = []
        answers = [*self._open, *self._away.values()]
        self._open.clear()
        self._away.clear()
        for answer in answers:
            close: Callable[[], None] | None = getattr(answer.items, "close", None)
            try:
                if close is not None:
                    close()
            except Exception as error:
                errors.append(error)
            answer.event.give_back()
            answer.family.close()
        for each in errors:
            (self.run.failed if self.error is None else self.run.late_error)(each)

    @property
    def opened(self) -> int:
        """The answers that have not been taken to their end."""
        return len(self._open) + len(self._away)

    def statistics(self) -> dict[str, Any]:
        """The events whose answers have not been taken to their end."""
        return {"waiting": self.opened}


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
            return _Nested(result, self.run, self.came)
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
