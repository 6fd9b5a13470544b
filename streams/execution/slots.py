"""The slots of a stage, each of which makes one call at a time, in a task of its own.

The stage runs the coroutine of a slot itself: `step` does what the step of a task does, with that
task as the current one and in its context. The task only waits, and passes its cancellation on (see
`slot_task`). So a call that yields to the loop needs no callback of its own, and a slot that waits
for the next event needs none and no future.

If a call changes context variables, its slot ends, and another one takes the next event: every call
begins with the variables of the start.
"""

from __future__ import annotations

import asyncio
import sys

# Documented for those who implement tasks: https://docs.python.org/3/library/asyncio-extending.html
from asyncio.tasks import (
    _enter_task,  # pyright: ignore[reportPrivateUsage]
    _leave_task,  # pyright: ignore[reportPrivateUsage]
)
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Protocol, cast

from penstock.streams.diagnostics.current import Current
from penstock.streams.execution.slot_task import Wake, until_over
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot

__all__ = ["IDLE", "CallSlot", "Slots", "Slotted"]

# Since then a cancellation is not thrown if it is undone before.
_UNCANCEL_UNDOES = sys.version_info >= (3, 13)

_NOTHING_DUE = object()


class _Idle:
    __await__ = (_NOTHING_DUE,).__iter__


IDLE = cast("Awaitable[None]", _Idle())
"""Awaited by a slot, until there is something to do."""


class CallSlot(Slot):
    """A slot: its coroutine, what that waits for, and its task."""

    __slots__ = (
        "_slots",
        "_variables",
        "context",
        "coroutine",
        "error",
        "future",
        "go_on",
        "is_idle",
        "send",
        "thrown",
        "wake",
    )

    def __init__(self, slots: Slots, context: Context) -> None:
        super().__init__(cast(Any, None))
        self._slots = slots
        stage = slots.stage
        # A call of a function less than that of a method: it is made for each wait.
        self.go_on: Callable[..., object] | None = partial(
            stage.run.call, stage.info, stage.resumed, self
        )
        """Called when what its coroutine waits for is done."""
        self.context = context
        self._variables = context.copy()
        self.is_idle = False
        self.coroutine: Any = None
        self.send: Any = None
        self.wake: Wake | None = None
        self.future: Any = None
        """What its coroutine waits for."""
        self.thrown: BaseException | None = None
        """What is thrown into its coroutine as soon as that goes on."""
        self.error: BaseException | None = None
        """The error with which it has ended."""

    def begin(self, wake: Wake) -> None:
        """The task has begun, and waits for `wake`: a cancellation is not lost from now on."""
        self.wake = wake
        self._slots.begun(self)

    def has_changed(self) -> bool:
        """Whether a context variable has another value than at the start."""
        try:
            return self.context != self._variables
        except Exception:
            # Two values that cannot be compared, such as arrays.
            return True

    def cancel(self, message: Any, /) -> bool:
        """Its task is cancelled."""
        if self.is_idle:
            self._slots.end_idle(self)
        elif self.future is None or not self.future.cancel(msg=message):
            self.thrown = _cancellation(message)
        return True

    def cancel_future(self) -> None:
        """It was cancelled before its coroutine began to wait."""
        error = self.still_thrown()
        if error is not None and self.future.cancel(msg=error.args[0] if error.args else None):
            self.thrown = None

    def still_thrown(self) -> BaseException | None:
        """What is thrown into it, unless that is a cancellation which was undone."""
        is_cancelled = isinstance(self.thrown, asyncio.CancelledError)
        if is_cancelled and _UNCANCEL_UNDOES and not self.task.cancelling():
            self.thrown = None
        return self.thrown


class Slotted(Protocol):
    """The stage that runs slots. All but `work` is called in callbacks of the loop."""

    run: Run
    info: StageInfo

    def work(self, slot: CallSlot, /) -> Coroutine[Any, Any, None]:
        """Take events that are due, and be `IDLE` without any."""
        ...

    def resumed(self, slot: CallSlot, future: Any, /) -> None:
        """Go on with a slot, because what it waited for is done."""

    def begin_soon(self) -> None:
        """There is one more idle slot."""

    def slot_ended(self) -> None:
        """The task of a slot has ended."""


