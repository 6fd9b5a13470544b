"""A stage with calls in flight, as many at once as its limiter says, alone or shared."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from penstock.streams.errors import BuildError
from penstock.streams.execution.handler import is_async
from penstock.streams.execution.in_flight import InFlight
from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.execution.results import Results
from penstock.streams.execution.settings import Settings
from penstock.streams.execution.waiting import Waiting
from penstock.streams.limits import Fixed, Limiter, Shared
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["Limited"]


class Limited(InFlight, ABC):
    """Follows a limit that moves.

    `slots` is how many calls may be in flight here: the limit, or what this stage has been dealt
    of one that it shares. `_open` counts the events that are asked for, waiting to begin, or in
    flight.
    """

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        settings: Settings,
        waiting: Waiting,
        results: Results,
    ) -> None:
        super().__init__(downstream, run, info, settings.handler, settings.name, waiting, results)
        self._settings = settings
        self._open: int = 0
        self.slots: int = 0
        self._hold_timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def _dispatch(self) -> None:
        """Let as many events of the inbox begin as there are slots."""

    @abstractmethod
    def _ask(self) -> None:
        """Ask for as many events as may begin."""

    @property
    def _may_learn(self) -> bool:
        """Whether several calls can be in flight, so that something can be learnt."""
        return is_async(self._settings.handler)

    def _set_limiter(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._shared = limiter if isinstance(limiter, Shared) else None
        if self._shared is not None:
            limiter = self._shared.limiter
        self._control = LimitControl(limiter, self._settings, self._broke)
        self._limit = self._control.limit
        self.slots = self._limit if self._shared is None else self.in_flight
        # A fixed limit learns nothing.
        self._learns = self._may_learn and not isinstance(limiter, Fixed)
        self._from_arrival = self._learns and self._control.from_arrival

    def _broke(self, error: Exception, what: str) -> None:
        """Something of the user's beside the handler raised: no event is to blame."""
        self._learns = self._from_arrival = False
        error.add_note(f"in the {what} of {self._info}")
        self._stop(error)

    def retune(self, limiter: Limiter) -> None:
        """Work by another limiter from the next event on; nothing is cancelled."""
        if self._cancelled:
            return
        old, shared = self._limit, self._shared
        if isinstance(limiter, Shared) and limiter is not shared:
            limiter.join(self)
        self._set_limiter(limiter)
        if shared is not None and shared is not self._shared:
            shared.leave(self)
        self._special = True
        self._control.reason = "retuned"
        self._control.tell(old, "retuned")
        self._dispatch()
        self._ask()

    def _follow_limiter(self) -> None:
        if self._control.follow():
            self._limit = self._control.limit
            if self._shared is None:
                self.slots = self._limit
            else:
                self._shared.moved(self._limit)
            self._dispatch()

    def _call_ended(self) -> None:
        self.in_flight -= 1
        self._open -= 1
        if self._shared is not None:
            self.slots -= 1

    # Holding back.

    @property
    def held_back(self) -> float:
        """Seconds for which no call begins."""
        timer = self._hold_timer
        return 0.0 if timer is None else max(0.0, timer.when() - self._run.loop.time())

    def _hold_back(self, seconds: float) -> None:
        """Begin no call for so long, nor let others under the same limit."""
        if self._shared is None:
            self.hold_back(seconds)
        else:
            self._shared.hold_back(seconds)

    def hold_back(self, seconds: float) -> None:
        """Begin no call for so long; nothing if it holds back for longer already."""
        if self._cancelled or self._error is not None or seconds <= self.held_back:
            return
        self._special = True
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self._hold_timer = self._run.call_later(seconds, self._info, self._go_on_again)

    def _go_on_again(self) -> None:
        self._hold_timer = None
        self._dispatch()
        self._ask()

    # A shared limit.

    @property
    def lacking(self) -> int:
        """Slots that it could use and has not; below 0, those that it cannot use."""
        return self.in_flight + len(self._inbox) - self.slots

    @property
    def place(self) -> tuple[Run, int]:
        """The running that this stage is part of, and its number there."""
        return self._run, self._info.number

    def begin(self) -> None:
        """Use the slot that was dealt, and ask for another event that may wait for one."""
        self._dispatch()
        self._ask()

    def follow(self) -> None:
        """The limit has changed, by what another stage told."""
        if self._control.follow():
            self._limit = self._control.limit

    @property
    def _among(self) -> int:
        """Calls in flight, of all stages that share the limit, as the limiter is told.

        Events that wait for their next attempt keep others from beginning when they are as many
        as the limit, which is then what holds the work back.
        """
        among = self.in_flight if self._shared is None else self._shared.in_flight
        return max(among, self._limit) if self._waiting.holding else among

    def _may_iterate(self) -> None:
        if self._shared is not None and self._shared.is_above_another(self):
            raise BuildError(
                f"{self._who} brings several results a call and shares its limit with a stage "
                "below it: calls that wait for room there would keep the slots that it needs. Give "
                "one of the two a limit of its own."
            )

    def _leave(self) -> None:
        """This stage is over; calls that have not ended yet keep their slots until then."""
        if self._shared is not None:
            self._shared.settle(self)
            if not self.in_flight:
                self._shared.leave(self)

    def _give_back_unstarted(self) -> None:
        super()._give_back_unstarted()
        if self._shared is not None:
            self._shared.settle(self)

    def _end_work(self) -> None:
        super()._end_work()
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
        self._leave()
