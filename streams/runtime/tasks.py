"""Tasks and their owner: no task outlives the running pipeline that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from penstock.streams.base.clock import running_loop
from penstock.streams.base.errors import cancelled_inside, cancelled_outside

__all__ = ["Tasks", "cancellable", "ended", "has_changed", "is_cancelled_by_owner", "new_task"]

T = TypeVar("T")

# Seconds that cancelled tasks have for their clean-up.
_GRACE = 5.0
# What the names of tasks begin with.
_PREFIX = "penstock "


class Tasks:
    """The tasks of one owner. `failed(name, error)` is called when a task ends with an error.

    Or when it was cancelled by anybody else: nothing would go on where it was.
    """

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        # Whether the owner does without each of them: it has cancelled it, or begins another.
        self._running: dict[asyncio.Task[Any], bool] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def __contains__(self, task: object) -> bool:
        return task in self._running

    def spawn(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, None],
        name: str,
        context: Context | None = None,
        *,
        replaced: bool = False,
    ) -> asyncio.Task[None]:
        """Start a task, in this context or else in a copy of the current one.

        `replaced`: its owner begins another one if anybody cancels it.
        """
        task = new_task(work, f"{_PREFIX}{name}", loop, context)
        self._running[task] = replaced
        task.add_done_callback(self._ended)
        return task

    def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task, if it has not ended."""
        if task in self._running:
            self._running[task] = True
            task.cancel()

    async def end(self) -> str:
        """Cancel all tasks and wait for them; returns the names of those that have not ended.

        A task that does not end is cancelled again after five seconds, and abandoned after five
        more.
        """
        again = False
        while self._running:
            tasks = list(self._running)
            for task in tasks:
                self._running[task] = True
                # One that is cancelled already may need a moment for its clean-up.
                if again or not task.cancelling():
                    task.cancel()
            _, left = await asyncio.wait(tasks, timeout=_GRACE)
            if again and left:
                return ", ".join(sorted(task.get_name() for task in left))
            again = bool(left)
        return ""

    def _ended(self, task: asyncio.Task[Any]) -> None:
        is_dispensable = self._running.pop(task)
        name = task.get_name().removeprefix(_PREFIX)
        error: BaseException | None = None
        try:
            error = task.exception()
        except asyncio.CancelledError as cancelled:
            if not task.cancelling():
                error = cancelled_inside(f"the task '{name}'", cancelled)
            elif not is_dispensable:
                error = cancelled_outside(f"the task '{name}'", cancelled)
        if error is not None:
            self._failed(name, error)


async def ended(task: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a task that is not to be interrupted; whether it has ended within `seconds`.

    If not it is cancelled, again after five seconds, and abandoned after five more.
    """
    _, left = await asyncio.wait([task], timeout=seconds)
    in_time = not left
    for _ in range(2):
        if left:
            task.cancel()
            _, left = await asyncio.wait([task], timeout=_GRACE)
    return in_time


def new_task(
    work: Coroutine[Any, Any, T],
    name: str,
    loop: asyncio.AbstractEventLoop | None = None,
    context: Context | None = None,
) -> asyncio.Task[T]:
    """Start a task of the running loop, or of the given one, which begins in a later iteration.

    The factory of a loop may begin it at once, inside the call of a stage that cannot be called
    again before it returns: see `asyncio.eager_task_factory`.
    """
    return asyncio.Task(work, loop=loop or asyncio.get_running_loop(), name=name, context=context)


def has_changed(context: Context) -> bool:
    """Whether a context variable of the current context has another value than in this one."""
    try:
        return copy_context() != context
    except Exception:
        # Two values that cannot be compared, such as arrays.
        return True


def is_cancelled_by_owner() -> bool:
    """Whether the current task was cancelled itself; if not, what it calls or awaits was."""
    task = None if running_loop() is None else asyncio.current_task()
    return task is not None and bool(task.cancelling())


async def cancellable(work: Awaitable[T]) -> T:
    """Await work of others that may lose a cancellation, which is then raised here.

    `asyncio.wait_for` loses it before Python 3.12 where its result has just come: the task would
    continue, and who waits for its end would wait for ever.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
