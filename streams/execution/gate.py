"""The gate of a working stage: how many calls may be in flight, under a limit of its own or one
that several stages share, and what its limiter learns from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.streams.base.errors import BuildError
from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.execution.options import CallOptions
from penstock.streams.execution.waiting import Waiting
from penstock.streams.limits import Completion, Limiter, Outcome, Shared
from penstock.streams.protocol.event import BaseEvent, Count, Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["Gate", "Gated", "SharedGate"]


# A name of the module is looked up several times faster than a member of an enum.
_SUCCESS = Outcome.SUCCESS


class Gated(Protocol):
    """The stage whose calls a gate lets begin."""

    run: Run
    info: StageInfo
    who: str
    """The handler and the stage, in messages."""
    in_flight: int
    peak_in_flight: int
    is_concurrent: bool
    """Whether calls may be in flight together."""
    admitted: int
    """Events that are requested, waiting or in flight."""
    allowed: int
    """Calls that may be in flight."""

    @property
    def runnable(self) -> int:
        """Events that would begin now if there were slots."""
        ...

    def follow_limiter(self) -> None:
        """The limit may have changed: begin nothing more under the old one."""

    def begin(self) -> None:
        """Use slots that are new. An error ends the run of this stage, not of the caller's."""

    def hold_back(self, seconds: float) -> None:
        """Begin no call for so long."""


class Gate(LimitControl):
    """A limit of the stage's own: there are as many slots as the limit says."""

    def __init__(
        self,
        stage: Gated,
        limiter: Limiter,
        options: CallOptions,
        waiting: Waiting,
        broke: Callable[[Exception, str], None],
        moved: Callable[[], None],
    ) -> None:
        watch = stage.run.watch_of_limit(stage.info)
        super().__init__(
            *(limiter, broke, options.overload, options.on_limit_change, watch), moved=moved
        )
        self._stage = stage
        self._waiting = waiting
        self.just_ended = 0
        """Calls that have just ended, in whose place others may begin."""
        # Calls that run one at a time teach nothing, unless others call the same dependency.
        self.teach(self.is_shared or stage.is_concurrent)

    is_shared = False

    @property
    def is_wanted(self) -> bool:
        """Whether another stage waits for a slot."""
        return False

    @property
    def spare(self) -> int:
        """How many events are requested beyond those that have slots."""
        return 0

    @property
    def total(self) -> int:
        """Calls in flight under this limit."""
        return self._stage.in_flight

    def open(self, before: Gate | None = None) -> None:
        """Set the slots of the stage, in place of a gate that it had `before`."""
        if before is not None:
            before.close()
        self._stage.allowed = self.limit

    def close(self) -> None:
        """The stage makes no more calls under this limit."""

    def leave(self) -> None:
        """The stage has ended; calls that are still in flight keep their slots until they end."""

    def moved(self) -> None:
        """The limit has changed."""
        self._stage.allowed = self.limit

    def replaced(self, n: Count) -> int:
        """`n` calls begin: returns how many have just ended, whose places they may have taken."""
        return self.just_ended

    def grant(self, n: Count) -> None:
        """Give the stage `n` slots more, where it has others than the limit says."""

    @property
    def concurrency(self) -> int:
        """Calls in flight in all stages that share the limit, as reported to the limiter.

        When as many events as the limit wait for their next attempt, nothing new begins: the limit
        is then reported as used up.
        """
        return max(self.total, self.limit) if self._waiting.held else self.total

    def take(self, events: list[Event[Any]]) -> None:
        """The calls of these events begin: note how many are in flight as each of them does."""
        stage, n = self._stage, len(events)
        if self.learns:
            # A call that takes the place of one that has just ended counts as begun at that end,
            # however many ends were flushed together.
            total = self.total
            least = total + self.replaced(n)
            if self._waiting.held and least < self.limit:
                least = self.limit
            event: BaseEvent
            for level, event in enumerate(events, total + 1):
                event.level = level if level > least else least
        stage.in_flight += n
        if stage.in_flight > stage.peak_in_flight:
            stage.peak_in_flight = stage.in_flight

    def report(self, events: list[Event[Any]], error: BaseException | None) -> None:
        """The calls of these events have ended: let the limiter learn from them."""
        stage, outcome, total = self._stage, _SUCCESS, 0
        if self.from_arrival:
            total = self.concurrency if stage.is_concurrent else events[0].level
        self.ended(len(events))
        if error is not None:
            outcome, seconds = self.outcome(error)
            if seconds:
                self.overloaded(seconds)
        if not self.learns:
            return
        completions: list[Completion]
        if self.from_arrival:
            completions = [(event.ended, event.created, total, outcome) for event in events]
        else:
            # A plain call with no other in flight teaches nothing, as where no limit is shared.
            if not stage.is_concurrent and error is None:
                events = [event for event in events if event.level > 1]
            completions = [
                (event.ended, event.started or 0.0, event.level or 1, outcome) for event in events
            ]
        self.completed(completions)
        stage.follow_limiter()

    def ended(self, n: Count) -> None:
        """`n` calls have ended."""
        stage = self._stage
        stage.in_flight -= n
        stage.admitted -= n
        self.just_ended += n

    def settle(self) -> None:
        """The stage has done what it can: give its slots on to where they are needed."""

    def overloaded(self, seconds: float) -> None:
        """Begin no call for so long, in all stages under this limit."""
        self._stage.hold_back(seconds)

    def check_below(self) -> None:
        """Refuse several results of a call, where a stage under the same limit would take them."""

    def statistics(self) -> dict[str, Any] | None:
        """The numbers of a limit that is shared."""
        return None


