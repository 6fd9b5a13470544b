"""Wraps a user-defined stage: an exception it raises fails the event and ends the stream.

The library's own stages do not raise: each handles the exceptions of the user's functions that it
calls. A stage that a user wrote may raise. Its exceptions are caught here, where the event is known
and both the stages above and below can be notified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.protocol.acknowledgement import with_ancestors
from penstock.streams.protocol.blame import error_in, fail_event, has_blamed, is_ours
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import UNCONNECTED, BaseStage, Subscriber, Subscription
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.demand_stage import BaseDemandStage

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["UserStage", "guarded"]

S = TypeVar("S", bound=Subscriber[Any])

_SIGNALS = frozenset({"on_subscribe", "on_events", "on_error", "on_completed", "is_idle", "close"})


def guarded(stage: S, info: StageInfo | None, run: Run) -> S | UserStage:
    """`stage` itself if all its signals go to the library's code, else a `UserStage` before it.

    The `UserStage` costs two more calls per list. `info` describes the stage, if it is known.
    """
    kind = type(stage)
    if _is_own(kind):
        return stage
    own: StageInfo = getattr(stage, "info", StageInfo(kind.__name__))
    return UserStage(stage, info or own, run)


# Asked for each stream inside a stream, and the same for all of them.
@lru_cache(maxsize=256)
def _is_own(kind: type) -> bool:
    return not any(_is_foreign(base) for base in kind.__mro__)


def _is_foreign(kind: type) -> bool:
    return not (is_ours(kind.__module__) or _SIGNALS.isdisjoint(vars(kind)))


class _Below:
    """The subscriber below a user's stage: notes what the stage sends while it has a list."""

    __slots__ = ("_subscriber", "sent")

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self._subscriber = subscriber
        self.sent: list[Event[Any]] | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscriber.on_subscribe(subscription)

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self.sent is not None:
            self.sent += events
        self._subscriber.on_events(events)

    def on_completed(self) -> None:
        self._subscriber.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._subscriber.on_error(error)


class UserStage:
    """Fails the event and the stream with the exception that the stage raises.

    The stage gets whole lists. After an exception it gets, one by one, those events of the list
    that it has neither ended nor sent on, to know which of them raises.
    """

    def __init__(self, stage: Subscriber[Any], info: StageInfo, run: Run) -> None:
        self._stage = stage
        self._info = info
        self._run = run
        self._current = run.current
        self._upstream = UNCONNECTED
        self.request: Callable[[int], None] = UNCONNECTED.request
        self._ended = False
        # Nothing is known of what a stage sends that has another way down.
        self._below = _Below(getattr(stage, "downstream", stage))
        if isinstance(stage, BaseStage | BaseDemandStage):
            stage.downstream = self._below

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._upstream is UNCONNECTED:
            self._upstream = subscription
            # An attribute, so that a request costs no extra call.
            self.request = subscription.request
            subscription = self
        self._signal(lambda: self._stage.on_subscribe(subscription))

    def cancel(self) -> None:
        upstream, self._upstream = self._upstream, UNCONNECTED
        if upstream is not UNCONNECTED:
            self._ended = True
            upstream.cancel()

    def on_events(self, events: list[Event[Any]], /) -> None:
        if self._ended:
            give_back_all(events)
            return
        self._current.call(self, self._give_all, events)

    def _give_all(self, events: list[Event[Any]]) -> None:
        if len(events) == 1:
            self._give(events[0])
            return
        # The stage owns the list.
        given = [(event, event.pending) for event in events]
        below = self._below
        before, below.sent = below.sent, []
        try:
            self._stage.on_events(events)
        except CALL_ERRORS as raised:
            done = set(map(id, with_ancestors(below.sent)))
            left = [one for one, pending in given if one.pending == pending and id(one) not in done]
            self._after(raised, left)
        finally:
            below.sent = before

    def _give(self, event: Event[Any]) -> None:
        try:
            self._stage.on_events([event])
        except CALL_ERRORS as raised:
            self._stop(fail_event(event, raised, self._info))

    def _after(self, raised: BaseException, left: list[Event[Any]]) -> None:
        """Find the event for which the stage has raised, among those `left` of its list."""
        had_ended = self._ended
        if has_blamed(raised):
            # The stage has failed the event by itself.
            give_back_all(left)
            self._stop(own_error(raised))
            return
        for place, event in enumerate(left):
            if self._ended:
                give_back_all(left[place:])
                break
            self._give(event)
        if had_ended or not self._ended:
            # It has raised for none of them alone.
            self._stop(error_in(self._info, raised))

    def on_error(self, error: BaseException, /) -> None:
        self._end(lambda: self._stage.on_error(error))

    def on_completed(self) -> None:
        self._end(self._stage.on_completed)

    def _end(self, signal: Callable[[], None]) -> None:
        if not self._ended:
            self._upstream = UNCONNECTED
            self._signal(signal)
            self._ended = True

    def _signal(self, signal: Callable[[], None]) -> None:
        try:
            signal()
        except CALL_ERRORS as raised:
            self._stop(error_in(self._info, raised))

    def _stop(self, error: Exception) -> None:
        """Cancel the stream above the stage; the stage itself passes the error on."""
        if self._ended:
            self._run.failed(error)
            return
        self._ended = True
        upstream, self._upstream = self._upstream, UNCONNECTED
        upstream.cancel()
        try:
            self._stage.on_error(error)
        except CALL_ERRORS as caught:
            raised = error_in(self._info, caught)
            self._run.failed(error)
            if raised is not error:
                self._run.failed(raised)
