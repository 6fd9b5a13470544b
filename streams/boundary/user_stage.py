"""Wraps a user-defined stage: an exception it raises fails the event and ends the stream.

The library's own stages do not raise: each handles the exceptions of the user's functions that it
calls. A stage that a user wrote may raise. Its exceptions are caught here, where the event is known
and both the stages above and below can be notified.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.errors import CALL_ERRORS
from penstock.streams.protocol.blame import error_in, fail_event, is_ours
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import UNCONNECTED, StageInfo, Subscriber, Subscription

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["UserStage", "guarded"]

S = TypeVar("S", bound=Subscriber[Any])

_SIGNALS = frozenset({"on_subscribe", "on_events", "on_error", "on_completed", "is_idle", "close"})


def guarded(stage: S, info: StageInfo | None, run: Run) -> S | UserStage:
    """`stage` itself if all its signals go to the library's code, else a `UserStage` before it.

    The `UserStage` costs one more call per event. `info` describes the stage, if it is known.
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


class UserStage:
    """Fails the event and the stream with the exception that the stage raises.

    It is the stage's subscription as well: a stage that cancels inside a list receives no more of
    it.
    """

    def __init__(self, stage: Subscriber[Any], info: StageInfo, run: Run) -> None:
        self._stage = stage
        self._info = info
        self._run = run
        self._upstream = UNCONNECTED
        self.request: Callable[[int], None] = UNCONNECTED.request
        self._ended = False

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
        # One by one, to know which event raised.
        for place, event in enumerate(events):
            if self._ended:
                give_back_all(events[place:])
                return
            try:
                self._stage.on_events([event])
            except CALL_ERRORS as raised:
                self._stop(fail_event(event, raised, self._info))

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