class SharedGate(Gate):
    """A limit that several stages share: it gives each of them slots one at a time."""

    def __init__(self, stage: Gated, shared: Shared, *args: Any) -> None:
        super().__init__(stage, shared.limiter, *args)
        self._shared = shared

    is_shared = True

    @property
    def is_wanted(self) -> bool:
        return self._shared.is_wanted

    @property
    def spare(self) -> int:
        # One more than there are slots, to know whether there is work.
        return max(1, self._shared.free)

    @property
    def total(self) -> int:
        return self._shared.in_flight

    def open(self, before: Gate | None = None) -> None:
        self._shared.join(self)
        if before is not None:
            before.close()
        self._stage.allowed = self._stage.in_flight

    def close(self) -> None:
        self._shared.leave(self)

    def leave(self) -> None:
        self._shared.settle(self)
        if not self._stage.in_flight:
            self._shared.leave(self)

    def moved(self) -> None:
        self._shared.moved(self.limit)

    def replaced(self, n: Count) -> int:
        return self._shared.replaced(n)

    def grant(self, n: Count) -> None:
        self._stage.allowed += n

    def ended(self, n: Count) -> None:
        super().ended(n)
        self._stage.allowed -= n
        self._shared.flushed += n

    def settle(self) -> None:
        self._shared.settle(self)

    def overloaded(self, seconds: float) -> None:
        self._shared.hold_back(seconds)

    def check_below(self) -> None:
        if self._shared.is_above_another(self):
            stage = self._stage
            raise BuildError(
                f"{stage.who} returns several results per call and shares its limit with a stage "
                "below it: calls that wait for room there would keep the slots that it needs. Give "
                "one of the two a limit of its own."
            )

    def statistics(self) -> dict[str, Any] | None:
        return self._shared.statistics()

    # As one of the stages that share the limit.

    @property
    def in_flight(self) -> int:
        return self._stage.in_flight

    @property
    def slots(self) -> int:
        return self._stage.allowed

    @property
    def lacking(self) -> int:
        stage = self._stage
        return stage.in_flight + stage.runnable - stage.allowed

    @property
    def place(self) -> tuple[Run, int]:
        return self._stage.run, self._stage.info.number

    def begin(self) -> None:
        self._stage.begin()

    def hold_back(self, seconds: float) -> None:
        self._stage.hold_back(seconds)
