"""Loop-lag monitor: detects that handlers have blocked the event loop, and names them.

A timer that fires late shows that something kept the loop from running. It costs nothing per event:
it is set when work begins, and again until nothing is in flight or there was no progress for a
while. (On virtual time, a timer that was always set would keep the clock running for ever, and hide
a deadlock from a test.) A block in progress is reported by
`penstock.streams.diagnostics.blocked_loop`.

If the system reports how long a thread was ready to run while others ran, that time is subtracted,
so that an overloaded machine causes no false warnings. So is the processor time of the process's
other threads, which may have had the interpreter; but what the loop's own thread has computed
counts in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_native_id
from typing import TYPE_CHECKING, Protocol

from penstock.streams.base.clock import clock_of, processor_of, queued_of

if TYPE_CHECKING:
    from cachetools import TTLCache

__all__ = ["BLOCKED", "BlockingWatch", "Blocks"]

BLOCKED = 0.1
"""Seconds; a longer call or delay causes a warning. The same as asyncio's debug mode."""

# A block of BLOCKED + _EVERY is always detected, and one below BLOCKED never.
_EVERY = 0.05
# Ticks without any progress after which the watch pauses until work begins again.
_PATIENCE = 200
# Seconds between two warnings about the same handler.
_QUIET = 10.0
# Handlers for which that is remembered.
_MOST_QUIET = 1000

_ADVICE = (
    "Use asynchronous calls in it, or wrap a plain function in in_threads(n)(...) or "
    "in_processes(n)(...)."
)
_OWN = "No function of yours was running, unless it is one of Python's own."
_OWN_HANDLER = "Its handler is penstock's own: what blocked may be any other code on the loop."


class Blocks:
    """Warns about blocks of a run's loop: once per block, and once per ten seconds and stage.

    `who` is the name of the stage in all warnings about it. `is_own` says that the library's own
    code blocked, about which the user can do nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None, warn: Callable[[str], None]) -> None:
        self.now = clock_of(loop)
        self._report = warn
        # Handlers that were warned about in the last seconds.
        self._quiet: TTLCache[str, None] | None = None
        self._seen = float("-inf")
        self._queued_of = queued_of(loop)
        self._processor = processor_of(loop)
        self._iterated = self.times()
        # The stages at work; a dict, because it keeps the order.
        self.at_work: dict[BlockingWatch, None] = {}

    def times(self) -> tuple[float, float]:
        """The total seconds for which the current thread computed, and, at most, those for which it
        was kept from running."""
        own, others = self._processor()
        return own, others + self._queued_of(get_native_id())

    def blocked(self, seconds: float, before: tuple[float, float]) -> float:
        """For how many of these seconds code has blocked the loop, at least; `before` are the
        `times` when they began, or earlier."""
        own, kept = self.times()
        return max(seconds - (kept - before[1]), min(seconds, own - before[0] - _EVERY))

    def iterated(self) -> None:
        """Note that the loop runs: no call is in progress."""
        self._iterated = self.times()

    def called(self, who: str, seconds: float, *, is_own: bool) -> None:
        """Report how long a plain call has taken, until now.

        The time for which the thread was kept from running is counted from the last reported loop
        iteration: the amount subtracted is too large rather than too small.
        """
        began = self.now() - seconds
        seconds = self.blocked(seconds, self._iterated)
        if seconds > BLOCKED:
            text = f"{who} blocked the loop for {seconds:.2f} s"
            self.ended(who, text, began, is_own=is_own)

    def lasts(self, who: str, text: str, *, is_own: bool) -> None:
        """Report that the loop is blocked now. Called from another thread."""
        self.seen()
        self._warn(
            who, f"{text}: everything else on the loop stands still", _OWN if is_own else _ADVICE
        )

    def seen(self) -> None:
        """Report no block that began before now: it was reported while it lasted, or was none."""
        self._seen = self.now()

    def ended(self, who: str, text: str, began: float, *, is_own: bool = False) -> None:
        """Report that the loop was blocked from the time `began` until now."""
        advice = _OWN_HANDLER if is_own else _ADVICE
        if began > self._seen:
            self._warn(who, f"{text}: everything else on the loop stood still", advice)

    def _warn(self, who: str, text: str, advice: str) -> None:
        if self._quiet is None:
            # Slow to import, and few loops are ever blocked.
            from cachetools import TTLCache

            self._quiet = TTLCache(_MOST_QUIET, _QUIET, self.now)
        if who not in self._quiet:
            self._quiet[who] = None
            self._report(f"{text}. {advice}")


class Watched(Protocol):
    """A running pipeline, as seen by the monitor."""

    blocks: Blocks

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...


class BlockingWatch:
    """Watches the loop for one stage. `who` names the handler and the stage.

    `progress()` returns numbers that change as the stage makes progress, or None when nothing is in
    flight; the first number is the events in flight. `is_own`: the handler is one of the library's,
    and `who` names only the stage.
    """

    def __init__(
        self,
        run: Watched,
        who: str,
        progress: Callable[[], tuple[int, ...] | None],
        *,
        is_own: bool = False,
    ) -> None:
        self._run = run
        self._blocks = run.blocks
        self.who = who
        self._progress = progress
        self._is_own = is_own
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False
        """Whether the timer is set."""
        self._due = 0.0
        self._times = (0.0, 0.0)
        self._seen: object = None
        self._patience = 0

    def begin(self) -> None:
        """Watch from now on: work begins."""
        self._patience = _PATIENCE
        if self._timer is None:
            self._blocks.at_work[self] = None
            self._set()

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._leave()
            self._look()

    def _leave(self) -> None:
        self._timer = None
        self.is_on = False
        del self._blocks.at_work[self]

    def _look(self) -> None:
        late = self._blocks.now() - self._due
        if late <= BLOCKED:
            return
        late = self._blocks.blocked(late, self._times)
        if late > BLOCKED:
            text = f"the loop was blocked for {late:.2f} s while {self.who} was at work"
            if self._is_own:
                in_flight, *_ = self._progress() or (0,)
                text += f", events in flight now: {in_flight:,}"
            self._blocks.ended(self.who, text, self._due, is_own=self._is_own)

    def _set(self) -> None:
        self.is_on = True
        self._due = self._blocks.now() + _EVERY
        self._times = self._blocks.times()
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
