"""An asyncio event loop with virtual time.

When nothing is ready to run, time jumps to the next timer; an hour of sleeps takes as long as
the work between them. The rules, in full:

- Time starts at 0.0 and moves in two ways only: by a jump to the next timer, or by `advance`.
  A jump lands exactly on the timer's time: nothing is rounded, nothing is early or late.
- Timers of the same time run in the order in which they were set. (A plain loop does not promise
  that, but there no two timers share a time.) So the same program gives the same run.
- Before every jump the loop polls its sockets and pipes: input that is there comes first.
- While a job started by `run_in_executor` or `asyncio.to_thread` is awaited, or inside `hold`,
  time stands still and the loop really waits. A job may claim to take time, by
  `loop.call_soon_threadsafe(loop.advance, seconds)`.
- Time does not stop for other threads, child processes and remote peers; use `hold` for them.
- With nothing ready and no timer, the loop really waits for input or another thread, for at
  most `stall` real seconds; then it raises `Stalled`, which lists the tasks and where they wait.
- No jump goes beyond `horizon`, so that a forgotten periodic timer cannot hide a deadlock.

The idea is that of Trio's `MockClock` with `autojump_threshold=0`.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple

from penstock.streams.testing.where import describe_task

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = ["Stalled", "VirtualTimeLoop", "run_virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_Ready = list[tuple[selectors.SelectorKey, int]]
_Wait = Callable[[float], _Ready]

# Chosen: a deadlock behind a one-second timer shows within 15 real seconds (measured).
HORIZON = 1_000_000.0

# Iterations between two questions to the system: a fraction of a millisecond.
_ASKS = 64

# Fewer cancelled timers are left alone until their time.
_CANCELLED = 100


class Stalled(RuntimeError):
    """The loop can never go on, or not before its horizon.

    `time` is the virtual time in seconds, `waiting` has one line for each unfinished task.
    """

    def __init__(self, reason: str, *, time: float, waiting: list[str]) -> None:
        lines = [f"{reason} Virtual time {time:g} s, {len(waiting)} unfinished tasks:", *waiting]
        super().__init__("\n  ".join(lines))
        self.time = time
        self.waiting = waiting


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time; see the rules at the top of this module.

    `stall`: real seconds to wait for the outside world before `Stalled`.
    `horizon`: the last virtual time, in seconds, to which a timer may move the loop; by default
    about eleven days, `math.inf` for none.
    """

    # The loop's time is exact: no other clock is needed.
    virtual: Literal[True] = True

    # How many iterations are made in one go.
    _most = _ASKS

    # Asyncio's own. It has no timers: they are here.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _debug: bool
    _closed: bool
    _selector: _Selector

    def __init__(self, *, stall: float = 10.0, horizon: float = HORIZON) -> None:
        super().__init__(_Selector(self._idle))
        # By their times, and those of the same time in the order in which they were set.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = self._cancelled = 0
        self._now = 0.0
        if not (0 < stall < math.inf and horizon > 0):
            self.close()
            raise ValueError(f"stall and horizon must be above 0, got {stall} and {horizon}")
        self.stall = stall
        self.horizon = horizon
        self._held = 0
        self._queued = 0.0
        self._processor = (0.0, 0.0)
        self._stalled = False

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward at once, as if the code that is running had taken that long.

        Timers that become due run when that code yields, in the order of their times. Call it on
        the loop's thread. ValueError if `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time moves forward by a finite number of seconds, not {seconds}")
        self._now += seconds

    def starve(self, seconds: float) -> None:
        """Move time forward as `advance` does, as if other processes had used the processor.

        So the code on the loop has not blocked it.
        """
        self.advance(seconds)
        self._queued += seconds

    def compute(self, own: float, others: float) -> None:
        """Count these seconds of processor time, of the loop's thread and of others of the process.

        Time does not move.
        """
        before, before_others = self._processor
        self._processor = before + own, before_others + others

    def processor(self) -> tuple[float, float]:
        """The seconds of processor time according to `compute`."""
        return self._processor

    def queued(self, thread: int) -> float:
        """The seconds for which the loop was ready and did not run, according to `starve`."""
        return self._queued

    @property
    def timers(self) -> list[asyncio.TimerHandle]:
        """Those that are set, in no order."""
        return [timer for _, _, timer in self._timers if not timer.cancelled()]

    @contextmanager
    def hold(self) -> Generator[None]:
        """Time stands still inside: the loop really waits, for work done elsewhere.

        Holds may overlap. `advance` still moves time.
        """
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As in asyncio; without its checks, unless the loop is in debug mode."""
        if self._debug or self._closed:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a virtual time; calls for the same time keep the order of `call_at`."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if math.isnan(when):
            raise ValueError("a timer needs a time, not nan")
        kind = asyncio.TimerHandle if self._debug else _TimerHandle
        timer = kind(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Forget cancelled timers when most of many are."""
        self._cancelled += 1
        if self._cancelled > max(_CANCELLED, len(self._timers) // 2):
            self._timers[:] = [timer for timer in self._timers if not timer[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _run_once(self) -> None:
        """Iterations: what is ready, and the timers that are due.

        Asyncio asks the system for input and signals in each. Here, where nothing but signals can
        come, once in a while is enough; an iteration then takes a third of the time.
        """
        ready, selector, timers = self._ready, self._selector, self._timers
        for _ in range(0 if self._stopping else self._most):
            if selector.watches_input or self._debug:
                break
            if not (ready or self._jump()):
                break
            now = self._now
            while timers and timers[0][0] <= now:
                ready.append(heapq.heappop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if self._stopping:
                return
        self._add_due()
        # Where nothing is ready it jumps, or waits, and what is then due comes next.
        super()._run_once()  # type: ignore[misc]

    def _add_due(self) -> None:
        ready, timers, now = self._ready, self._timers, self._now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """As in asyncio; time stands still until the job is done or no longer awaited."""
        job = super().run_in_executor(executor, func, *args)
        self._held += 1
        job.add_done_callback(self._release)
        return job

    # The time limit is for Python 3.12 and newer: asyncio.Runner passes one.
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """As in asyncio, but without a time limit, which would be virtual. After `Stalled` the
        threads are left alone: a job that hangs would hang its shut-down too."""
        if not self._stalled:
            with self.hold():
                await super().shutdown_default_executor()

    def _release(self, job: asyncio.Future[Any]) -> None:
        self._held -= 1

    def _idle(self, wait: _Wait) -> _Ready:
        """Nothing is ready: jump, or wait for input or another thread."""
        if self._jump():
            return []
        ready = wait(self.stall)
        if not ready:
            waited_for = (
                f"{self._held} jobs in executors (or holds) did not end"
                if self._held
                else "no timer is set and nothing came from outside"
            )
            raise self._stop(f"{waited_for} in {self.stall:g} real seconds.")
        return ready

    def _has_timer(self) -> bool:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        return bool(timers)

    def _jump(self) -> bool:
        if self._held or not self._has_timer():
            return False
        when = self._timers[0][0]
        if when == math.inf:
            return False
        if when <= self._now:
            # It is late, because of `advance`.
            return True
        if when > self.horizon:
            raise self._stop(
                f"the next timer, at {when} s, is beyond the horizon, {self.horizon} s."
            )
        self._now = when
        return True

    def _stop(self, reason: str) -> Stalled:
        self._stalled = True
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        return Stalled(reason, time=self._now, waiting=[describe_task(task) for task in tasks])


_Args = tuple[Any, ...]


class _Handle(asyncio.Handle):
    """The same, made in two thirds of the time: it asks the loop for no debug mode."""

    __slots__ = ()

    # Not called, because it asks.
    def __init__(  # pyright: ignore[reportMissingSuperCall]
        self,
        callback: Callable[..., object],
        args: _Args,
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(  # pyright: ignore[reportMissingSuperCall]
        self,
        when: float,
        callback: Callable[..., object],
        args: _Args,
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = False


class _Selector(selectors.DefaultSelector):
    """A selector that jumps where a plain loop would sleep."""

    def __init__(self, idle: Callable[[_Wait], _Ready]) -> None:
        super().__init__()
        self._idle = idle

    watches_input = False
    """Whether it watches anything but the pipe by which the loop is woken."""

    def register(
        self, fileobj: FileDescriptorLike, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self.watches_input = len(self.get_map()) > 1
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self.watches_input = len(self.get_map()) > 1
        return key

    def select(self, timeout: float | None = None) -> _Ready:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        return self._idle(super().select)


def run_virtual(
    coroutine: Coroutine[Any, Any, T], *, stall: float = 10.0, horizon: float = HORIZON
) -> T:
    """Run a coroutine on a new `VirtualTimeLoop` and return its result.

    Ends like `asyncio.run`: tasks that are left are cancelled, asynchronous generators and the
    default executor are shut down, the loop is closed. `stall` and `horizon` as for the loop.
    """
    with asyncio.Runner(
        loop_factory=lambda: VirtualTimeLoop(stall=stall, horizon=horizon)
    ) as runner:
        return runner.run(coroutine)
