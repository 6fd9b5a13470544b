"""The task of a slot, which only waits until the slot has ended.

Not compiled: those who look at a task, such as anyio, take its coroutine for one of Python's own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator
from typing import Any, Protocol

__all__ = ["Wake", "until_over"]


async def _nothing() -> None: ...


_coroutine = _nothing()
_Wrapper = type(_coroutine.__await__())
_coroutine.close()


class _Slot(Protocol):
    coroutine: Any
    error: BaseException | None
    future: Any

    def begin(self, wake: Wake, /) -> None: ...
    def cancel(self, message: Any, /) -> bool: ...


async def until_over(slot: _Slot) -> None:
    """Wait until `slot` is over; raises the error with which it has ended."""
    wake = Wake(slot)
    slot.begin(wake)
    try:
        await _Waiting(slot, wake)
    except asyncio.CancelledError:
        if slot.error is None:
            raise
    error, slot.error = slot.error, None
    if error is not None:
        try:
            raise error
        finally:
            # Its traceback leads to this frame.
            error = None


class Wake(asyncio.Future[None]):
    """What the task of a slot waits for, which stands for what the slot itself waits for: that is
    cancelled with the task, and asked whether it is done."""

    def __init__(self, slot: _Slot) -> None:
        super().__init__()
        self._slot = slot

    def cancel(self, msg: Any = None) -> bool:
        return not super().done() and self._slot.cancel(msg)

    def done(self) -> bool:
        future = self._slot.future
        return super().done() if future is None else bool(future.done())

    def end(self, *, cancelled: bool = False) -> None:
        """The slot is over."""
        if super().done():
            return
        if cancelled:
            super().cancel()
        else:
            self.set_result(None)


class _Waiting:
    """Awaits a wake, in place of the slot's coroutine: those who look at what a task awaits find
    the handler behind it."""

    def __init__(self, slot: _Slot, wake: Wake) -> None:
        self._slot = slot
        self._wake: Wake | None = wake

    def __await__(self) -> Generator[Wake]:
        return self  # type: ignore[return-value]

    def __iter__(self) -> _Waiting:
        return self

    def __next__(self) -> Wake:
        wake, self._wake = self._wake, None
        if wake is None:
            raise StopIteration
        wake._asyncio_future_blocking = True
        return wake

    @property
    def cr_frame(self) -> Any:
        return getattr(self._slot.coroutine, "cr_frame", None)

    @property
    def cr_await(self) -> Any:
        awaited = getattr(self._slot.coroutine, "cr_await", None)
        if type(awaited) is _Wrapper:
            # A compiled coroutine awaits others by one.
            (awaited,) = gc.get_referents(awaited)
        return awaited
