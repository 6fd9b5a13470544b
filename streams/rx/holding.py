"""The stage of a lifted operator that holds: keeps inputs unfinished until an output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reactivex.abc import ObserverBase

from penstock.streams.errors import HoldExceeded
from penstock.streams.keyed.queues import hand_over
from penstock.streams.protocol.acknowledgement import Joined, Nobody
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lifted import Lifted
from penstock.streams.rx.recognise import Part

__all__ = ["LiftedHolding"]

_NOBODY = Nobody()


class LiftedHolding(Lifted):
    """An operator that may answer later: its inputs stay unfinished until an output is finished.

    Each output takes over all inputs since the previous one; `delay` answers in order, so each
    of its outputs takes over one. Inputs that no output took over are finished when the
    stream completes, and returned when the operator ends early or is cancelled.

    While an output waits for demand, timers wait too, but run before the next input and before
    the end: the operator sees all in order, and its clock cannot outrun a slow reader. An output
    that took over no input, such as an empty list, does not meet a reader's demand: more inputs
    are requested.
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
        # Whether the last output that was sent took over no input, and how many that wait did.
        self._answered_nothing = False
        self._late: list[Callable[[], None]] = []
        self._answers_waiting = 0

    def feed(self, inlet: ObserverBase[Any], event: Event[Any]) -> None:
        self._run_late()
        if self.done or self._inlet is None:
            event.give_back()
            return
        self._held.append(event)
        try:
            inlet.on_next(event.value)
        except Exception as error:
            self._on_failed(error)

    def on_completed(self) -> None:
        self._run_late()
        super().on_completed()

    def request(self, n: int, /) -> None:
        super().request(n)
        if not (self.done or self.pending):
            self._run_late()

    def on_due(self, run: Callable[[], None]) -> None:
        if self.pending:
            self._late.append(run)
        else:
            super().on_due(run)

    def _run_late(self) -> None:
        late, self._late = self._late, []
        for run in late:
            super().on_due(run)

    def from_no_input(self, value: Any) -> None:
        if self.done:
            return
        held = self._held
        if self._one_to_one and held:
            event = held.popleft()
            event.value = value
        elif held:
            event = Event(value, min(one.created for one in held), Joined(held), held[0].token)
            event.turn = hand_over(held)
            held.clear()
        else:
            event = Event(value, self.run.now(), _NOBODY)
        if event.origin is not _NOBODY:
            self._answers_waiting += 1
        self.deliver(event)
        if len(self.pending) > self._hold:
            self.fail(
                HoldExceeded(
                    f"{len(self.pending):,} outputs of {self.info} wait for a slow reader "
                    f"(hold {self._hold:,}): another source makes it emit. Emit less often."
                )
            )
        self.go_on()

    def send(self, event: Event[Any]) -> None:
        self._answered_nothing = event.origin is _NOBODY
        if not self._answered_nothing:
            self._answers_waiting -= 1
        super().send(event)

    def wanted(self) -> int:
        """One input at a time, as long as an output is requested and there is room to hold."""
        is_wanted = self.demand > len(self.pending) or (
            self._answered_nothing and not self._answers_waiting
        )
        if self.asked or not is_wanted:
            return 0
        if len(self._held) < self._hold:
            return 1
        if not self.pending and not self.scheduler.pending:
            if len(self._held) == self._hold:
                # The next one may be answered, or the stream may end.
                return 1
            self.fail(
                HoldExceeded(
                    f"{len(self._held):,} inputs of {self.info} wait for an output that does "
                    f"not come (hold {self._hold:,}). Use an operator that answers at once, "
                    f"such as scan for reduce, or lift(operator, hold=...)."
                )
            )
        return 0

    def complete(self) -> None:
        # Inputs still held at completion produced no output.
        if self.source_completed:
            drop_all(self._held, self.info.name)
        super().complete()

    def leave(self) -> None:
        super().leave()
        give_back_all(self._held)
        self._held.clear()

    def statistics(self) -> dict[str, Any]:
        return {"waiting": len(self.pending) + len(self._held), "bound": self._hold}