class Slots:
    """The slots of one stage."""

    __slots__ = (
        "_context",
        "_current",
        "_loop",
        "_name",
        "_run",
        "_starting",
        "by_task",
        "idle",
        "stage",
        "yielded",
    )

    def __init__(self, stage: Slotted, name: str) -> None:
        self.stage = stage
        self._run = stage.run
        self._current: Current = stage.run.current
        self._name = f"{stage.info.name} {name}"
        self._loop: Any = None
        # That of callbacks: the slots' own are entered in them.
        self._context: Context | None = None
        self.by_task: dict[asyncio.Task[None], CallSlot] = {}
        """In order, so that the same run always ends in the same way."""
        self.idle: dict[CallSlot, None] = {}
        """Those that wait for events, the last one first."""
        self.yielded: list[CallSlot] = []
        """Those that are to go on in the next loop iteration."""
        self._starting = 0

    def make(self, n: int, most: int) -> None:
        """Have slots for `n` events that are due; there are at most `most` slots."""
        missing = n - len(self.idle) - self._starting
        for _ in range(min(missing, most - len(self.by_task))):
            self._make()

    def _make(self) -> None:
        run = self._run
        if self._context is None:
            self._context, self._loop = run.new_context(), run.loop
        slot = CallSlot(self, run.new_context())
        self._starting += 1
        slot.task = task = run.spawn(
            until_over(slot), self._name, stage=self.stage, context=slot.context, replaced=True
        )
        self.by_task[task] = slot
        task.add_done_callback(self._task_ended)

    def begun(self, slot: CallSlot) -> None:
        """The task of a slot has begun: it is idle."""
        slot.has_begun = True
        self._starting -= 1
        slot.coroutine = self.stage.work(slot)
        slot.send = slot.coroutine.send
        slot.is_idle = True
        self.idle[slot] = None
        self.stage.begin_soon()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        slot = self.by_task.pop(task, None)
        if slot is not None and not slot.has_begun:
            self._starting -= 1
        self.stage.slot_ended()

    def step(self, slot: CallSlot) -> None:
        """Go on with a slot, until it waits, yields, is idle or over. An exit is raised."""
        current = self._current
        thrown = None if slot.thrown is None else slot.still_thrown()
        slot.is_idle = False
        _enter_task(self._loop, slot.task)
        # What it calls is found by its task.
        outer, current.stage = current.stage, None
        try:
            if thrown is None:
                waited_for = slot.context.run(slot.send, None)
            else:
                slot.thrown = None
                waited_for = slot.context.run(slot.coroutine.throw, thrown)
        except StopIteration:
            self._over(slot)
        except (KeyboardInterrupt, SystemExit) as error:
            # Its task would raise it once more, in the loop that ends the others.
            self._over(slot)
            self._run.call_soon(None, self._run.failed, error)
            raise
        except BaseException as error:
            slot.error = error
            self._over(slot)
        else:
            if waited_for is None:
                self.yielded.append(slot)
            elif waited_for is _NOTHING_DUE:
                slot.is_idle = True
                self.idle[slot] = None
            elif not getattr(waited_for, "_asyncio_future_blocking", False):
                self._refuse(slot, _bad("Task got bad yield", waited_for, slot))
            else:
                # Here, and not in a method: this runs for each call that waits.
                try:
                    # The second form is that of futures from before Python 3.7.
                    named = hasattr(waited_for, "get_loop")
                    loop = waited_for.get_loop() if named else waited_for._loop
                    if loop is not self._loop:
                        raise _bad("attached to a different loop", waited_for, slot)
                    if waited_for is slot.task:
                        raise _bad("Task cannot await on itself", waited_for, slot)
                    waited_for._asyncio_future_blocking = False
                    slot.future = waited_for
                    waited_for.add_done_callback(slot.go_on, context=self._context)
                    if slot.thrown is not None:
                        slot.cancel_future()
                except Exception as error:
                    # Of a future that is none of asyncio's, too: its call has it.
                    slot.future = None
                    self._refuse(slot, error)
        finally:
            _leave_task(self._loop, slot.task)
            current.stage = outer

    def _refuse(self, slot: CallSlot, error: Exception) -> None:
        """Throw an error into a slot for what it has yielded, as its task would; a cancellation
        that is to be thrown already comes before it."""
        if slot.still_thrown() is None:
            slot.thrown = error
        self.yielded.append(slot)

    def _over(self, slot: CallSlot, *, cancelled: bool = False) -> None:
        """A slot has returned, or raised `error`."""
        wake, slot.wake, slot.send, slot.coroutine = slot.wake, None, None, None
        slot.go_on = None
        self.by_task.pop(slot.task, None)
        if wake is not None:
            wake.end(cancelled=cancelled)

    def end_idle(self, slot: CallSlot) -> None:
        """The task of an idle slot was cancelled."""
        del self.idle[slot]
        slot.is_idle = False
        slot.coroutine.close()
        self._over(slot, cancelled=True)

    def cancel(self) -> None:
        """Cancel all but the current task, which reads the state of its stage itself."""
        for task in [*self.by_task]:
            if task is not asyncio.current_task(self._run.loop):
                self._run.tasks.cancel(task)


def _bad(why: str, yielded: object, slot: CallSlot) -> RuntimeError:
    return RuntimeError(f"{why}: {yielded!r}, in {slot.task!r}")


def _cancellation(message: Any) -> asyncio.CancelledError:
    return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)
