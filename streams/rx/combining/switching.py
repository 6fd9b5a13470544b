"""The stages of `switch_latest`, `exclusive` and the like: they read one inner stream at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import CALL_ERRORS
from penstock.streams.boundary.async_items import NOT_YET
from penstock.streams.boundary.nested import Nested
from penstock.streams.execution.handler import called_name
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.flat_map import without_index
from penstock.streams.rx.combining.inputs import as_stream, check_not_async
from penstock.streams.stages.demand_stage import DemandStage
from penstock.streams.stages.stream import Stream

__all__ = ["Exclusive", "Switching", "switched"]

S = TypeVar("S", bound=Stream[Any])


class Switching(DemandStage):
    """Sends the events of the stream that came last; the one before is cancelled.

    A stream is what `function` returns for a value and its index, by default the value. The next
    value is requested while there is demand that the present stream does not meet at once. `calls`
    is the name of the user's function.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        function: Callable[[Any, int], Any] | None = None,
        calls: str = "",
    ) -> None:
        super().__init__(downstream, run, info)
        self._function = function
        self._index = 0
        self._traced = run.traced(info, calls)
        self._event: Event[Any] | None = None
        self._family: Family | None = None
        self._items: Nested | None = None
        # Whether the next of the items may be there.
        self._may_be_there = False

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        self._leave()
        self.open(event)

    def open(self, event: Event[Any]) -> None:
        """Read the stream of `event`."""
        try:
            stream = as_stream(self.info.name, self._stream_of(event))
            items = Nested(stream, event, self.run, self._came)
        except CALL_ERRORS as raised:
            self.fail(fail_event(event, raised, self.info))
        else:
            self._event, self._items = event, items
            self._family = Family(event, self.info.name)
            self._may_be_there = True
            if self.state >= CLOSED:
                # The function has cancelled its own stream.
                self.release()

    def _stream_of(self, event: Event[Any]) -> Any:
        function, index = self._function, self._index
        if function is None:
            return event.value
        self._index += 1

        def project(value: Any) -> Any:
            return function(value, index)

        return project(event.value) if self._traced is None else self._traced.call(project, event)

    @property
    def is_reading(self) -> bool:
        """Whether a stream is open."""
        return self._items is not None

    def _came(self, items: Nested) -> None:
        if items is self._items:
            self._may_be_there = True
            self._drain()

    def step(self) -> bool:
        if self._may_be_there and self.demand:
            return self._next()
        if self.demand and not (self.state or self.asked):
            self.ask(1)
            return True
        if self.state and self._items is None:
            self.complete()
        return False

    def _next(self) -> bool:
        event, family, items = self._event, self._family, self._items
        assert event is not None
        assert family is not None
        assert items is not None
        try:
            item = next(items)
        except StopIteration:
            self._forget()
            family.close()
            return True
        except CALL_ERRORS as raised:
            self._forget()
            self.fail(fail_event(event, raised, self.info))
            family.close()
            return False
        if item is NOT_YET:
            self._may_be_there = False
        elif self.state >= CLOSED or items is not self._items:
            item.give_back()
        else:
            self.send(items.joined(family.child(item)))
        return True

    def _forget(self) -> None:
        self._event = self._family = self._items = None
        self._may_be_there = False

    def _leave(self) -> None:
        """Cancel the present stream. Its event ends as what came of it, or is dropped."""
        family, items = self._family, self._items
        self._forget()
        if family is not None and items is not None:
            items.close()
            family.close()

    def release(self) -> None:
        if self._event is not None:
            self._event.give_back()
        self._leave()

    def statistics(self) -> dict[str, Any]:
        """Whether the event of a stream waits for the stream's end."""
        return {"waiting": int(self.is_reading)}


class Exclusive(Switching):
    """Sends the events of one stream to its end; streams that come meanwhile are dropped."""

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        if self.is_reading:
            event.drop(self.info.name)
        else:
            self.open(event)


def switched(
    name: str,
    source: S,
    function: Callable[..., Any] | None,
    stage: type[Switching] = Switching,
    *,
    indexed: bool = False,
) -> S:
    """`source` read through a `stage` that reads the streams `function(value)`, or the values.

    `indexed`: the function gets the index of the value too. Raises BuildError for an async one.
    """
    arguments = "value, index" if indexed else "value"
    check_not_async(
        name,
        function,
        f"{name}(lambda {arguments}: asyncio.ensure_future({called_name(function)}({arguments}))), "
        "whose future is cancelled when nobody waits for it any more",
    )
    with_index = function if indexed or function is None else without_index(function)
    make = partial(stage, function=with_index, calls=called_name(function))
    return cast("S", source.then(make, StageInfo(name, "", 2, delivery=Delivery(makes=True))))
