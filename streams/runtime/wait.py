"""How long a file waits for the lines of the one before it, which is said when it takes long."""

from __future__ import annotations

from penstock.streams.io.position import Position
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["FileWait"]

# Seconds after which it is said. Chosen: longer than most calls take.
_PATIENCE = 5.0


class FileWait:
    """The time in which the file `name` is not begun, as the `position` is that of an earlier one.

    Each wait of more than five seconds is said once.
    """

    def __init__(self, run: Run, info: StageInfo, name: str, position: Position) -> None:
        self._run = run
        self._name = name
        self._position = position
        # Since when the file waits, and how long others did before.
        self._since: float | None = None
        self._before = 0.0
        self._telling = Timer(run, info, self._tell)

    @property
    def seconds(self) -> float:
        """The seconds in which a file waited."""
        since = self._since
        return self._before + (0.0 if since is None else self._run.now() - since)

    def begin(self) -> None:
        """Begin a wait, if there is none."""
        if self._since is None:
            self._since = self._run.now()
            self._telling.set(_PATIENCE)

    def end(self) -> None:
        """End the wait, if there is one."""
        if self._since is not None:
            self._before, self._since = self.seconds, None
            self._telling.cancel()

    def _tell(self) -> None:
        count, first = self._position.unfinished, self._position.first
        lines = "1 line" if count == 1 else f"{count:,} lines"
        which = f"line {first:,}" if count == 1 else f"the first is line {first:,}"
        self._run.errors.warn(
            f"{self._name} waits until the file that was read before it is finished, because a "
            f"position is that of one file: {lines} of that file unfinished, {which}."
        )
