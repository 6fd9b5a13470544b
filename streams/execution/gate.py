"""The gate of a working stage: how many calls may be in flight, under a limit of its own or one
that several stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.streams.base.errors import BuildError
from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.execution.options import CallOptions
from penstock.streams.limits import Limiter, Shared
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["Gate", "Gated", "SharedGate"]


class Gated(Protocol):
    """The stage whose calls a gate lets begin."""

    run: Run
    info: StageInfo
    who: str
    """The handler and the stage, in messages."""
    in_flight: int
    admitted: int
    """Events that are requested, waiting or in flight."""
    allowed: int
    """Calls that may be in flight."""

    @property
    def ready(self) -> int:
        """Events that would begin now if there were slots."""
        ...

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
        broke: Callable[[Exception, str], None],
        moved: Callable[[], None],
    ) -> None:
        watch = stage.run.watch_of_limit(stage.info)
        super().__init__(
            *(limiter, broke, options.overload, options.on_limit_change, watch), moved=moved
        )
        self._stage = stage
        self.just_ended = 0
        """Calls that have just ended, in whose place others may begin."""

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

    def replaced(self, n: int) -> int:
        """`n` calls begin: returns how many have just ended, whose places they may have taken."""
        return self.just_ended

    def grant(self, n: int) -> None:
        """Give the stage `n` slots more, where it has others than the limit says."""

    def ended(self, n: int) -> None:
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

    def replaced(self, n: int) -> int:
        return self._shared.replaced(n)

    def grant(self, n: int) -> None:
        self._stage.allowed += n

    def ended(self, n: int) -> None:
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
        return stage.in_flight + stage.ready - stage.allowed

    @property
    def place(self) -> tuple[Run, int]:
        return self._stage.run, self._stage.info.number

    def begin(self) -> None:
        self._stage.begin()

    def hold_back(self, seconds: float) -> None:
        self._stage.hold_back(seconds)
