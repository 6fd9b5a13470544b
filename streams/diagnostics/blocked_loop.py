"""Reports a blocked event loop while it is still blocked, from a separate thread.

One daemon thread watches all loops of the process on which pipelines run, and ends with the last of
them. Its only cost is a call that each loop answers twice a second. A loop that has not answered is
blocked; the thread then inspects the stack of the loop's thread for the stage that blocks it. A
block while no stage is at work is not caused by a pipeline, and not reported. Code that holds the
interpreter's lock blocks the watchdog too: it is reported when it has ended.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from threading import Event, Lock, Thread, get_ident, get_native_id

from penstock.streams.clock import clock_of, queued_of
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.diagnostics.stack import standing

__all__ = ["LOOKS", "WATCHDOG", "Watchdog"]

# Seconds between two checks.
_EVERY = 0.5
LOOKS = 2
"""Consecutive missed answers before a loop counts as blocked. With only one, a process that was
stopped for a while would seem blocked when it goes on. If the system reports how long other
processes had the processor, that share of the time is not counted, so that a busy machine causes no
warnings."""


_OWN_CODE = "penstock's own code has blocked the loop for"


class Watchdog:
    """Checks `every` so many seconds; None: only when `look` is called."""

    def __init__(self, every: float | None = _EVERY) -> None:
        self._every = every
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Watched] = {}
        self._stop: Event | None = None
        self._process = os.getpid()

    def watch(self, loop: asyncio.AbstractEventLoop, blocks: Blocks) -> None:
        """Watch a loop, which runs now, for a run, whose `blocks` these are, until `leave`."""
        self._after_fork()
        with self._lock:
            if loop not in self._loops:
                self._loops[loop] = _Watched(loop)
            self._loops[loop].blocks.append(blocks)
            if self._stop is None and self._every is not None:
                self._stop = stop = Event()
                arguments = (stop, self._every)
                Thread(None, self._patrol, "penstock watchdog", arguments, daemon=True).start()

    def leave(self, loop: asyncio.AbstractEventLoop, blocks: Blocks) -> None:
        """The run has ended."""
        self._after_fork()
        with self._lock:
            watched = self._loops.get(loop)
            if watched is not None and blocks in watched.blocks:
                watched.blocks.remove(blocks)
                self._forget_the_left()

    def _after_fork(self) -> None:
        # A fork has the loops and the lock of its parent, but not its thread.
        if self._process != os.getpid():
            self._begin()

    def _forget_the_left(self) -> None:
        for loop, watched in list(self._loops.items()):
            if loop.is_closed() or not watched.blocks:
                del self._loops[loop]
        if self._stop is not None and not self._loops:
            self._stop.set()
            self._stop = None

    def _patrol(self, stop: Event, every: float) -> None:
        while not stop.wait(every):
            self.look()

    def look(self) -> None:
        """Warn of the loops that are blocked."""
        with self._lock:
            self._forget_the_left()
            loops = list(self._loops.values())
        for watched in loops:
            watched.look()


class _Watched:
    """A loop, and the `blocks` of the runs on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.blocks: list[Blocks] = []
        self._loop = loop
        self._now = clock_of(loop)
        self._queued_of = queued_of(loop)
        self._thread, self._native = get_ident(), get_native_id()
        self._ask()

    def look(self) -> None:
        if not self._loop.is_running():
            self._answered = True
        elif self._answered:
            # It may have been closed meanwhile.
            with suppress(RuntimeError):
                self._ask()
        else:
            before = self._in_vain
            self._in_vain += self._share_of_its_own()
            if before < LOOKS <= self._in_vain:
                self._tell()

    def _share_of_its_own(self) -> float:
        """The share of the time since the last check in which no other process kept the loop's
        thread
        from running: code that blocks the loop ran for at most that share."""
        passed, queued = self._now() - self._looked, self._queued_of(self._native) - self._queued
        self._looked += passed
        self._queued += queued
        return 1 - min(1, max(0, queued) / passed) if passed > 0 else 1

    def _ask(self) -> None:
        self._answered = False
        self._in_vain = 0.0
        self._looked, self._queued = self._now(), self._queued_of(self._native)
        self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._thread, self._native = get_ident(), get_native_id()
        for blocks in self.blocks:
            blocks.turned()
        self._answered = True

    def _tell(self) -> None:
        found = standing(self._thread)
        affected = [*self.blocks]
        if found is None or not affected or self._answered:
            return
        seconds = f"{LOOKS * _EVERY:g} s"
        blocks: Blocks | None
        if found.who is not None:
            blocks = found.blocks or affected[0]
            who = found.who
            if found.is_own:
                what = f"{_OWN_CODE} {seconds}, in {who}{found.event}"
            else:
                what = f"{who} has blocked the loop for {seconds}{found.event}"
        else:
            at_work = ((blocks, watch.who) for blocks in affected for watch in [*blocks.at_work])
            blocks, who = next(at_work, (None, ""))
            what = f"the loop has been blocked for {seconds} while {who} is at work"
            if found.is_own:
                what = f"{_OWN_CODE} {seconds}"
        if blocks is not None:
            blocks.lasts(who, f"{what}, and stands at {found.place}", is_own=found.is_own)
            for each in affected:
                each.seen()


WATCHDOG = Watchdog()
"""Watches the loops of this process."""
