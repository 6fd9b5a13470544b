"""The stage of operators that read one stream after another, and one of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from reactivex.abc import DisposableBase

from penstock.streams.base.errors import CALL_ERRORS, BuildError, check_plain, describe
from penstock.streams.base.validation import require_count
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.execution.handler import handler_name, is_plain
from penstock.streams.protocol.blame import error_in
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import CLOSED, COMPLETING, State, Subscriber, send_list
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import (
    check_begins_again,
    part_for,
    reading_all,
)
from penstock.streams.rx.lift import Operator, on_stream
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.stream import Stream

__all__ = ["Looping", "Succession", "Timed", "again", "looping", "succession"]

_Make = Callable[..., "Succession"]

S = TypeVar("S", bound=Stream[Any])


def succession(source: S, make: _Make, info: StageInfo, others: Sequence[Stream[Any]] = ()) -> S:
    """`source`, and the streams that follow it, read by the `Succession` that `make` returns.

    `others` are those of them that are known before it runs.
    """

    def knowing(downstream: Subscriber[Any], run: Run, info: StageInfo) -> Succession:
        stage = make(downstream, run, info, source=source)
        stage.known = (source, *others)
        return stage

    return reading_all(source, others, knowing, info)


def again(name: str, make: _Make, times: int | None = None) -> Operator:
    """The operator `name`, which reads its source again from the start, `times` at most.

    Raises BuildError for `times` below 1; the operator does for a source that cannot begin again.
    """
    if times is not None:
        require_count(name, **{f"{name}_count": times})
    detail = "" if times is None else f"{times:,}"

    def operator(source: Stream[Any]) -> Stream[Any]:
        check_begins_again(name, source)
        return succession(source, make, StageInfo(name, detail))

    return on_stream(operator, name)


def looping(name: str, condition: Callable[[Any], bool], *, asks_first: bool) -> Operator:
    """The operator `name`, which reads its source again as long as `condition(source)` is true.

    Raises BuildError for a condition that is not a plain function.
    """
    if not is_plain(condition):
        # What an async function returns is always true: the source would be read for ever.
        raise BuildError(
            f"{name}(condition={describe(condition, 80)}): give a plain function of the source "
            "that returns True or False; what has to be awaited first belongs in the source, such "
            "as an async generator"
        )
    return again(name, partial(Looping, condition=condition, asks_first=asks_first))


class Succession(BaseDemandStage):
    """Passes on the events of one stream, unchanged, until it ends, and then those of the next.

    When one has ended, `follow(error)` calls `read` with the next, or `close`. Demand that a stream
    has not answered goes to the next one. The stage keeps no events. A stream that ends in the
    loop iteration in which it began is followed in the next one, so that empty streams do not block
    the loop.

    It begins with `source`, the stream above, unless `asks_first`: then by `follow(None)`.
    """

    asks_first = False

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, source: Stream[Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self.source = source
        self.known: tuple[Stream[Any], ...] = (source,)
        """The stream above, and the `inputs` of the stage."""
        self._input: Input | None = None
        # How the last stream ended, until the next begins.
        self._ended: tuple[BaseException | None] | None = None
        # Whether the stream that is read began in this loop iteration.
        self._is_new = False
        # The stream that begins in the next loop iteration.
        self._next: Stream[Any] | None = None
        self.reads = 0
        """How many streams have begun."""
        # Errors after which the stage has gone on.
        self._recoveries = 0
        self._has_begun = False
        # The part in which each of the known streams was read last, by its place.
        self._listed: dict[int, Run] = {}

    def follow(self, error: BaseException | None) -> None:
        """The stream that was read has ended, with this error or without.

        Calls `read` or `close`, now or later. An exception that it raises ends the stage.
        """
        raise NotImplementedError

    def recovers(self) -> bool:
        """Whether the stage may go on after an error of the stream that begins now."""
        return False

    def begin(self) -> None:
        """Attach the first stream, and then call `on_subscribe` of the stage below."""
        self.within(self._begin)

    def _begin(self) -> None:
        if self.asks_first:
            self._ended = (None,)
        else:
            self.read(self.source)
        self._has_begun = True
        self.downstream.on_subscribe(self)

    # From the stream that is read.

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        self.within(self._pass_on, source, events)

    def _pass_on(self, source: Input, events: list[Event[Any]]) -> None:
        if self.state >= CLOSED or source is not self._input:
            give_back_all(events)
        else:
            self.demand -= len(events)
            self.passing(events)
            send_list(self.downstream, events)

    def passing(self, events: list[Event[Any]]) -> None:
        """These events are about to be sent."""

    def over(self, source: Input, error: BaseException | None, /) -> None:
        if source is self._input and self.state < CLOSED:
            self._ended = (error,)
            self._drain()

    # The drain loop.

    def step(self) -> bool:
        if self._ended is not None:
            (error,) = self._ended
            self._ended = None
            self._follow(error)
            return True
        current = self._input
        if current is None or current.is_over or self.demand <= current.requested:
            return False
        current.request(self.demand - current.requested)
        return True

    def _follow(self, error: BaseException | None) -> None:
        ended = self._input
        if not self._may_follow(error):
            self.close(error)
            return
        try:
            self.follow(error)
        except CALL_ERRORS as raised:
            self.close(error_in(self.info, raised))
        if error is not None and self.state < CLOSED:
            self._recoveries += 1
            if ended is not None:
                ended.part.nesting.went_on()
            self.run.errors.recovered(error, self.info)

    def _may_follow(self, error: BaseException | None) -> bool:
        is_ours = error is None or isinstance(error, Exception)
        return is_ours and not self.run.drains

    def close(self, error: BaseException | None) -> None:
        """End the stream, with this error or without; what was read is cancelled."""
        if self.state >= CLOSED:
            return
        self._leave()
        self.state = COMPLETING
        if error is None:
            self.complete()
        else:
            self.fail(error)

    def check_again(self, error: BaseException | None = None) -> None:
        """Raise BuildError if another reading of `source` would not begin at its start.

        `error` is that of the reading before, which would be forgotten for the other one.
        """
        try:
            check_begins_again(self.info.name, self.source)
        except BuildError as refused:
            raise refused from error

    def read(self, stream: Stream[Any]) -> None:
        """Read `stream` from now on; what was read is cancelled.

        If that began in this loop iteration, the next one begins in the next iteration.
        """
        if self.state >= CLOSED:
            return
        self._leave()
        if self._is_new:
            self._next = stream
        else:
            self._begin_to_read(stream)

    def _begin_to_read(self, stream: Stream[Any]) -> None:
        at = next((at for at, known in enumerate(self.known) if known is stream), None)
        before = None if at is None else self._listed.get(at)
        part = part_for(self.run, self.info, at, stream, before, recovers=self.recovers())
        if at is not None:
            self._listed[at] = part
        self.reads += 1
        if self.run.has_loop:
            self._is_new = True
            self.run.call_soon(self.info, self._no_longer_new, self.reads)
        current = self._input = Input(stream, part, self)
        try:
            current.attach()
        except Exception as error:
            current.is_over = True
            if not self._has_begun:
                raise
            self._ended = (error,)
        self._drain()

    def _no_longer_new(self, read: int) -> None:
        if read != self.reads:
            return
        self._is_new = False
        stream, self._next = self._next, None
        if stream is not None and self.run.drains:
            self.close(None)
        elif stream is not None:
            self.within(self._begin_to_read, stream)

    def _leave(self) -> None:
        """Read the present stream no more."""
        self._ended = self._next = None
        current, self._input = self._input, None
        if current is not None:
            current.cancel()
            current.part.nesting.leave()

    def _close(self, state: State) -> None:
        # First, so that an error of the clean-up counts as one after the end.
        self.state = state
        self._leave()
        self.release()

    def statistics(self) -> dict[str, Any]:
        """How many streams have begun, and after how many errors the stage has gone on."""
        return {"waiting": 0, "streams": self.reads, "recoveries": self._recoveries}


class Looping(Succession):
    """Reads the source as long as `condition(source)` is true, which is asked before each reading,
    or before each but the first."""

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Stream[Any],
        condition: Callable[[Any], bool],
        *,
        asks_first: bool,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._condition = condition
        self.asks_first = asks_first

    def follow(self, error: BaseException | None) -> None:
        if error is None and self._holds():
            if self.reads:
                self.check_again()
            self.read(self.source)
        else:
            self.close(error)

    def _holds(self) -> bool:
        answer = self._condition(self.source)
        name = handler_name(self._condition)
        check_plain(answer, name, self.info.name, "return True or False", answers=True)
        return answer


class Timed(Succession):
    """Reads the source until a time is over, and then `other`, or fails without one.

    `timer` is what measures the time. A subclass sets it, and calls `expire`.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        source: Stream[Any],
        other: Stream[Any] | None,
    ) -> None:
        super().__init__(downstream, run, info, source)
        self._other = other
        self.timer: DisposableBase | None = None
        self.is_late = False

    def expire(self) -> None:
        """No event has come in time."""
        self.is_late = True
        self.stop_timer()
        if self._other is None or self.run.drains:
            late = TimeoutError("Timeout")
            late.add_note(f"in {self.info}: no event came in time")
            self.close(late)
        else:
            self.read(self._other)

    def stop_timer(self) -> None:
        """The event has come, or the stream has ended."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.dispose()

    def follow(self, error: BaseException | None) -> None:
        self.close(error)

    def _close(self, state: State) -> None:
        self.stop_timer()
        super()._close(state)

    def release(self) -> None:
        self.stop_timer()
