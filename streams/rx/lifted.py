"""The stage of a lifted operator: an Rx operator between two stages that keep demand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

from penstock.streams.errors import PenstockError
from penstock.streams.protocol.acknowledgement import Family, Nobody
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.demand_stage import DemandStage
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage import StageInfo, Subscriber, is_second
from penstock.streams.runtime.context import Run
from penstock.streams.rx.recognise import Part
from penstock.streams.rx.scheduler import LoopScheduler

__all__ = ["Lifted"]

_NOBODY = Nobody()


class Lifted(DemandStage):
    """An operator that answers at once: outputs inherit the event that is being fed.

    An input without output is dropped and one more is requested. Outputs beyond the demand
    wait, and nothing more is fed until they are gone.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        parts: Sequence[Part],
        *,
        one_by_one: bool = False,
    ) -> None:
        super().__init__(downstream, run, info)
        self.scheduler = LoopScheduler(run, info, self.on_due)
        self.pending: deque[Event[Any]] = deque()
        # Whether the operator has completed, and whether the source has.
        self._completing = self.source_completed = False
        self._inlet: ObserverBase[Any] | None = None
        self._outputs: list[Any] = []
        self._fed: Event[Any] | None = None
        # Whether one input may be answered with more outputs than are requested.
        self._one_by_one = one_by_one
        self._chain: Observable[Any] = Observable(self._subscribed)
        for part in parts:
            self._chain = part.operator(self._chain)
        self._subscription: DisposableBase = Disposable()
        self._thread = threading.get_ident()

    # The Rx side.

    def _subscribe(self) -> None:
        self._subscription = self._chain.subscribe(
            self._on_output, self._on_failed, self._on_ended, scheduler=self.scheduler
        )
        if self.done:
            self._subscription.dispose()

    def _subscribed(
        self, observer: ObserverBase[Any], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        self._inlet = observer
        self.go_on()
        return Disposable(self._unsubscribed)

    def _unsubscribed(self) -> None:
        self._inlet = None

    def _is_here(self) -> bool:
        """Whether the stream's own thread is running; on another one the stage fails.

        The operator may be taking an input on the stream's thread at the same time, so it would be
        unknown which inputs an output from another thread answers.
        """
        if threading.get_ident() == self._thread:
            return True
        error = PenstockError(
            f"{self.info.name} emits on another thread, on which its other source or its scheduler "
            "runs: bring the other source onto the loop, with "
            "observe_on(AsyncIOThreadSafeScheduler(loop)), and leave scheduler= out"
        )
        if self.run.has_loop:
            # Nobody reads values that come after the loop is closed.
            with suppress(RuntimeError):
                self.run.call_soon_threadsafe(self.info, self._failed, error)
        else:
            self._failed(error)
        return False

    def _on_output(self, value: Any) -> None:
        if not self._is_here():
            return
        if self._fed is not None:
            self._outputs.append(value)
        else:
            self.from_no_input(value)

    def from_no_input(self, value: Any) -> None:
        """Emit an output that comes while nothing is fed, such as `start_with`'s."""
        self.deliver(Event(value, self.run.now(), _NOBODY))

    def _on_failed(self, error: Exception) -> None:
        if self._is_here():
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.done:
            return
        fed, self._fed = self._fed, None
        if fed is not None:
            blame(error, self.info, fed)
            fed.fail(error)
        else:
            error.add_note(f"in {self.info}")
        self.fail(error)

    def _on_ended(self) -> None:
        if self._is_here():
            self._completing = True
            if self._fed is None:
                self._want_no_more()
                self.go_on()

    def _want_no_more(self) -> None:
        if not self.ended:
            self.ended = True
            self.upstream.cancel()

    # From above.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        if not self.done:
            # The source answers inside `request`, so nothing is requested before the operator
            # listens to its other sources too.
            self.within(self._subscribe)

    def take(self, events: list[Event[Any]], /) -> None:
        # The outputs of one input leave before the next comes.
        for event in events:
            if self._inlet is None or self.done:
                event.give_back()
            else:
                self.feed(self._inlet, event)

    def feed(self, inlet: ObserverBase[Any], event: Event[Any]) -> None:
        """Give one input to the operator."""
        self._fed = event
        try:
            inlet.on_next(event.value)
        except Exception as error:
            # Stock operators catch what user functions raise; a user's own may let it through.
            self._on_failed(error)
        # It may have failed inside the call.
        if cast("Event[Any] | None", self._fed) is None:
            return
        self._fed = None
        outputs, self._outputs = self._outputs, []
        if len(outputs) == 1:
            event.value = outputs[0]
            self.deliver(event)
        elif outputs:
            family = Family(event, self.info.name)
            for value in outputs:
                self.deliver(family.child(value))
            family.close()
        else:
            event.drop(self.info.name)
        if self._completing:
            # At once: the source may be in the middle of giving more.
            self._want_no_more()

    def on_completed(self) -> None:
        self.ended = self.source_completed = True
        self.asked = 0
        if self._inlet is not None:
            self._inlet.on_completed()
        else:
            self._completing = True
            self.go_on()

    def on_error(self, error: BaseException, /) -> None:
        self.ended = True
        if isinstance(error, Exception) and self._inlet is not None:
            self._inlet.on_error(error)
        elif not self.done:
            self.fail(error)

    # Common.

    def step(self) -> bool:
        if self.demand and self.pending:
            self.send(self.pending.popleft())
        elif self._completing and not self.pending:
            self.complete()
        elif not self.ended and self._inlet is not None and (n := self.wanted()) > 0:
            self.ask(n)
        else:
            return False
        return True

    def deliver(self, event: Event[Any]) -> None:
        """Send an output on, or let it wait for demand."""
        if self.done:
            event.give_back()
        elif self.demand and not self.pending:
            self.send(event)
        else:
            self.pending.append(event)

    def wanted(self) -> int:
        """How many more inputs may be requested."""
        n = self.demand - len(self.pending) - self.asked
        return min(n, 1 - self.asked) if self._one_by_one else n

    def on_due(self, run: Callable[[], None]) -> None:
        """Run a timer of the operator, which gets no input until the timer has returned."""
        self.within(run)

    def complete(self) -> None:
        self.done = True
        self.leave()
        super().complete()

    def leave(self) -> None:
        self._subscription.dispose()
        give_back_all(self.pending)
        self.pending.clear()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self.pending)}
