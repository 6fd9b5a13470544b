"""Notice that the loop was blocked while handlers were at work, and say which.

A timer that fires late tells that something kept the loop from running. It costs nothing per
event: it is set when work begins, set again while there is work, and left when none is in
flight or nothing has happened for a while, so that a deadlock stays one. (A watch that never
ended would keep a virtual clock going for ever.) A block that lasts is told of by
`streams.watchdog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.run import Run

__all__ = ["BLOCKED", "BlockingWatch", "Blocks"]

BLOCKED = 0.1
"""Seconds; a call or a delay that is longer is warned of. The same as asyncio's debug mode."""

# So a blockage of BLOCKED + _EVERY is always noticed, and one below BLOCKED never.
_EVERY = 0.05
# Ticks without any progress after which the watch is left until work begins anew.
_PATIENCE = 200
# Seconds between two warnings about the same handler.
_QUIET = 10.0

_ADVICE = (
    "Use asynchronous calls in it, or wrap a plain function in in_threads(n)(...) or "
    "in_processes(n)(...)."
)
_OWN = "No function of yours was running, unless it is one of Python's own."


class Blocks:
    """Warns of what blocks the loop of a run: of a block once, of a stage once in ten seconds.

    `who` is the name of the stage in all warnings of it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._quiet_until: dict[str, float] = {}
        self._seen = float("-inf")
        # A dict for its order.
        self.at_work: dict[BlockingWatch, None] = {}

    def lasts(self, who: str, text: str, *, is_own: bool) -> None:
        """The loop is blocked; called by a thread that it does not block.

        `is_own`: by the library's own code, about which the user need do nothing.
        """
        self.seen()
        self._warn(
            who, f"{text}: everything else on the loop stands still", _OWN if is_own else _ADVICE
        )

    def seen(self) -> None:
        """A block has been told of while it lasts: nothing need be said at its end."""
        self._seen = self._run.now()

    def ended(self, who: str, text: str, seconds: float) -> None:
        """The loop was blocked for so long, until now."""
        if self._run.now() - seconds > self._seen:
            self._warn(who, f"{text}: everything else on the loop stood still", _ADVICE)

    def _warn(self, who: str, text: str, advice: str) -> None:
        now = self._run.now()
        if now >= self._quiet_until.get(who, now):
            self._quiet_until[who] = now + _QUIET
            self._run.on_warning(f"{text}. {advice}")


class BlockingWatch:
    """Watches the loop for one stage. `who` names handler and stage.

    `progress()` is any value that changes as the stage gets on, None when nothing is in flight.
    """

    def __init__(self, run: Run, who: str, progress: Callable[[], object]) -> None:
        self._run = run
        self.who = who
        self._progress = progress
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._seen: object = None
        self._patience = 0

    def begin(self) -> None:
        """Work begins."""
        self._patience = _PATIENCE
        if self._timer is None:
            self._run.blocks.at_work[self] = None
            self._set()

    def end(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._leave()
            self._look()

    def _leave(self) -> None:
        self._timer = None
        del self._run.blocks.at_work[self]

    def _look(self) -> None:
        late = self._run.now() - self._due
        if late > BLOCKED:
            text = f"the loop was blocked for {late:.2f} s while {self.who} was at work"
            self._run.blocks.ended(self.who, text, late)

    def _set(self) -> None:
        self._due = self._run.now() + _EVERY
        self._timer = self._run.loop.call_later(_EVERY, self._tick)

    def _tick(self) -> None:
        self._look()
        progress = self._progress()
        if progress == self._seen:
            self._patience -= 1
        else:
            self._seen, self._patience = progress, _PATIENCE
        if progress is not None and self._patience > 0:
            self._set()
        else:
            self._leave()
