"""The protocol between stages, for the tests of the rules.

Only this file knows that protocol: when it changes, so does this file, and no test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from penstock import Event, Flowable, Pipeline
from penstock.streams.protocol.event import Ending, drop_all, end_all, finish_all, give_back_all
from penstock.streams.protocol.stage import Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import ManualPublisher, Probe

__all__ = [
    "Below",
    "How",
    "absorbs",
    "acknowledging",
    "anew",
    "attached",
    "begun",
    "broken",
    "counted",
    "end",
    "finished",
    "source_of",
    "threads_above",
    "unpacked",
]

How = Literal["finish", "drop", "fail", "forgive", "give back"]


# Below the last stage.


class Below(Probe[Any]):
    """A probe that is attached to a stage itself, in the place of the next stage.

    It trusts nothing: what a `StrictSubscriber` would correct is recorded as it comes. It keeps the
    stages' own contract: it requests at least 1, and requests and cancels nothing after the stream
    has ended or was cancelled.

    `on_value(below)` is called inside each signal that brings a value.
    """

    def __init__(
        self,
        request: int | None = None,
        *,
        hold: bool = False,
        on_value: Callable[[Below], None] | None = None,
    ) -> None:
        super().__init__(request, hold=hold, on_event=lambda _, __: self._on_value(on_value))
        self.left = False

    def _on_value(self, on_value: Callable[[Below], None] | None) -> None:
        if on_value is not None:
            on_value(self)

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended or was cancelled."""
        return self.ended or self.left

    def request(self, n: int) -> None:
        if not self.is_over:
            super().request(n)

    def cancel(self) -> None:
        if not self.is_over:
            self.left = True
            super().cancel()

    def on_events(self, events: list[Event[Any]], /) -> None:
        assert events, "an empty list was sent"
        for event in events:
            if self.left:
                # Events of one call cannot be withdrawn: a stage that leaves returns them.
                event.give_back()
                continue
            # At once, because a stage that has lost count may never stop.
            assert len(self.values) < self.requested, f"{event.value!r} was not asked for"
            self.on_next(event)


def attached(stream: Flowable[Any], below: Below, run: Run) -> None:
    """Attach `below` to the last stage of `stream`."""
    run.on_failed = below.on_error
    try:
        _attach(stream, below, run)
    except Exception as error:
        below.on_error(error)


def _attach(stream: Flowable[Any], subscriber: Subscriber[Any], run: Run) -> None:
    # Not by `attach`, which wraps a stage that is not the library's own.
    stream._attach(subscriber, run)


def end(events: list[Event[Any]], how: How) -> None:
    """End events in one call, as a stage does that ends several at once."""
    error = ValueError("a test")
    match how:
        case "finish":
            finish_all(events)
        case "drop":
            drop_all(events, "a test")
        case "fail":
            end_all(events, Ending.FAILED, error)
        case "forgive":
            end_all(events, Ending.FORGIVEN, error)
        case "give back":
            give_back_all(events)


# Above the first one.


def finished(publisher: ManualPublisher[Any]) -> list[Any]:
    """The values whose finish the publisher was notified of."""
    return publisher.ledger.ended(Ending.FINISHED)


def threads_above(publisher: ManualPublisher[Any]) -> set[int]:
    """The threads on which the publisher's subscription is called from now on."""
    threads: set[int] = set()
    given: Any = publisher.subscription
    request, cancel = given.request, given.cancel

    def called(call: Callable[..., None], *arguments: int) -> None:
        threads.add(threading.get_ident())
        call(*arguments)

    given.request = lambda n: called(request, n)
    given.cancel = lambda: called(cancel)
    return threads


def absorbs(stream: Flowable[Any]) -> bool:
    """Whether the last stage ends every event itself, and sends events of its own."""
    return stream.info.delivery.absorbs


# Streams that a case is made of.


def source_of(make: Callable[[Subscriber[Any], Run], SourceStage[Any]], name: str) -> Flowable[Any]:
    """The stream of a source that exists only as a running stage."""
    return Flowable(lambda subscriber, run: make(subscriber, run).start(), StageInfo(name))


