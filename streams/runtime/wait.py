"""How long something waits, which is said when it takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.streams.runtime.timer import Timer

if TYPE_CHECKING:
    from penstock.streams.protocol.stage_info import StageInfo
    from penstock.streams.runtime.context import Run

__all__ = ["Wait"]

# Seconds after which it is said. Chosen: longer than most calls take.
_PATIENCE = 5.0


class Wait:
    """A wait that may begin and end again and again; what `text` returns, if not empty, is said of
    each that takes more than five seconds."""

    __slots__ = ("_before", "_run", "_telling", "_text", "since")

    def __init__(self, run: Run, info: StageInfo | None, text: Callable[[], str]) -> None:
        self._run = run
        # Since when there is one, and how long others took before.
        self.since: float | None = None
        self._before = 0.0
        self._text = text
        self._telling = Timer(run, info, self._tell)

    @property
    def seconds(self) -> float:
        """The seconds of all waits."""
        return self._before + (0.0 if self.since is None else self._run.now() - self.since)

    def begin(self) -> None:
        """Begin a wait, if there is none."""
        if self.since is None:
            self.since = self._run.now()
            self._telling.set(_PATIENCE)

    def end(self) -> None:
        """End the wait, if there is one."""
        if self.since is not None:
            self._before, self.since = self.seconds, None
            self._telling.cancel()

    def _tell(self) -> None:
        if text := self._text():
            self._run.errors.warn(text)
