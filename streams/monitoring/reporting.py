"""What a monitor does with the violations that it finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

from penstock.streams.base.errors import check_plain
from penstock.streams.execution.handler import called_name, handler_name
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.protocol.acknowledgement import NOBODY, Joined
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.temporal.monitors.violation import Violated, Violation

__all__ = ["OnViolation", "ViolationReports"]

OnViolation = Literal["report", "stop"] | Callable[[Any], object] | Sink[Any]

# Violations that are warned about in full; further ones are only counted.
_REPORTED = 10


class ViolationReports:
    """The reports of violations in a run: `letters` is where they go, if that is a sink."""

    def __init__(self, on_violation: OnViolation, run: Run, info: StageInfo) -> None:
        self._run = run
        self._on_violation = on_violation
        self.letters = None
        if isinstance(on_violation, Sink):
            self.letters = channel_to(cast(Any, on_violation), run)
        # Where the stage calls other functions too, these calls are traced together with it.
        self._traced = None
        if not info.picture.calls:
            self._traced = run.traced(info, called_name(cast(Any, on_violation)))
        self._reported = 0

    def report(self, violation: Violation[Any], event: Event[Any] | None) -> None:
        """Report a violation by this event, or by none. Raises what a function does, Violated
        for "stop", and WrongType for an async answer."""
        if self.letters is not None:
            if event is not None:
                # The event is finished when the violation was accepted as well.
                event.pending += 1
            self.letters.put(self.letter(violation, event))
        elif self._on_violation == "report":
            self._reported += 1
            if self._reported <= _REPORTED:
                self._run.errors.warn(str(violation))
        elif self._on_violation == "stop":
            raise Violated(violation)
        else:
            call = self._on_violation
            assert callable(call)
            if self._traced is None or event is None:
                result = call(violation)
            else:
                result = self._traced.call(partial(_about, call, violation), event)
            name = handler_name(call)
            check_plain(result, name, "monitor", f"give on_violation=for_each({name}), which does")

    def letter(self, violation: Violation[Any], event: Event[Any] | None) -> Event[Any]:
        """The event of a violation for a sink."""
        if event is None:
            return Event(violation, self._run.now(), NOBODY)
        letter = Event(violation, event.created, Joined((event,)), event.token)
        letter.turn = event.place()
        return letter


def _about(call: Callable[[Any], object], violation: Violation[Any], _: object) -> object:
    return call(violation)
