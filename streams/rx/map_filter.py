"""The stages of map, filter and scan, the most common stock operators, without Rx in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from operator import length_hint
from typing import Any

from reactivex import operators as ops

from penstock.streams.base.errors import CALL_ERRORS, check_plain
from penstock.streams.execution.handler import handler_name
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import BaseEvent, Event, drop_all
from penstock.streams.protocol.stage import BaseStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["Filter", "Map", "Scan"]

# The seed of a scan that has none.
_NO_SEED = signature(ops.scan).parameters["seed"].default


class _FunctionStage(BaseStage):
    """The base of both: what the user's function raises stops the pipeline."""

    answers = False
    """Whether a result is a truth, not a value."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        function: Callable[..., Any],
    ) -> None:
        super().__init__(downstream)
        self._run = run
        self._current = run.current
        self._info = info
        self._function = function
        # Types of results that are not coroutines.
        self._checked: set[type] = set()
        # While the function is called: of the list, what follows the event that it is called for.
        self.calling: Iterator[Event[Any]] | None = None

    def check(self, result: object) -> None:
        """Raise UnfinishedResult for what is worked out later; its type is known from then on."""
        check_plain(result, handler_name(self._function), str(self._info), answers=self.answers)
        self._checked.add(type(result))


class Map(_FunctionStage):
    def on_events(self, events: list[Event[Any]], /) -> None:
        function, current = self._function, self._current
        event: BaseEvent
        self.calling = calling = iter(events)
        outer, current.stage = current.stage, self
        try:
            try:
                # Only the first result of a list is checked: checking each would cost too much.
                first = next(calling)
                result = function(first.value)
                if type(result) not in self._checked:
                    self.check(result)
                first.value = result
                for event in calling:
                    event.value = function(event.value)
            finally:
                current.stage, self.calling = outer, None
        except CALL_ERRORS as raised:
            at = len(events) - length_hint(calling) - 1
            self._fail(fail_event(events[at], raised, self._info), events[:at], events[at + 1 :])
        else:
            self.downstream.on_events(events)


class Scan(_FunctionStage):
    """A map by a function that is called with its last result, too; the first one is made with the
    seed, or is the first value."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        accumulator: Callable[[Any, Any], Any],
        seed: Any,
    ) -> None:
        super().__init__(downstream, run, info, accumulator)
        self._last = seed

    def on_events(self, events: list[Event[Any]], /) -> None:
        accumulator, current = self._function, self._current
        event: BaseEvent
        at = 0
        self.calling = calling = iter(events)
        outer, current.stage = current.stage, self
        try:
            try:
                for event in calling:
                    last = self._last
                    result = event.value if last is _NO_SEED else accumulator(last, event.value)
                    if not at and type(result) not in self._checked:
                        self.check(result)
                    event.value = self._last = result
                    at += 1
            finally:
                current.stage, self.calling = outer, None
        except CALL_ERRORS as raised:
            self._fail(fail_event(events[at], raised, self._info), events[:at], events[at + 1 :])
        else:
            self.downstream.on_events(events)


class Filter(_FunctionStage):
    answers = True

    def on_events(self, events: list[Event[Any]], /) -> None:
        predicate, current = self._function, self._current
        event: BaseEvent
        passed: list[Event[Any]] = []
        dropped: list[Event[Any]] = []
        self.calling = calling = iter(events)
        outer, current.stage = current.stage, self
        try:
            try:
                for event in calling:
                    passes = predicate(event.value)
                    if passes and passes is not True and type(passes) not in self._checked:
                        self.check(passes)
                    (passed if passes else dropped).append(event)
            finally:
                current.stage, self.calling = outer, None
        except CALL_ERRORS as raised:
            drop_all(dropped, "filter")
            at = len(events) - length_hint(calling) - 1
            self._fail(fail_event(events[at], raised, self._info), passed, events[at + 1 :])
        else:
            drop_all(dropped, "filter")
            self._let_pass(passed, len(events))
