"""The watchdog: reports a blocked event loop while it is still blocked, from a separate thread.

One daemon thread watches all loops of the process on which pipelines run, and ends with the last of
them. It costs a call that each loop answers twice a second, and the notes of the stages
(`penstock.streams.diagnostics.current`). A loop that has not answered is blocked, by the stage that
is noted; the user's function and its line are found on the stack of the loop's thread, where
compiled stages have no frames. A block while no stage is at work is not caused by a pipeline, and
not reported. Code that holds the interpreter's lock blocks the watchdog too, so it is reported only
after it has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from threading import Lock, Thread, get_ident, get_native_id
from types import FrameType
from typing import Any, NamedTuple

from penstock.streams.base.clock import clock_of, queued_of
from penstock.streams.diagnostics.current import current
from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.protocol.blame import event_name, is_ours
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["LOOKS", "WATCHDOG", "Watchdog"]

# Seconds between two checks.
_EVERY = 0.5
LOOKS = 2
"""Consecutive missed answers before a loop counts as blocked. With only one, a process that was
stopped for a while would seem blocked when it goes on. If the system reports how long other
processes had the processor, that share of the time is not counted, so that a busy machine causes no
warnings."""

# The functions of a loop from which everything that runs on it is called.
_LOOP_BEGINS = {
    ("asyncio.events", "Handle._run"),
    ("asyncio.runners", "Runner.run"),
    ("asyncio.base_events", "BaseEventLoop.run_until_complete"),
    ("uvloop", "run"),
}
# Packages of which only the functions that they call are the user's.
_CALLED_BY_US = {"reactivex", *sys.stdlib_module_names}


class Watchdog:
    """Checks all loops `every` so many seconds; with None only when `look` is called."""

    def __init__(self, every: float | None = _EVERY) -> None:
        self._every = every
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Watched] = {}
        self._stop: threading.Event | None = None
        self._process = os.getpid()

    def watch(self, loop: asyncio.AbstractEventLoop, blocks: Blocks) -> None:
        """Watch the running loop, on behalf of a run with these `blocks`, until `leave`."""
        self._after_fork()
        with self._lock:
            if loop not in self._loops:
                self._loops[loop] = _Watched(loop)
            self._loops[loop].blocks.append(blocks)
            if self._stop is None and self._every is not None:
                self._stop = stop = threading.Event()
                arguments = (stop, self._every)
                Thread(None, self._patrol, "penstock watchdog", arguments, daemon=True).start()

    def leave(self, loop: asyncio.AbstractEventLoop, blocks: Blocks) -> None:
        """Stop watching on behalf of a run."""
        self._after_fork()
        with self._lock:
            watched = self._loops.get(loop)
            if watched is not None and blocks in watched.blocks:
                watched.blocks.remove(blocks)
                self._forget_the_left()

    def _after_fork(self) -> None:
        # A fork inherits the loops and the lock of its parent, but not its thread.
        if self._process != os.getpid():
            self._begin()

    def _forget_the_left(self) -> None:
        for loop, watched in list(self._loops.items()):
            if loop.is_closed() or not watched.blocks:
                del self._loops[loop]
        if self._stop is not None and not self._loops:
            self._stop.set()
            self._stop = None

    def _patrol(self, stop: threading.Event, every: float) -> None:
        while not stop.wait(every):
            self.look()

    def continued(self) -> None:
        """The process was stopped and goes on: no code has blocked a loop until now.

        For a handler of SIGCONT, which may interrupt anything else here, and so takes no lock.
        """
        for watched in list(self._loops.values()):
            for blocks in list(watched.blocks):
                blocks.seen()

    def look(self) -> None:
        """Check all loops, and warn about those that are blocked."""
        with self._lock:
            self._forget_the_left()
            loops = list(self._loops.values())
        for watched in loops:
            watched.look()


class _Watched:
    """A watched loop, with the `blocks` of the runs on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.blocks: list[Blocks] = []
        self._loop = loop
        self._now = clock_of(loop)
        self._queued_of = queued_of(loop)
        self._is_here()
        self._ask()

    def look(self) -> None:
        if not self._loop.is_running():
            self._answered = True
        elif self._answered:
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                self._ask()
        else:
            before = self._missed
            self._missed += self._own_share()
            if before < LOOKS <= self._missed:
                self._report()

    def _position(self) -> _Position | None:
        """What the loop's thread is executing; None if it has ended."""
        frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
        if frame is None:
            return None
        stack, stage = _stack(frame), self._current.stage
        task = asyncio.current_task(self._loop)
        owner = None if task is None else self._current.tasks.get(task)
        if stage is None:
            stage = owner
        info = _info(stage)
        if info is None:
            return _Position(None, None, "", _place(None, stack.innermost), stack.is_own)
        # The library calls everything in its own tasks and callbacks, and in others what its
        # functions have called.
        called = stack.called if stack.is_by_us or owner is not None or task is None else None
        event = None if called is None else _event(stage, task if stage is owner else None)
        return _Position(
            _who(stage, info, called),
            _blocks(stage),
            _at_work(stage, event, called),
            _place(called, frame if called is None else stack.innermost),
            called is None,
        )

    def _own_share(self) -> float:
        """The share of the time since the last check for which the loop's thread could run.

        Code that blocks the loop ran for at most that share.
        """
        passed, queued = self._now() - self._looked, self._queued_of(self._native) - self._queued
        self._looked += passed
        self._queued += queued
        return 1 - min(1, max(0, queued) / passed) if passed > 0 else 1

    def _ask(self) -> None:
        self._answered = False
        self._missed = 0.0
        self._looked, self._queued = self._now(), self._queued_of(self._native)
        self._loop.call_soon_threadsafe(self._answer)

    def _is_here(self) -> None:
        """The loop is run by the thread that calls."""
        self._thread, self._native, self._current = get_ident(), get_native_id(), current()

    def _answer(self) -> None:
        self._is_here()
        for blocks in self.blocks:
            blocks.iterated()
        self._answered = True

    def _report(self) -> None:
        found = self._position()
        affected = [*self.blocks]
        if found is None or not affected or self._answered:
            return
        seconds = f"{LOOKS * _EVERY:g} s"
        own = f"penstock's own code has blocked the loop for {seconds}"
        blocks: Blocks | None
        if found.who is not None:
            blocks, who = found.blocks or affected[0], found.who
            what = (
                f"{own}, in {who}" if found.is_own else f"{who} has blocked the loop for {seconds}"
            )
        else:
            at_work = ((blocks, watch.who) for blocks in affected for watch in [*blocks.at_work])
            blocks, who = next(at_work, (None, ""))
            what = f"the loop has been blocked for {seconds} while {who} is at work"
            if found.is_own:
                what = own
        if blocks is not None:
            text = f"{what}{found.event}, and is at {found.place}"
            blocks.lasts(who, text, is_own=found.is_own)
            for each in affected:
                each.seen()


