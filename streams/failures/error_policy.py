"""The error policy of one stage at run time, which settles each failed event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from penstock.streams.base.errors import Snooze, cancelled_inside, cancelled_outside
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.policy import OnError, Retry, Route, last_of
from penstock.streams.protocol.acknowledgement import is_nobodys
from penstock.streams.protocol.blame import blame, note_end
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import identities, shown
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import is_cancelled_by_owner
from penstock.streams.stages.sink_stage import BaseSinkStage

__all__ = ["ErrorPolicy", "policy_in"]


def policy_in(run: Run, policy: OnError) -> OnError:
    """The policy of a stage that was built with `policy`: on an engine another one replaces "stop",
    also after the last attempt."""
    other = run.overrides.in_place_of_stop
    if policy == "stop":
        return cast("OnError", other)
    if isinstance(policy, Retry) and policy.then == "stop":
        return policy._replace(then=cast("Any", last_of(other)))
    return policy


class ErrorPolicy:
    """One stage's policy at run time; a sink gives itself, as its `info` is complete only then.

    Without a `policy` it stops, also on an engine that replaces "stop".
    """

    def __init__(self, policy: OnError | None, run: Run, stage: StageInfo | BaseSinkStage) -> None:
        self.skipped = self.reverted = self.routed = 0
        self._stage = stage
        self._run = run
        last = "stop" if policy is None else last_of(policy_in(run, policy))
        self._letters = channel_to(last.sink, run) if isinstance(last, Route) else None
        self._reverts = last == "revert"
        # Whether an event that failed is done, rather than returned to its source.
        self.gives_up = last == "skip" or isinstance(last, Route)

    @property
    def _info(self) -> StageInfo:
        return self._stage if isinstance(self._stage, StageInfo) else self._stage.info

    def error_of_call(
        self,
        events: list[Event[Any]],
        error: BaseException,
        name: str,
        give_back: Callable[[list[Event[Any]]], object],
        stop: Callable[[BaseException], object] | None,
    ) -> BaseException | None:
        """The error with which a call of `name` has failed, after it raised `error` in its task.

        None if the stage has ended, which then has no `stop`. Raises an exit, and the cancellation
        of the task itself. Unless an error is returned, the events are given back.
        """
        if stop is None:
            give_back(events)
            if isinstance(error, Exception):
                self._run.late_error(error)
            elif not isinstance(error, asyncio.CancelledError):
                raise error
            return None
        if isinstance(error, KeyboardInterrupt | SystemExit):
            blame(error, self._info, events[0])
            give_back(events)
            raise error
        if not isinstance(error, asyncio.CancelledError):
            return error
        if not is_cancelled_by_owner():
            return cancelled_inside(f"'{name}'", error)
        # Obey, lose nothing, and leave no stage behind that has no task.
        outside = cancelled_outside(f"the task that calls '{name}'", error)
        blame(outside, self._info, events[0])
        give_back(events)
        stop(outside)
        raise error

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        """Settle a failed event. Returns False if the stage must stop.

        One that is snoozed goes back to its source, whatever the policy. An error that is not an
        Exception, such as a user's own BaseException, always stops it.
        """
        if isinstance(error, Snooze) and self._comes_again():
            self.reverted += 1
            event.fail(error)
            return True
        blame(error, self._info, event)
        if not isinstance(error, Exception) or not (self.gives_up or self._reverts):
            note_end(error, ends=True)
            event.fail(error)
            return False
        info = self._info
        self._run.errors.count(
            error,
            event,
            stage=info.number,
            stage_name=info.name,
            token=event.token,
            identity=shown(identities(event)),
            attempts=attempts,
        )
        if self._letters is not None:
            self._letters.send(event, error, str(self._info), attempts, self._was_routed)
        else:
            gives_up = self.gives_up or is_nobodys(event)
            self.skipped += gives_up
            self.reverted += not gives_up
            note_end(error, ends=False)
            event.fail(error, acknowledged=gives_up)
        return True

    def _comes_again(self) -> bool:
        """Whether the sources give again what is returned to them."""
        sources = self._run.nesting.sources
        return bool(sources) and all(source.gives_again for source in sources)

    def _was_routed(self) -> None:
        self.routed += 1

    def statistics(self) -> dict[str, int]:
        """How many events were `skipped`, `reverted` (or snoozed) and `routed`."""
        return {"skipped": self.skipped, "reverted": self.reverted, "routed": self.routed}