def anew(
    make: Callable[[Run], Flowable[Any]], name: str, above: Flowable[Any] | None = None
) -> Flowable[Any]:
    """A stream that is made again for each connection."""
    return Flowable(
        lambda subscriber, run: _attach(make(run), subscriber, run), StageInfo(name), above
    )


def broken(error: Exception) -> Flowable[Any]:
    """A stream that cannot be connected to."""

    def attach(subscriber: Subscriber[Any], run: Run) -> None:
        raise error

    return Flowable(attach, StageInfo("broken"))


def begun(pipeline: Pipeline) -> Callable[[], Coroutine[Any, Any, None]]:
    """Begin to run a pipeline at once, not in the next loop iteration; return its cancel."""
    run = Run()
    sink = pipeline.sinks[0].open(run, lambda _: None)
    _attach(pipeline.flowable, sink, run)

    async def leave() -> None:
        sink.upstream.cancel()
        await run.close()

    return leave


def unpacked(stream: Flowable[Any]) -> Flowable[int]:
    """`stream`, whose source is the last stage, with 3 in the place of {"n": 3}."""
    return Flowable(
        lambda subscriber, run: _attach(stream, _Unpacked(subscriber), run), stream.info
    )


class _Unpacked:
    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self._subscriber = subscriber
        self.on_subscribe = subscriber.on_subscribe
        self.on_error = subscriber.on_error
        self.on_completed = subscriber.on_completed

    def on_events(self, events: list[Event[Any]], /) -> None:
        for event in events:
            event.value = event.value["n"]
        self._subscriber.on_events(events)


def acknowledging(n: int, told: Callable[[str, int], None]) -> Flowable[int]:
    """0, 1, ... n - 1 of a source that calls `told("ack" or "nack", number)` as each ends."""
    return source_of(lambda subscriber, run: _Acknowledging(subscriber, run, n, told), "telling")


class _Acknowledging(SourceStage[int]):
    def __init__(
        self, downstream: Subscriber[int], run: Run, n: int, told: Callable[[str, int], None]
    ) -> None:
        super().__init__(downstream, run, StageInfo("telling"))
        self._numbers = iter(range(n))
        self.ack = lambda events: self._tell("ack", events)
        self.nack = lambda events, error: self._tell("nack", events)
        self._told = told

    def produce(self) -> None:
        self.produce_from(self._numbers)

    def _tell(self, what: str, events: list[Event[Any]]) -> None:
        for event in events:
            self._told(what, event.value)


def counted(stream: Flowable[Any], blame: Callable[[str], None]) -> Flowable[Any]:
    """`stream`; `blame` is called for what it sends and must not send."""
    return Flowable(
        lambda subscriber, run: _attach(stream, _Counted(subscriber, blame), run),
        StageInfo("counted"),
        stream,
    )


class _Counted:
    """Counts requests and events."""

    def __init__(self, subscriber: Subscriber[Any], blame: Callable[[str], None]) -> None:
        self._subscriber = subscriber
        self._blame = blame
        self._demand = 0
        self._is_over = self._left = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._above = subscription
        self._subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        if n < 1:
            self._blame(f"{n} were asked for")
        self._demand += n
        self._above.request(n)

    def cancel(self) -> None:
        self._left = True
        self._above.cancel()

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._demand -= len(events)
        if self._demand < 0 or self._is_over or self._left or not events:
            self._blame(
                f"{[event.value for event in events]} came with a demand of "
                f"{self._demand + len(events)}, over: {self._is_over}, left: {self._left}"
            )
        self._subscriber.on_events(events)

    def _end(self) -> None:
        if self._is_over or self._left:
            self._blame(f"an end came when it was over: {self._is_over}, left: {self._left}")
        self._is_over = True

    def on_completed(self) -> None:
        self._end()
        self._subscriber.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._end()
        self._subscriber.on_error(error)