class _Position(NamedTuple):
    """What a thread is executing.

    `who` is the innermost stage, None outside of all stages; `blocks` are those of its run, if the
    stage knows its run.
    """

    who: str | None
    blocks: Blocks | None
    event: str
    """What to add about the event in progress, if the stage knows it."""
    place: str
    """The line in the function that the stage called > the innermost line outside the library."""
    is_own: bool
    """Whether the library's own code is running, or code that it may have called itself."""


class _Stack(NamedTuple):
    """The user's part of the stack of a thread, without what has called the library in turn."""

    called: FrameType | None
    """The outermost frame of the innermost ones that are the user's."""
    is_by_us: bool
    """Whether the next frame outside is one of the library's, or of a stage of the user's own."""
    innermost: FrameType
    """The innermost frame outside the library, or else the innermost one."""
    is_own: bool
    """Whether there are frames of the library, and none of the user's."""


def _stack(frame: FrameType) -> _Stack:
    """Time: proportional to the depth of the stack."""
    innermost: FrameType | None = None
    called: FrameType | None = None
    ours = False
    at: FrameType | None = frame
    while at is not None:
        module = at.f_globals.get("__name__", "")
        if (module, at.f_code.co_qualname) in _LOOP_BEGINS:
            break
        if is_ours(module):
            if called is not None:
                return _Stack(called, True, innermost or frame, False)
            ours = True
        else:
            if called is not None and _is_stage(at.f_locals.get("self")):
                return _Stack(called, True, innermost or frame, False)
            innermost = innermost or at
            if module.partition(".")[0] not in _CALLED_BY_US:
                called = at
        at = at.f_back
    return _Stack(called, False, innermost or frame, ours and called is None)


def _is_stage(stage: object) -> bool:
    # Of the class: an object of the user's may do anything when it is asked.
    return hasattr(type(stage), "on_events")


def _info(stage: object) -> StageInfo | None:
    info: StageInfo | None = _attribute(stage, StageInfo, "info", "_info")
    return stage if isinstance(stage, StageInfo) else info


def _event(stage: Any, task: asyncio.Task[Any] | None) -> Event[Any] | None:
    """The event for which a stage calls a function of the user's, in a task or in a loop over a
    list, if it knows it."""
    calling = getattr(stage, "calling", None)
    if calling is not None:
        # What the iterator of the list goes on with: its place is behind the event.
        _, (events,), *place = calling.__reduce__()
        return events[place[0] - 1] if place else None
    event_in = getattr(stage, "event_in", None)
    return None if task is None or event_in is None else event_in(task)


def _at_work(stage: object, event: Event[Any] | None, called: FrameType | None) -> str:
    if called is None:
        in_flight = _attribute(stage, int, "in_flight")
        return f", events in flight: {in_flight:,}" if in_flight else ""
    return "" if event is None else f" on the event {event_name(event)}"


def _blocks(stage: object) -> Blocks | None:
    runs = (getattr(stage, name, None) for name in ("run", "_run"))
    found = (getattr(run, "blocks", None) for run in runs)
    return next((blocks for blocks in found if isinstance(blocks, Blocks)), None)


def _attribute(thing: object, kind: type[Any], *names: str) -> Any:
    values = (getattr(thing, name, None) for name in names)
    return next((value for value in values if isinstance(value, kind)), None)


def _who(stage: object, info: StageInfo, called: FrameType | None) -> str:
    if called is None:
        return str(info)
    # A working stage has the same name in all warnings: that of its handler if it is a user's.
    who: str = getattr(stage, "who", str(info))
    return f"'{called.f_code.co_name}' ({info})" if who == str(info) else who


def _place(called: FrameType | None, innermost: FrameType) -> str:
    frames = [innermost] if called is None or called is innermost else [called, innermost]
    return " > ".join(
        f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        for frame in frames
    )


WATCHDOG = Watchdog()
"""Watches the loops of this process."""
