"""A publisher that a test drives by hand, well-behaved or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.testing.ledger import Ledger

__all__ = ["ManualPublisher", "ManualSubscription"]

T = TypeVar("T")


class ManualSubscription:
    """The subscription of a subscriber: `requests` and `cancels` record its calls.

    `calls` has both together, in order: a number for each request, "cancel" for each cancel.
    """

    def __init__(self, on_request: Callable[[int], None] | None = None) -> None:
        self.calls: list[int | str] = []
        self.demand = 0
        self._on_request = on_request

    @property
    def requests(self) -> list[int]:
        return [call for call in self.calls if isinstance(call, int)]

    @property
    def cancels(self) -> int:
        return self.calls.count("cancel")

    def request(self, n: int, /) -> None:
        self.calls.append(n)
        if not self.cancels:
            self.demand += n
            if self._on_request is not None:
                self._on_request(n)

    def cancel(self) -> None:
        self.calls.append("cancel")
        self.demand = 0


class ManualPublisher(Flowable[T]):
    """A Flowable that sends on command and records the requests it receives.

    Each connection is new; commands and numbers are about the latest. `send`, `complete` and
    `fail` raise AssertionError where a publisher must not signal (without demand, after the end
    or after cancel), unless it is `misbehaving`. `on_request(n)` is called inside each request,
    and may send at once. `ledger` records how the events ended.
    """

    is_pushed = False
    is_of_values = False

    def __init__(
        self, *, misbehaving: bool = False, on_request: Callable[[int], None] | None = None
    ) -> None:
        super().__init__(self._greet, StageInfo("manual"))
        self.ledger = Ledger()
        self.on_request = on_request
        self.subscriptions: list[ManualSubscription] = []
        self._misbehaving = misbehaving
        self._subscriber: Subscriber[Any] | None = None
        self._run: Run | None = None
        self._ended = False

    # Requests.

    @property
    def subscription(self) -> ManualSubscription:
        """The latest subscription."""
        assert self.subscriptions, "nobody is connected"
        return self.subscriptions[-1]

    @property
    def demand(self) -> int:
        """Events requested and not sent yet; 0 after the end and after cancel."""
        return 0 if self._ended else self.subscription.demand

    @property
    def requests(self) -> list[int]:
        """The latest subscription's requests, in order."""
        return self.subscription.requests

    @property
    def cancels(self) -> int:
        """How often the latest subscription was cancelled."""
        return self.subscription.cancels

    @property
    def active(self) -> bool:
        """Whether a well-behaved publisher may still signal."""
        return bool(self.subscriptions) and not self._ended and not self.cancels

    # Outcomes of the events.

    @property
    def unsettled(self) -> list[Any]:
        """The values whose events have not ended."""
        return self.ledger.unsettled

    @property
    def returned(self) -> list[Any]:
        """The values that were returned."""
        return self.ledger.ended(Ending.RETURNED)

    # Commands.

    def send(self, *values: T) -> None:
        """Emit these values, stamped with the loop's time."""
        for value in values:
            assert self._misbehaving or (self.active and self.demand), (
                f"{value!r} was not requested: ManualPublisher(misbehaving=True) may send it"
            )
            self.subscription.demand -= 1
            now = 0.0 if self._run is None else self._run.now()
            self._to.on_events([self.ledger.enter(Event(value, now, self.ledger))])

    def complete(self) -> None:
        """Complete the stream."""
        self._end()
        self._to.on_completed()

    def fail(self, error: BaseException) -> None:
        """Fail the stream."""
        self._end()
        self._to.on_error(error)

    def subscribe_again(self) -> ManualSubscription:
        """Break rule 2.12: give the connected subscriber one more subscription."""
        again = ManualSubscription(self.on_request)
        self._to.on_subscribe(again)
        return again

    @property
    def _to(self) -> Subscriber[Any]:
        assert self._subscriber is not None, "nobody is connected"
        return self._subscriber

    def _end(self) -> None:
        assert self._misbehaving or self.active, "the stream has ended or was cancelled"
        self._ended = True

    def _greet(self, subscriber: Subscriber[Any], run: Run) -> None:
        self._subscriber, self._run, self._ended = subscriber, run, False
        self.subscriptions.append(ManualSubscription(self.on_request))
        run.add_source(run.attaching or self.info.first(), self)
        subscriber.on_subscribe(self.subscription)

    # Under a pipeline's control.

    is_connected = True
    gives_again = False

    @property
    def has_ended(self) -> bool:
        """Whether it has completed or failed."""
        return self._ended

    @property
    def unfinished(self) -> int:
        """How many events have not ended."""
        return len(self.unsettled)

    def statistics(self) -> dict[str, Any]:
        """The numbers of a source."""
        endings = self.ledger.endings
        dropped = len(self.ledger.ended(Ending.DROPPED))
        return {
            "in": len(endings) + len(self.unsettled),
            "finished": len(self.ledger.ended(Ending.FINISHED)),
            "failed": len(self.ledger.ended(Ending.FAILED, Ending.FORGIVEN)),
            "returned": len(self.returned),
            "dropped": {"": dropped} if dropped else {},
        }

    def pause(self) -> None:
        """A test sends, or does not."""

    def resume(self) -> None:
        """A test sends, or does not."""

    def stop(self) -> None:
        """A drain has begun: complete."""
        if self.active:
            self.complete()
