"""Further inputs of a lifted operator, such as what ends its windows, read with demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

from penstock.streams.base.errors import CALL_ERRORS, NoLoop, PenstockError
from penstock.streams.boundary.inner_stream import Input
from penstock.streams.protocol.blame import error_in
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import CLOSED, State
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.combining.inputs import part_for
from penstock.streams.stages.forgetting import refuse_early_end
from penstock.streams.stages.stream import Stream

__all__ = ["Beside", "Read"]

Read = Callable[[Stream[Any], int, str], Observable[Any]]
"""Makes an Observable of a stream: one of the stage's `inputs`, by its place from 1 on, or one that
was not known before, at 0; for the operator of this name."""


# How many streams may begin inside each other, each because the one before has ended at once.
_DEEPEST = 10


class _Stage(Protocol):
    """The stage of the operator."""

    run: Run
    info: StageInfo
    state: State
    source_completed: bool
    pending: deque[Event[Any]]

    def within(self, call: Callable[..., object], *args: Any) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def late(self, error: BaseException, /) -> None: ...


class Beside:
    """Reads streams for the operator of one stage, each as a part of the running of the stage.

    The first event is requested at once, and each following one by `fill`, after the last has come.
    While results wait for a slow reader, no stream begins, so that none ends and makes one more.
    An event is dropped as it comes, under the operator's name. A drain ends the streams, and begins
    none. The operator learns of that only when its own source has ended: otherwise it could end
    before what its source has emitted has come. A stream that it reads after that ends at once; no
    end is reported of those that it reads in response to such an end.
    """

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage
        # Streams of which an event has come, and no other is requested.
        self._ready: list[_Other] = []
        # Streams that begin when no result waits.
        self._later: list[_Other] = []
        # Streams that a drain has ended.
        self._drained: list[_Other] = []
        # Streams that have not ended and read no shared stream, which might wait for this stage.
        self._independent: dict[_Other, None] = {}
        # Streams that a function has returned, and the operator reads.
        self._made: dict[_Other, None] = {}
        # How many streams are being begun, one inside another.
        self._depth = 0
        self._is_ending = False

    @property
    def reads_made(self) -> bool:
        """Whether the operator reads a stream that a function has returned."""
        return bool(self._made)

    @property
    def may_signal(self) -> bool:
        """Whether an event may come, however few the stage requests from its source."""
        return bool(self._independent)

    def read(self, stream: Stream[Any], at: int, operator: str) -> Observable[Any]:
        """The Observable that the operator reads in place of `stream`; see `Read`."""

        def subscribe(
            observer: ObserverBase[Any], scheduler: SchedulerBase | None = None
        ) -> DisposableBase:
            part = part_for(self._stage.run, self._stage.info, at or None, stream)
            other = _Other(stream, part, self, observer, operator)
            if not at:
                self._made[other] = None
            self._begin_soon(other)
            return Disposable(lambda: self._cancel(other))

        return Observable(subscribe)

    def _begin_soon(self, other: _Other) -> None:
        if self._stage.run.drains:
            other.is_over = True
            if self._stage.source_completed and not self._is_ending:
                # Once: an operator that always reads another one would never end.
                self._is_ending = True
                self._stage.within(self._end, other, None)
                self._is_ending = False
            else:
                self._drained.append(other)
        elif self._stage.pending:
            self._later.append(other)
        else:
            self._begin(other)

    def _begin(self, other: _Other) -> None:
        if self._depth >= _DEEPEST:
            raise PenstockError(
                f"{other.operator} keeps beginning streams that emit or end at once: let them "
                "wait, as reactivex.timer(seconds) does"
            )
        self._depth += 1
        try:
            other.attach()
            if other.is_independent and not other.is_over:
                self._independent[other] = None
        except Exception as error:
            other.is_over = True
            self._leave(other)
            other.observer.on_error(error)
        else:
            # A plain Observable is subscribed to at the first request.
            other.request(1)
        finally:
            self._depth -= 1

    def fill(self) -> bool:
        """Request the next event of each stream of which one has come, and begin those that wait.
        Returns whether there were any."""
        ready, self._ready = self._ready, []
        later, self._later = self._later, []
        for other in ready:
            if not other.is_over:
                other.request(1)
        for other in later:
            if not other.is_over:
                self._begin_soon(other)
        return bool(ready or later)

    def source_ended(self) -> None:
        """The stream above the stage has ended."""
        drained, self._drained = self._drained, []
        if self._stage.run.drains:
            drained += self._later
        for other in drained:
            other.is_over = True
            self._stage.within(self._end, other, None)

    # From the streams.

    def came(self, source: Input, events: list[Event[Any]], /) -> None:
        assert isinstance(source, _Other)
        self._stage.within(self._signal, source, events)

    def _signal(self, source: _Other, events: list[Event[Any]]) -> None:
        if self._stage.state >= CLOSED:
            give_back_all(events)
            return
        self._ready.append(source)
        info = self._stage.info
        if info.delivery.absorbs_inputs:
            try:
                refuse_early_end(info, events)
            except PenstockError as error:
                give_back_all(events)
                self._stage.fail(error)
                return
        drop_all(events, source.operator)
        try:
            for event in events:
                source.observer.on_next(event.value)
        except CALL_ERRORS as raised:
            self._stage.fail(error_in(self._stage.info, raised))

    def over(self, source: Input, error: BaseException | None, /) -> None:
        assert isinstance(source, _Other)
        stage = self._stage
        if error is None and stage.run.drains and not stage.source_completed:
            self._independent.pop(source, None)
            self._drained.append(source)
        else:
            stage.within(self._end, source, error)

    def _end(self, source: _Other, error: BaseException | None) -> None:
        self._leave(source)
        if error is None:
            source.observer.on_completed()
        elif isinstance(error, Exception) and not isinstance(error, NoLoop):
            source.observer.on_error(error)
        else:
            # Without a loop this may be another thread, on which the operator must not be called.
            self._stage.fail(error)

    def late(self, error: BaseException, /) -> None:
        self._stage.late(error)

    def _cancel(self, other: _Other) -> None:
        """The operator reads it no more."""
        if not other.is_over:
            other.cancel()
            self._leave(other)

    def _leave(self, other: _Other) -> None:
        self._independent.pop(other, None)
        self._made.pop(other, None)
        other.part.nesting.leave()


class _Other(Input):
    """One of the streams, and the operator's observer of it."""

    def __init__(
        self,
        stream: Stream[Any],
        part: Run,
        reader: Beside,
        observer: ObserverBase[Any],
        operator: str,
    ) -> None:
        super().__init__(stream, part, reader)
        self.observer = observer
        self.operator = operator
        stages = all_stages(each.info for each in stream.chain())
        self.is_independent = all(info.shared is None for info in stages)
