"""A stage that answers an event with any number of values, taken one for each unit of demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.streams.failures.policy import blame
from penstock.streams.flowable import Flowable
from penstock.streams.protocol.acknowledgement import Family, Nobody
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Stage, StageInfo, Subscriber
from penstock.streams.protocol.time_slice import TimeSlice, fitting
from penstock.streams.runtime.context import Run
from penstock.streams.rx.nested import NOT_YET, Nested

__all__ = ["Expanding"]

_NOBODY = Nobody()
_NOTHING = object()


class Expanding(Stage[Any, Any]):
    """Expands one answer at a time; the resulting values are children of their event.

    `answer(value)` returns the outputs for one input; `rest()` the outputs after the last input,
    which acknowledge nothing. An answer may be endless: the stage yields to the loop between its
    values. The clock is read once in a chunk of them. An answer may be a stream, by
    `self.read(stream)`: it is asked for one event at a time, and need not have it at once.
    """

    __slots__ = (
        "_ahead",
        "_chunk",
        "_chunk_began",
        "_completed",
        "_current",
        "_demand",
        "_done",
        "_left",
        "_outstanding",
        "_pumping",
        "_rest",
        "_slice",
        "info",
        "run",
    )

    def __init__(self, downstream: Subscriber[Any], run: Run, info: StageInfo) -> None:
        super().__init__(downstream)
        self.run = run
        self.info = info
        self._slice = TimeSlice(run, self._pump)
        self._chunk = 1
        self._chunk_began = run.now()
        self._left = 0
        self._current: tuple[Event[Any], Family, Iterator[Any]] | None = None
        self._rest: Iterator[Any] | None = None
        self._ahead: Any = _NOTHING
        self._demand = 0
        self._outstanding = self._completed = self._pumping = self._done = False

    def answer(self, value: Any) -> Iterable[Any]:
        """The outputs for one event."""
        raise NotImplementedError

    def read(self, stream: Flowable[Any]) -> Iterable[Any]:
        """The values of a stream, as an answer."""
        return Nested(stream, self.run, self._pump)

    def rest(self) -> Iterable[Any]:
        """The outputs after the last event."""
        return ()

    def survives(self, event: Event[Any], error: Exception) -> bool:
        """Settle an event that could not be answered. Returns False if the stream ends with the
        error."""
        blame(error, self.info, event)
        event.fail(error)
        return False

    def request(self, n: int, /) -> None:
        self._demand += n
        self._pump()

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._outstanding = False
        (event,) = events
        if self._done or self._completed:
            event.give_back()
            return
        try:
            items = iter(self.answer(event.value))
        except Exception as error:
            if not self.survives(event, error):
                self._completed = True
                self._broke(error)
                return
        else:
            self._current = (event, Family(event, self.info.name), items)
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

    def _broke(self, error: Exception) -> None:
        self._done = True
        self.upstream.cancel()
        self.downstream.on_error(error)

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
                    if not self._demand or self._is_out_of_time():
                        return
                    self._left -= 1
                    if not self._step(*self._current):
                        return
                elif self._completed:
                    if not self._say_rest():
                        return
                elif self._demand and not self._outstanding:
                    self._outstanding = True
                    self.upstream.request(1)
                else:
                    return
        finally:
            self._pumping = False

    def _is_out_of_time(self) -> bool:
        if self._left:
            return False
        before, self._chunk_began = self._chunk_began, self.run.now()
        self._chunk = fitting(self._chunk, self._chunk_began - before)
        if self._slice.is_over(self._chunk_began):
            return True
        self._left = self._chunk
        return False

    def _step(self, event: Event[Any], family: Family, items: Iterator[Any]) -> bool:
        """Take one value of the answer; whether it was there, or the end."""
        try:
            item = next(items)
        except StopIteration:
            self._current = None
            family.close()
        except Exception as error:
            self._current = None
            blame(error, self.info, event)
            event.fail(error)
            self._broke(error)
            family.close()
        else:
            if item is NOT_YET:
                return False
            child = family.child(item)
            if type(items) is Nested:
                child = items.joined(child)
            self._demand -= 1
            self.downstream.on_events([child])
        return True

    def _say_rest(self) -> bool:
        """Say one value of the rest, if any may go now, and the end with the last."""
        if self._rest is None:
            self._rest = iter(self.rest())
            self._ahead = next(self._rest, _NOTHING)
        if self._ahead is not _NOTHING:
            if not self._demand or self._is_out_of_time():
                return False
            self._left -= 1
            self._demand -= 1
            value, self._ahead = self._ahead, next(self._rest, _NOTHING)
            self.downstream.on_events([Event(value, self.run.now(), _NOBODY)])
        if self._ahead is _NOTHING and not self._done:
            self._done = True
            self.downstream.on_completed()
        return True

    def statistics(self) -> dict[str, Any]:
        """Whether an event waits whose answer has not been taken to its end."""
        return {"waiting": int(self._current is not None)}


def _close(items: Iterator[Any]) -> None:
    close: Callable[[], None] | None = getattr(items, "close", None)
    # A generator that cancels its own stream is running: it cannot be closed from inside.
    if close is not None and not getattr(items, "gi_running", False):
        close()
