"""The stages of lifted operators: an Rx operator between two stages that keep demand."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from reactivex import Observable
from reactivex.abc import DisposableBase, ObserverBase, SchedulerBase
from reactivex.disposable import Disposable

from penstock.streams.base.errors import (
    CALL_ERRORS,
    HoldExceeded,
    PenstockError,
    add_note,
    counted,
    own_error,
)
from penstock.streams.keyed.queues import joined
from penstock.streams.protocol.acknowledgement import NOBODY, Family
from penstock.streams.protocol.blame import fail_event
from penstock.streams.protocol.event import Event, drop_all, finish_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.loop_scheduler import LoopScheduler
from penstock.streams.rx.combining.side_streams import Beside
from penstock.streams.rx.recognise import Part
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.stages.source_stage import needs_end

__all__ = ["Lifted", "LiftedHolding"]


class Lifted(BaseDemandStage):
    """An operator that answers at once: outputs inherit the event that is being fed.

    An input without output is dropped and one more is requested. Outputs beyond the demand
    wait, and nothing more is fed until they are gone; nor is more requested of the streams that the
    operator reads besides.
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
        # The event that is being fed: an Any, because it may change inside a call.
        self._fed: Any = None
        self._source_error: Exception | None = None
        # Whether one input may be answered with more outputs than are requested.
        self._one_by_one = one_by_one
        self._chain: Observable[Any] = Observable(self._subscribed)
        # What reads further streams for the operator, if it has any.
        self._beside = Beside(self) if any(part.make for part in parts) else None
        at = 1
        for part in parts:
            operator = part.operator
            if part.make is not None and self._beside is not None:
                operator = part.make(self._beside.read, at)
                at += len(part.others)
            self._chain = operator(self._chain)
        self._subscription: DisposableBase = Disposable()
        self._thread = threading.get_ident()

    # The Rx side.

    def _subscribe(self) -> None:
        self._subscription = self._chain.subscribe(
            self._on_output, self._on_failed, self._on_ended, scheduler=self.scheduler
        )
        if self.state >= CLOSED:
            self._subscription.dispose()

    def _subscribed(
        self, observer: ObserverBase[Any], scheduler: SchedulerBase | None = None
    ) -> DisposableBase:
        self._inlet = observer
        self._drain()
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
        self.deliver(Event(value, self.run.now(), NOBODY))

    def _on_failed(self, error: Exception) -> None:
        if self._is_here():
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self.state >= CLOSED:
            return
        fed = self.failing()
        if fed is not None:
            fail_event(fed, error, self.info)
        elif error is not self._source_error:
            add_note(error, f"in {self.info}")
        self.fail(error)

    def failing(self) -> Event[Any] | None:
        """Remove and return the event that is being fed, if any: an error is about it."""
        fed: Event[Any] | None = self._fed
        self._fed = None
        return fed

    def _on_ended(self) -> None:
        if self._is_here():
            self._completing = True
            if self._fed is None:
                self._want_no_more()
                self._drain()

    def _want_no_more(self) -> None:
        if not self.state:
            self.end()
            self.cancel_upstream()

    # From above.

    def on_subscribe(self, subscription: Any, /) -> None:
        super().on_subscribe(subscription)
        if self.upstream is subscription and self.state < CLOSED:
            # The source answers inside `request`, so nothing is requested before the operator
            # listens to its other sources too.
            self.within(self._subscribe)

    def take(self, events: list[Event[Any]], /) -> None:
        # The outputs of one input leave before the next comes.
        for event in events:
            if self._inlet is None or self.state >= CLOSED:
                event.give_back()
            else:
                self.feed(self._inlet, event)

    def feed(self, inlet: ObserverBase[Any], event: Event[Any]) -> None:
        """Give one input to the operator."""
        self._fed = event
        try:
            inlet.on_next(event.value)
        except CALL_ERRORS as raised:
            # Stock operators catch what user functions raise; a user's own may let it through.
            self._on_failed(own_error(raised))
        # It may have failed inside the call.
        if self._fed is None:
            return
        self._fed = None
        outputs, self._outputs = self._outputs, []
        if self.state >= CLOSED:
            # A function has cancelled the stream inside the call: no output comes after that.
            event.give_back()
            return
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
        self.source_completed = True
        if self._inlet is None:
            self._completing = True
        super().on_completed()
        if self._inlet is not None:
            self._inlet.on_completed()
        if self._beside is not None:
            self._beside.source_ended()

    def on_error(self, error: BaseException, /) -> None:
        if isinstance(error, Exception) and self._inlet is not None:
            self.end()
            self._source_error = error
            self._inlet.on_error(error)
        elif self.state < CLOSED:
            super().on_error(error)

    # Common.

    def step(self) -> bool:
        if self.demand and self.pending:
            self.send(self.pending.popleft())
        elif self._completing and not self.pending:
            self.complete()
        elif self._beside is not None and not self.pending and self._beside.fill():
            # Before the source: what comes at once counts for its next event.
            pass
        elif not self.state and self._inlet is not None and (n := self.wanted()) > 0:
            self.ask(n)
        else:
            return False
        return True

    def deliver(self, event: Event[Any]) -> None:
        """Send an output on, or let it wait for demand."""
        if self.state >= CLOSED:
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

    def release(self) -> None:
        self._subscription.dispose()
        give_back_all(self.pending)
        self.pending.clear()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self.pending)}


