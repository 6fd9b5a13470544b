"""The groups that are closed before they were idle for long enough."""

from __future__ import annotations

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["ClosedEarly"]

# What to do about them, by cause.
_ADVICE = {
    "buffer": "Raise buffer=, or give a shorter idle=, so that groups end by themselves.",
    "max_groups": "Raise max_groups=, or give a shorter idle=.",
}


class ClosedEarly:
    """How many groups of one `group_by` were closed early, `by_cause`; the first is warned of."""

    def __init__(self, run: Run, info: StageInfo, idle: float) -> None:
        self.by_cause: dict[str, int] = {}
        self._run = run
        self._info = info
        self._idle = idle

    def count(self, cause: str) -> None:
        """A group is closed early, for this cause."""
        errors = self._run.errors
        if cause not in self.by_cause:
            errors.warn(
                f"{self._info} has closed a group before it was idle for {self._idle:g} s, for "
                f"lack of room ({cause}): what comes out of it is made of a part of its events. "
                f"{_ADVICE[cause]}"
            )
        for counts in (self.by_cause, errors.closed_early):
            counts[cause] = counts.get(cause, 0) + 1
