"""The commonest stock operators, done without Rx in between: map and filter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from streams.event import Event
from streams.faults import blame
from streams.handler import check_plain, handler_name
from streams.stage import Stage, StageInfo, Subscriber, in_chunks

__all__ = ["Filter", "Map"]


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

    __slots__ = ("_checked", "_chunky", "_done", "chunks")

    def __init__(
        self, downstream: Subscriber[Any], info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream, info, function)
        self._chunky = in_chunks(downstream)
        self.chunks = self._chunky is not None
        self._done = False
        # Types of results that are not coroutines.
        self._checked: set[type] = set()

    def check(self, result: object) -> None:
        """Raise UnfinishedResult for a coroutine."""
        if type(result) not in self._checked:
            check_plain(result, handler_name(self._function), str(self._info))
            self._checked.add(type(result))

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


class Map(_InChunks):
    __slots__ = ()

    def on_next(self, event: Event[Any], /) -> None:
        try:
            self._map(event)
        except Exception as error:
            self.fault(event, error)
        else:
            self.downstream.on_next(event)

    def _map(self, event: Event[Any]) -> None:
        result = self._function(event.value)
        self.check(result)
        event.value = result

    def on_chunk(self, events: list[Event[Any]], /) -> None:
        function = self._function
        at = 0
        try:
            # Of a chunk the first result is looked at: a look at each would cost too much.
            self._map(events[0])
            for at, event in enumerate(islice(events, 1, None), 1):  # noqa: B007 - where it failed
                event.value = function(event.value)
        except Exception as error:
            self.pass_on(events[:at])
            self.fault_in(events, at, error)
            return
        self.pass_on(events)


class Filter(_InChunks):
    __slots__ = ()

    def on_next(self, event: Event[Any], /) -> None:
        try:
            passes = self._function(event.value)
            if passes and passes is not True:
                self.check(passes)
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
                if passes and passes is not True:
                    self.check(passes)
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
