"""The error policy of stages that read keys."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import add_note, message_of
from penstock.streams.base.keys import By, Key, lack_of
from penstock.streams.base.validation import seconds_of
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError
from penstock.streams.protocol.blame import blame
from penstock.streams.protocol.event import Event, give_back_all
from penstock.streams.protocol.stage_info import StageInfo

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["KeyFaults", "skipping"]

skipping: ContextVar[str] = ContextVar(
    "how to skip", default='on_error="skip", or on_error=route(sink)'
)
"""What the user gives to go on without events that fail; a command has its own option."""


class KeyFaults(ErrorPolicy):
    """The error policy of a stage that reads a key, and perhaps a time: an error says what is
    wrong.

    Both are read again when one has failed, so that there is no extra cost as long as all is well.
    `use` is what a key is for: it raises for one that is `unfit`.
    """

    def __init__(
        self,
        policy: OnError,
        run: Run,
        info: StageInfo,
        by: By[Any] | None,
        time: By[Any] | None = None,
        *,
        use: Callable[[Any], object] = hash,
        unfit: str = "cannot be a key",
    ) -> None:
        super().__init__(policy, run, info)
        self._by = by
        self._use = use
        self._unfit = unfit
        self._time = time
        self._stops = policy == "stop"

    def put_rest(
        self,
        events: list[Event[Any]],
        refused: tuple[int, Exception] | None,
        put: Callable[[list[Event[Any]]], tuple[int, Exception] | None],
        key: Key,
    ) -> tuple[int, Exception | None]:
        """`put` what is left of the events, of which it has `refused` one: it returns the place of
        one whose key it cannot read, and the error.

        Returns how many events were skipped, and the error if the policy is to stop: the events
        behind it are then returned to their source.
        """
        skipped = 0
        while refused is not None:
            place, error = refused
            if key.adapts(events[place].value):
                events = events[place:]
            else:
                event, events = events[place], events[place + 1 :]
                if not self.survives(event, error):
                    give_back_all(events)
                    return skipped, error
                skipped += 1
            refused = put(events)
        return skipped, None

    def survives_call(self, event: Event[Any], error: BaseException) -> bool:
        """As `survives`, for an error of something else than the key."""
        blame(error, self._info, event)
        return super().survives(event, error)

    def survives(self, event: Event[Any], error: BaseException, attempts: int = 1) -> bool:
        blame(error, self._info, event)
        lack = None
        if self._by is not None:
            lack = lack_of(event.value, self._by, self._use, self._unfit)
        is_unhashable = message_of(error).startswith("unhashable type")
        if callable(self._by) and self._use is hash and is_unhashable:
            lack = "a key must be hashable, as strings, numbers and tuples of them are"
        if lack is None and self._time is not None:
            lack = lack_of(event.value, self._time, seconds_of, "cannot be read as a time")
        if lack is not None:
            advice = f"; to go on without such events give {skipping.get()}"
            add_note(error, lack + (advice if self._stops else ""))
        return super().survives(event, error, attempts)