class LiftedHolding(Lifted):
    """An operator that may answer later: its inputs stay unfinished until an output is finished.

    Each output takes over all inputs since the previous one; `delay` answers in order, so each
    of its outputs takes over one. Inputs that no output took over are finished when the
    stream completes, and returned when the operator ends early or is cancelled.

    While an output waits for demand, timers wait too, but run before the next input and before
    the end: the operator sees all in order, and its clock cannot outrun a slow reader. The clock of
    an operator that gathers inputs, or keeps the latest, for a time stands still while nothing is
    requested. An output that took over no input, such as an empty list, does not meet a reader's
    demand: more inputs are requested.

    In a drain, an operator that keeps only the latest inputs until a tick has its tick at the end
    of its source.

    When it holds as many as it may, it ends those early that the operator does not need: all but
    the latest are dropped, if it needs no others; and if it makes one value of them, those whose
    ends do nothing at their source are finished.
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
        # How many of the latest inputs the operator needs, if not all; whether it folds them.
        self._keeps: int | None = None
        self._folds = False
        self._by_ticks = any(part.entry.by_ticks for part in parts)
        # How many outputs may wait.
        self._most_waiting: float = hold
        first = parts[0].entry
        if len(parts) == 1:
            if first.lists:
                # Only an input, a tick, of which one may wait, and the end make it emit.
                self._most_waiting = inf
            if first.latest and parts[0].arguments.get("predicate") is None:
                self._keeps = parts[0].arguments.get("count", 1)
            else:
                self._folds = first.folds or first.latest
        self._windows, self._gaps = first.windows, first.gaps
        self._has_warned = False
        self._held: deque[Event[Any]] = deque()
        # Whether the operator is being fed the last one.
        self._is_feeding = False
        self._in_order = all(part.entry.in_order for part in parts)
        # Whether the last output that was sent took over no input, and how many that wait did.
        self._answered_nothing = False
        self._late: list[Callable[[], None]] = []
        # Whether its clock stands still without demand, and since when it does.
        self._stands = self._by_ticks and not any(part.entry.delays for part in parts)
        self._stands_since: float | None = run.now() if self._stands else None
        self._hurries = False
        self._answers_waiting = 0

    def feed(self, inlet: ObserverBase[Any], event: Event[Any]) -> None:
        self._run_late()
        if self.state >= CLOSED or self._inlet is None:
            event.give_back()
            return
        self._held.append(event)
        self._is_feeding = True
        try:
            inlet.on_next(event.value)
        except CALL_ERRORS as raised:
            self._on_failed(own_error(raised))
        self._is_feeding = False
        if self._gaps and not (self._beside and self._beside.reads_made) and self._held:
            # No list or window is open: the event is in none.
            self._held.pop().drop(self.info.name)

    def failing(self) -> Event[Any] | None:
        # It is the last one held, unless it has left in an output already.
        return self._held.pop() if self._is_feeding and self._held else None

    def on_completed(self) -> None:
        self._run_late()
        super().on_completed()
        if self._keeps is not None and self.run.drains and self.state < CLOSED:
            # It waits for nothing but the next tick, with the newest event.
            self._hurries = True
            self.scheduler.hurry()

    def request(self, n: int, /) -> None:
        since = self._stands_since
        if since is not None and n + self.demand > len(self.pending):
            self._stands_since = None
            self._late.clear()
            self.scheduler.postpone(self.run.now() - since)
        super().request(n)
        if self.state < CLOSED and not self.pending:
            self._run_late()

    def on_due(self, run: Callable[[], None]) -> None:
        if self.pending or (self._stands_since is not None and not self._hurries):
            self._late.append(run)
        else:
            super().on_due(run)

    def _run_late(self) -> None:
        if self._stands_since is not None and not self._hurries:
            return
        late, self._late = self._late, []
        for run in late:
            super().on_due(run)

    def from_no_input(self, value: Any) -> None:
        if self.state >= CLOSED:
            return
        held = self._held
        if self._in_order and held:
            event = held.popleft()
            event.value = value
        elif held:
            event = joined(value, held)
            held.clear()
        else:
            event = Event(value, self.run.now(), NOBODY)
        if event.origin is not NOBODY:
            self._answers_waiting += 1
        self.deliver(event)
        if len(self.pending) > self._most_waiting:
            self.fail(
                HoldExceeded(
                    f"{counted(len(self.pending), 'output')} of {self.info} wait for a slow reader "
                    f"(hold {self._hold:,}): another source makes it emit. Emit less often."
                )
            )
        self._drain()

    def send(self, event: Event[Any]) -> None:
        self._answered_nothing = event.origin is NOBODY
        if not self._answered_nothing:
            self._answers_waiting -= 1
        if self._stands and self.demand == 1:
            self._stands_since = self.run.now()
        super().send(event)

    def wanted(self) -> int:
        """One input at a time, as long as an output is requested and there is room to hold."""
        is_wanted = self.demand > len(self.pending) or (
            self._answered_nothing and not self._answers_waiting
        )
        if self.asked or not is_wanted:
            return 0
        if len(self._held) < self._hold or self._lets_go():
            return 1
        if not self.pending and not self._may_emit_alone():
            if len(self._held) == self._hold:
                # The next one may be answered, or the stream may end.
                return 1
            self.fail(
                HoldExceeded(
                    f"{counted(len(self._held), 'input')} of {self.info} wait for an output that "
                    f"does not come (hold {self._hold:,}). {self._why_all()}"
                )
            )
        elif not self.pending and not self._has_warned:
            self._has_warned = True
            self.run.errors.warn(
                f"{self.info} holds {self._hold:,} events, as many as it may, and reads no more "
                "until it emits: use lift(operator, hold=...) to let it hold more",
                stage=self.info.number,
            )
        return 0

    def _may_emit_alone(self) -> bool:
        """Whether an output may come without another input."""
        ticks = self._by_ticks and self._beside is not None and self._beside.may_signal
        return ticks or bool(self.scheduler.pending)

    def _lets_go(self) -> bool:
        """End inputs that the operator does not need; whether there is room now."""
        held = self._held
        if self._keeps is not None:
            needless = len(held) - max(self._keeps, 1)
            drop_all([held.popleft() for _ in range(needless)], self.info.name)
        elif self._folds and not any(needs_end(event) for event in held):
            finish_all(list(held))
            held.clear()
        return len(held) < self._hold

    def _why_all(self) -> str:
        if self._windows:
            return (
                "Their windows gave no result: let what reads a window emit at its end, as count() "
                "or last_or_default() do."
            )
        more = "Use lift(operator, hold=...) to let it hold more, or cut the stream into windows."
        if self._folds:
            return f"The source must not forget them before the result is written. {more}"
        return f"It keeps them all. {more}"

    def complete(self) -> None:
        # Inputs still held at completion produced no output.
        if self.source_completed:
            drop_all(self._held, self.info.name)
        super().complete()

    def release(self) -> None:
        super().release()
        give_back_all(self._held)
        self._held.clear()
        self._answers_waiting = 0

    def statistics(self) -> dict[str, Any]:
        # Without the outputs that took over no input.
        return {"waiting": self._answers_waiting + len(self._held), "bound": self._hold}
