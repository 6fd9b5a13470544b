"""The stages of one-to-many operators: outputs are taken one per unit of demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, cast

from reactivex import Observable

from penstock.streams.base.errors import CALL_ERRORS, PenstockError, describe, own_error
from penstock.streams.boundary.async_items import NOT_YET, AsyncItems
from penstock.streams.boundary.inner_stream import Items, joined
from penstock.streams.boundary.once import new_iterator
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.bounds import MOST_OPEN
from penstock.streams.rx.combining.inputs import as_stream
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.time_slice import TimeSlice, fitting

__all__ = ["MOST_OPEN", "Answer", "Expanding", "FlatMap", "without_index"]

# Iterators over streams and async iterables, which a stage has made for one event.
_OWN = frozenset({Items, AsyncItems})


class Answer:
    """The outputs for one event: taken out of `items`, and children in its `family`."""

    __slots__ = ("event", "family", "items")

    def __init__(self, event: Event[Any], family: Family, items: Iterator[Any]) -> None:
        self.event = event
        self.family = family
        self.items = items


class Expanding(BaseDemandStage):
    """Takes answers apart, at most `feeders` at a time; their values are children of their events.

    `answer(event)` returns the outputs for one input. One value of each open answer is sent in
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

    def answer(self, event: Event[Any]) -> Iterable[Any]:
        """The outputs for one event."""
        raise NotImplementedError

    def survives(self, event: Event[Any], error: Exception) -> bool:
        """Settle an event that could not be answered. Returns False if the stream ends with the
        error."""
        fail_event(event, error, self.info)
        return False

    def waits(self) -> bool:
        """Whether the open answers wait for the one that is requested."""
        return False

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        try:
            answer = self.answer(event)
            items = iter(answer) if type(answer) in _OWN else new_iterator(answer, iter)
        except CALL_ERRORS as raised:
            error = own_error(raised)
            if not self.survives(event, error):
                self.fail(error)
        else:
            # Its first value is next, before the rotation goes on.
            family = Family(event, self.cause or self.info.name)
            self._open.appendleft(Answer(event, family, items))
            self._is_new = True
            if self.state >= CLOSED:
                # The function has cancelled its own stream.
                self.release()

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
        except CALL_ERRORS as raised:
            self.fail(fail_event(event, raised, self.info))
            family.close()
            return True
        except BaseException:
            event.give_back()
            raise
        if self.state >= CLOSED:
            # It has cancelled its own stream.
            if type(items) is Items and item is not NOT_YET:
                item.give_back()
            self._open.append(answer)
            self.release()
            return False
        if item is NOT_YET:
            return self.absent(answer)
        self._open.append(answer)
        child = family.child(item)
        if type(items) is Items:
            child = joined(child)
        self.demand -= 1
        send_list(self.downstream, [child])
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
            except CALL_ERRORS as raised:
                errors.append(own_error(raised))
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
    `function(value, n)`, an iterable, a stream or an Observable.

    Up to `max_concurrent` streams are open at a time. What has items goes first: the next event is
    requested when those that are open wait for theirs. So streams that need not wait are read one
    after another, as iterables are. While as many are open as may be, and all wait, up to `ahead`
    events more are requested, so that an error behind them is not late.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        function: Callable[..., Any],
        max_concurrent: int = MOST_OPEN,
        ahead: int = 0,
        calls: str = "",
    ) -> None:
        super().__init__(downstream, run, info, max_concurrent)
        self._function = function
        # An event may wait before its call, so the stage itself has that traced.
        self._traced = run.traced(info, calls)
        self._most_ahead = ahead
        self._ahead: deque[Event[Any]] = deque()
        self._index = 0

    def take(self, events: list[Event[Any]], /) -> None:
        if self._ahead or self.opened >= self._feeders:
            self._ahead += events
        else:
            super().take(events)

    def step(self) -> bool:
        if self._ahead:
            if not self.demand:
                return False
            if self._has_room() and not self._is_new:
                super().take([self._ahead.popleft()])
                return True
        if self._may_ask_ahead():
            self.ask(1)
            return True
        return super().step()

    def _may_ask_ahead(self) -> bool:
        is_full = self.opened >= self._feeders and not self._open
        may_ask = self.demand and not (self.asked or self.state)
        return bool(is_full and may_ask) and len(self._ahead) < self._most_ahead

    def release(self) -> None:
        super().release()
        ahead = list(self._ahead)
        self._ahead.clear()
        give_back_all(ahead)

    def statistics(self) -> dict[str, Any]:
        """The events whose answers have not been taken to their end, or begun."""
        return {"waiting": self.opened + len(self._ahead)}

    def _has_room(self) -> bool:
        return not self._open and self.opened < self._feeders

    def answer(self, event: Event[Any]) -> Iterable[Any]:
        if self._traced is None:
            result: Any = self._function(event.value, self._index)
        else:
            result = self._traced.call(self._function, event, self._index)
        kind = cast("type[Any]", result.__class__)
        self._index += 1
        is_stream = issubclass(kind, Observable | Future | Coroutine)
        if is_stream or hasattr(kind, "add_done_callback"):
            # A coroutine is refused there.
            return Items(as_stream(self.info.name, result), event, self.run, self.came)
        if hasattr(kind, "__await__"):
            raise PenstockError(
                f"{self.info.name} awaits no coroutines: use adaptive_flat_map(handler)"
            )
        if hasattr(kind, "__iter__"):
            return cast(Iterable[Any], result)
        raise TypeError(
            f"{self.info.name} needs an iterable or a stream for each value, "
            f"not {describe(result, 80)}"
        )


def without_index(function: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    """`function` of a value, as one of a value and its index."""

    def called(value: Any, _: int) -> Any:
        return function(value)

    return called
