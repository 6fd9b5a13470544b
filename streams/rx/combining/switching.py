"""The stages of `switch_latest`, `exclusive` and the like: they read one inner stream at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from penstock.streams.base.errors import CALL_ERRORS, as_raised
from penstock.streams.boundary.inner_stream import Input, joined
from penstock.streams.execution.handler import called_name
from penstock.streams.protocol.acknowledgement import Family
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.flat_map import without_index
from penstock.streams.rx.combining.inputs import as_stream, check_not_async
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.stream import Stream

__all__ = ["Exclusive", "Switching", "switched"]

S = TypeVar("S", bound=Stream[Any])


class Switching(BaseDemandStage):
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
        self._family: Family | None = None
        self._input: Input | None = None
        # The event that has come and is not sent, and how the stream has ended.
        self._came: Event[Any] | None = None
        self._ended: tuple[BaseException | None] | None = None

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        self._leave()
        self._open(event)

    def _open(self, event: Event[Any]) -> None:
        try:
            stream = as_stream(self.info.name, self._stream_of(event))
            self._input = Input(stream, self.run.nested(event), self)
            self._family = Family(event, self.info.name)
            self._input.attach()
        except CALL_ERRORS as raised:
            self.fail(fail_event(event, raised, self.info))
        else:
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

    # From the stream that is read.

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        (self._came,) = events
        self._drain()

    def over(self, source: Input, error: BaseException | None, /) -> None:
        self._ended = (error,)
        self._drain()

    # The drain loop.

    def step(self) -> bool:
        family, opened, came = self._family, self._input, self._came
        if family is not None and came is not None:
            self._came = None
            self.send(joined(family.child(came)))
        elif family is not None and self._ended is not None:
            self._follow(family, *self._ended)
        elif opened is not None and self.demand and not opened.requested:
            opened.request(1)
        elif self.demand and not (self.state or self.asked):
            self.ask(1)
        else:
            if self.state and opened is None:
                self.complete()
            return False
        return True

    def _follow(self, family: Family, error: BaseException | None) -> None:
        if error is None:
            self._leave()
        elif isinstance(raised := as_raised(error), CALL_ERRORS):
            self.fail(fail_event(family.parent, raised, self.info))
        else:
            raise raised

    def _leave(self) -> None:
        """Cancel the present stream. Its event ends as what came of it, or is dropped."""
        family, opened, came = self._family, self._input, self._came
        self._family = self._input = self._came = self._ended = None
        if opened is not None:
            opened.cancel()
            opened.part.nesting.leave()
        if came is not None:
            came.give_back()
        if family is not None:
            family.close()

    def release(self) -> None:
        if self._family is not None:
            self._family.parent.give_back()
        self._leave()

    def statistics(self) -> dict[str, Any]:
        """Whether the event of a stream waits for the stream's end."""
        return {"waiting": int(self._input is not None)}


class Exclusive(Switching):
    """Sends the events of one stream to its end; streams that come meanwhile are dropped."""

    def take(self, events: list[Event[Any]], /) -> None:
        (event,) = events
        if self._input is not None:
            event.drop(self.info.name)
        else:
            self._open(event)


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
