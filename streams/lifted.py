"""The stages of lifted operators: an Rx operator between two sides that know demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

from streams.errors import HoldExceeded
from streams.event import Event, Family, Joined, Nobody
from streams.faults import blame
from streams.recognise import Part
from streams.run import Run
from streams.scheduler import LoopScheduler
from streams.stage import Stage, StageInfo, Subscriber, is_second

__all__ = ["Lifted", "LiftedHolding"]

_NOBODY = Nobody()


class Lifted(Stage[Any, Any]):
    """An operator that answers at once: outputs inherit the event that is being fed.

    An input without output is dropped and one more is asked for. Outputs beyond the demand
    wait, and nothing more is fed until they are gone.
    """

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, parts: Sequence[Part]
    ) -> None:
        super().__init__(downstream)
        self.run = run
        self.info = info
        self.scheduler = LoopScheduler(lambda: run.loop, run.now, self.ask)
        self.demand = 0
        self.outstanding = 0
        self.pending: deque[Event[Any]] = deque()
        self.completing = self.done = self.upstream_ended = False
        self._inlet: ObserverBase[Any] | None = None
        self._outputs: list[Any] = []
        self._fed: Event[Any] | None = None
        self._asking = False
        self._chain: Observable[Any] = Observable(self._subscribed)
        for part in parts:
            self._chain = part.operator(self._chain)
        self._subscription: DisposableBase = Disposable()

    # The Rx side.

    def _subscribed(
        self, observer: ObserverBase[Any], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        self._inlet = observer
        self.ask()
        return Disposable(self._unsubscribed)

    def _unsubscribed(self) -> None:
        self._inlet = None

    def _on_output(self, value: Any) -> None:
        if self._fed is not None:
            self._outputs.append(value)
        else:
            self.out_of_turn(value)

    def out_of_turn(self, value: Any) -> None:
        """An output while nothing is fed, such as `start_with`'s: nobody's event."""
        self.deliver(Event(value, self.run.now(), _NOBODY))

    def _on_failed(self, error: Exception) -> None:
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
        self.completing = True
        if not self.upstream_ended and self._fed is None:
            self.upstream_ended = True
            self.upstream.cancel()
        if self._fed is None:
            self.finish_if_empty()

    # From above.

    def on_subscribe(self, subscription: Any, /) -> None:
        if is_second(self, subscription):
            return
        self.upstream = subscription
        self.downstream.on_subscribe(self)
        if not self.done:
            self._subscription = self._chain.subscribe(
                self._on_output, self._on_failed, self._on_ended, scheduler=self.scheduler
            )
            if self.done:
                self._subscription.dispose()

    def on_next(self, event: Event[Any], /) -> None:
        self.outstanding -= 1
        if self._inlet is None or self.done:
            event.give_back()
            return
        self._fed = event
        self._inlet.on_next(event.value)
        if self._fed is None:
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
            self.without_output(event)
        if self.completing and not self.upstream_ended:
            self.upstream_ended = True
            self.upstream.cancel()
        self.finish_if_empty()
        self.ask()

    def without_output(self, event: Event[Any]) -> None:
        """An input was answered with nothing."""
        event.drop(self.info.name)

    def on_completed(self) -> None:
        self.upstream_ended = True
        self.outstanding = 0
        if self._inlet is not None:
            self._inlet.on_completed()
        elif not self.done:
            self.completing = True
            self.finish_if_empty()

    def on_error(self, error: BaseException, /) -> None:
        self.upstream_ended = True
        if isinstance(error, Exception) and self._inlet is not None:
            self._inlet.on_error(error)
        elif not self.done:
            self.fail(error)

    # From below.

    def request(self, n: int, /) -> None:
        if self.done:
            return
        self.demand += n
        while self.demand and self.pending and not self.done:
            self.demand -= 1
            self.downstream.on_next(self.pending.popleft())
        self.finish_if_empty()
        self.ask()

    def cancel(self) -> None:
        self._leave()
        if not self.upstream_ended:
            self.upstream_ended = True
            self.upstream.cancel()

    # Common.

    def deliver(self, event: Event[Any]) -> None:
        """Send an output on, or let it wait for demand."""
        if self.done:
            event.give_back()
        elif self.demand and not self.pending:
            self.demand -= 1
            self.downstream.on_next(event)
        else:
            self.pending.append(event)

    def wanted(self) -> int:
        """How many more inputs may be asked for."""
        return self.demand - len(self.pending) - self.outstanding

    def ask(self) -> None:
        """Ask for as many inputs as there is demand for outputs."""
        if self._asking or self._inlet is None:
            return
        self._asking = True
        try:
            while not (self.done or self.upstream_ended or self.completing):
                n = self.wanted()
                if n <= 0:
                    return
                self.outstanding += n
                self.upstream.request(n)
        finally:
            self._asking = False

    def finish_if_empty(self) -> None:
        """Complete when the operator has, and nothing waits."""
        if self.completing and not self.pending and not self.done:
            self._leave()
            self.downstream.on_completed()

    def fail(self, error: BaseException) -> None:
        """The operator failed: nothing that waits is sent ahead of the error."""
        self._leave()
        if not self.upstream_ended:
            self.upstream_ended = True
            self.upstream.cancel()
        self.downstream.on_error(error)

    def _leave(self) -> None:
        self.done = True
        self._subscription.dispose()
        while self.pending:
            self.pending.popleft().give_back()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self.pending)}


class LiftedHolding(Lifted):
    """An operator that may answer later: its inputs stay unfinished until an output has.

    Each output takes over all inputs since the one before; `delay` answers in order, so each
    of its outputs takes over one. Inputs that no output took over are finished when the
    stream completes, and given back when the operator ends early or is cancelled.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        parts: Sequence[Part],
        hold: int,
    ) -> None:
        super().__init__(downstream, run, info, parts)
        self._hold = hold
        self._held: deque[Event[Any]] = deque()
        self._one_to_one = all(part.name == "delay" for part in parts)

    def on_next(self, event: Event[Any], /) -> None:
        self.outstanding -= 1
        if self._inlet is None or self.done:
            event.give_back()
            return
        self._held.append(event)
        self._inlet.on_next(event.value)
        self.ask()

    def out_of_turn(self, value: Any) -> None:
        if self.done:
            return
        held = self._held
        if self._one_to_one and held:
            event = held.popleft()
            event.value = value
        elif held:
            event = Event(value, min(one.created for one in held), Joined(held), held[0].token)
            held.clear()
        else:
            event = Event(value, self.run.now(), _NOBODY)
        self.deliver(event)
        if len(self.pending) > self._hold:
            self.fail(
                HoldExceeded(
                    f"{len(self.pending):,} outputs of {self.info} wait for a slow reader "
                    f"(hold {self._hold:,}): it emits by the clock. Emit less often."
                )
            )
        self.ask()

    def wanted(self) -> int:
        """One input at a time, as long as an output is wanted and there is room to hold."""
        if self.demand <= len(self.pending) or self.outstanding:
            return 0
        if len(self._held) < self._hold:
            return 1
        if not self.pending and not self.scheduler.pending:
            self.fail(
                HoldExceeded(
                    f"{len(self._held):,} inputs of {self.info} wait for an output that does "
                    f"not come (hold {self._hold:,}). Use an operator that answers at once, "
                    f"such as scan for reduce, or lift(operator, hold=...)."
                )
            )
        return 0

    def finish_if_empty(self) -> None:
        if self.completing and not self.pending and not self.done:
            # What the operator kept to the natural end was meant to leave no trace.
            for event in self._held:
                if self.outstanding:
                    event.give_back()
                else:
                    event.drop(self.info.name)
            self._held.clear()
        super().finish_if_empty()

    def _leave(self) -> None:
        super()._leave()
        while self._held:
            self._held.popleft().give_back()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self.pending) + len(self._held), "bound": self._hold}
