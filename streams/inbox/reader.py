"""The source stage of an inbox: what was taken in waits here for demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from penstock.streams.base.errors import describe
from penstock.streams.inbox.callers import Ended, dropped, own, returned, unanswered
from penstock.streams.inbox.entrance import Entrance
from penstock.streams.protocol.answers import Answer, Asked
from penstock.streams.protocol.event import Ending, Event, give_back_all
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.time_slice import fitting

__all__ = ["Reader"]

# The most lost events that are shown.
_SHOWN = 5


class Reader(BaseSourceStage):
    """The source stage: accepted events wait here for demand."""

    is_pushed = True

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, entrance: Entrance[Any]
    ) -> None:
        super().__init__(downstream, run, info)
        self._entrance = entrance
        self._taken_in: deque[Event[Any]] = deque()
        self._awaited: dict[Event[Any], Ended] = {}
        # Those of other inboxes are in it, too.
        self._asked: Asked = {} if run.asked is None else run.asked
        self._stopped = False
        self._lost = 0
        self._first_lost: list[str] = []

    def start(self) -> None:
        self._entrance.open(self)
        self.run.on_close(self._forget)
        super().start()
        self.admit()

    @property
    def has_room(self) -> bool:
        return len(self._taken_in) < (self.info.bound or 0)

    def take_in(self, value: Any, ended: Ended | None, answer: Answer | None) -> Event[Any]:
        """Accept a value; there must be room. `wake_soon` is to be called then."""
        event = Event(value, self.run.now(), self)
        if ended is not None:
            self._awaited[event] = ended
            if answer is not None:
                self._asked[event] = answer
        self._taken_in.append(event)
        return event

    def _withdraw(self, event: Event[Any]) -> None:
        """Remove an event, if it still waits here, which frees its place."""
        if event in self._taken_in:
            self._taken_in.remove(event)
            self._awaited.pop(event, None)
            self._asked.pop(event, None)
            self.admit()
            self._complete_if_drained()

    def admit(self) -> None:
        """Accept the events of waiting callers, as far as there is room."""
        if self.state or self._stopped:
            return
        self._entrance.let_threads_in_line()
        callers = self._entrance.callers
        while callers and self.has_room:
            accepted, (value, ended, answer) = callers.popitem(last=False)
            # A caller that was cancelled, although it has not resumed yet, has put nothing.
            if accepted.done():
                continue
            if answer is not None and self.run.asked is None:
                accepted.set_result(unanswered())
            else:
                event = self.take_in(value, ended, answer)
                accepted.set_result(partial(self._withdraw, event))
        if self._taken_in:
            # After all callers have been notified, so that they can still withdraw their events.
            self.wake_soon()

    def request(self, n: int, /) -> None:
        if self._taken_in or self.state or self._withheld is not None:
            super().request(n)
        else:
            # As most often: what is requested is still to be put in.
            self.demand += n

    def produce(self) -> None:
        now = self.run.now()
        waiting = self._taken_in
        while waiting and self.demand and not self._slice.is_over(now):
            size = min(len(waiting), self.demand, self._chunk)
            self.send_all([waiting.popleft() for _ in range(size)])
            self.admit()
            before, now = now, self.run.now()
            self._chunk = fitting(self._chunk, now - before)
        if self._stopped:
            self._complete_if_drained()

    def stop(self) -> None:
        """Accept nothing more; accepted events still go out."""
        if self.state:
            return
        self._stopped = True
        self._entrance.close()
        self._complete_if_drained()

    def _complete_if_drained(self) -> None:
        if self._stopped and not self._taken_in:
            self.complete()

    def release(self) -> None:
        self._entrance.close()
        self._entrance.reader = None
        waiting = list(self._taken_in)
        self._taken_in.clear()
        self.received += len(waiting)
        give_back_all(waiting)

    @property
    def needs_ends(self) -> bool:
        return bool(self._awaited)

    async def _forget(self) -> None:
        """Release all callers that wait for an event of a run that is over."""
        left = list(self._awaited)
        self._note_ends(left, returned())
        self._tell(left, returned())
        if self._lost:
            more = self._lost - len(self._first_lost)
            values = ", ".join(self._first_lost) + (f" and {more:,} more" if more else "")
            self.run.errors.warn(
                "lost, because they were not finished and no caller waits for them any more: "
                f"{self._lost:,} of the events in the {self.info.name}: {values}"
            )

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        error: BaseException | None = None if ending is Ending.DROPPED else why
        if ending is Ending.RETURNED:
            for event in events:
                ended = self._awaited.get(event)
                if ended is None or ended.done():
                    self._lost += 1
                    if self._lost <= _SHOWN:
                        self._first_lost.append(describe(event.value))
            error = returned()
        if self._awaited:
            if self._asked:
                self._note_ends(events, dropped(why) if ending is Ending.DROPPED else error)
            self._tell(events, error)

    def _note_ends(self, events: Iterable[Event[Any]], error: BaseException | None) -> None:
        for event in events:
            answer = self._asked.pop(event, None)
            if answer is not None:
                answer.error = own(error)

    def _tell(self, events: Iterable[Event[Any]], error: BaseException | None) -> None:
        for event in events:
            ended = self._awaited.pop(event, None)
            if ended is not None and not ended.done():
                ended.set_result(own(error))

    def statistics(self) -> dict[str, Any]:
        """`buffered` events are accepted and not requested yet; `callers` wait for room;
        `lost` were returned, and no caller waits for them."""
        numbers = super().statistics()
        buffered = len(self._taken_in)
        return {
            **numbers,
            "in": numbers["in"] + buffered,
            "buffered": buffered,
            "callers": len(self._entrance.callers),
            "lost": self._lost,
        }
