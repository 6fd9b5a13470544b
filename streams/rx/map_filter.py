"""The commonest stock operators, done without Rx in between: map and filter."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from penstock.streams.execution.handler import check_plain, handler_name
from penstock.streams.failures.policy import blame
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Stage, StageInfo, Subscriber

__all__ = ["Filter", "Map"]


class _Native(Stage[Any, Any]):
    """A stage whose user function may raise, which stops the pipeline."""

    __slots__ = ("_checked", "_done", "_function", "_info")

    def __init__(
        self, downstream: Subscriber[Any], info: StageInfo, function: Callable[..., Any]
    ) -> None:
        super().__init__(downstream)
        self._info = info
        self._function = function
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
        if events:
            self.downstream.on_events(events)

    def fault(self, events: list[Event[Any]], at: int, error: Exception) -> None:
        """The event at `at` failed: those before it are through, the rest is given back."""
        for rest in events[at + 1 :]:
            rest.give_back()
        blame(error, self._info, events[at])
        events[at].fail(error)
        if not self._done:
            self.upstream.cancel()
            self.downstream.on_error(error)

    def statistics(self) -> dict[str, Any]:
        return {}


class Map(_Native):
    __slots__ = ()

    def on_events(self, events: list[Event[Any]], /) -> None:
        function = self._function
        at = 0
        try:
            # Of a list the first result is looked at: a look at each would cost too much.
            first = events[0]
            result = function(first.value)
            self.check(result)
            first.value = result
            for at, event in enumerate(islice(events, 1, None), 1):  # noqa: B007 - where it failed
                event.value = function(event.value)
        except Exception as error:
            self.pass_on(events[:at])
            self.fault(events, at, error)
            return
        self.downstream.on_events(events)


class Filter(_Native):
    __slots__ = ()

    def on_events(self, events: list[Event[Any]], /) -> None:
        passed: list[Event[Any]] = []
        for i, event in enumerate(events):
            try:
                passes = self._function(event.value)
                if passes and passes is not True:
                    self.check(passes)
            except Exception as error:
                self.pass_on(passed)
                self.fault(events, i, error)
                return
            if passes:
                passed.append(event)
            else:
                event.drop("filter")
        dropped = len(events) - len(passed)
        self.pass_on(passed)
        if dropped and not self._done:
            self.upstream.request(dropped)
