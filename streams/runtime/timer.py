"""A timer of a stage: one call later, which may be put off, brought forward or cancelled."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.streams.protocol.stage_info import StageInfo

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["Timer"]


class Timer:
    """Calls `call` once, at the time it is set to; setting it again replaces that time.

    It may be set again inside the call. An error of the call is one of the stage that `info` names.
    """

    __slots__ = ("_call", "_handle", "_info", "_run", "is_set")

    def __init__(self, run: Run, info: StageInfo | None, call: Callable[[], object]) -> None:
        self._run = run
        self._info = info
        self._call = call
        self._handle: TimerHandle | None = None
        # Whether the call is still to come.
        self.is_set = False

    @property
    def left(self) -> float:
        """How many seconds are left until the call; 0 if it is late, or not set."""
        handle = self._handle
        return 0.0 if handle is None else max(0.0, handle.when() - self._run.loop.time())

    def set(self, seconds: float) -> None:
        """Call in so many seconds."""
        self.cancel()
        self._handle = self._run.call_later(max(0.0, seconds), self._info, self._due)
        self.is_set = True

    def set_at(self, when: float) -> None:
        """Call at a time of the loop's clock."""
        self.cancel()
        self._handle = self._run.call_at(when, self._info, self._due)
        self.is_set = True

    def cancel(self) -> None:
        """Do not call."""
        handle, self._handle = self._handle, None
        self.is_set = False
        if handle is not None:
            handle.cancel()

    def _due(self) -> None:
        self._handle = None
        self.is_set = False
        self._call()
