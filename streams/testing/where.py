"""Describes a task and where it waits.

`asyncio.Task.get_stack` stops at the task's outermost frame; a deadlock is only understood
from the innermost one, so this follows the chain of awaits down to it.
"""

from __future__ import annotations

import asyncio
import gc
from types import FrameType
from typing import Any

__all__ = ["describe_task"]


def describe_task(task: asyncio.Task[Any]) -> str:
    """The task's name, its coroutine and the place where it waits, in one line:
    `Task-7 (feed) waits at /home/me/feed.py:31 in feed.<locals>.next_line`.

    Time and memory are in proportion to the depth of the await chain.
    """
    outermost: object = task.get_coro()
    innermost = outermost
    while (inner := _awaited_by(innermost)) is not None:
        innermost = inner
    name = f"{task.get_name()} ({_qualname(outermost)})"
    frame = _frame(innermost)
    if frame is None:
        return f"{name} is at its end"
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return f"{name} waits at {place} in {_qualname(innermost)}"


def _awaited_by(waiting: object) -> object | None:
    inner = _first_of(waiting, "cr_await", "ag_await", "gi_yieldfrom")
    if inner is None or _frame(inner) is not None:
        return inner
    # `async for` and `__await__` put an opaque object in between, which shows what it
    # drives only to the garbage collector.
    return next((held for held in gc.get_referents(inner) if _frame(held) is not None), None)


def _frame(waiting: object) -> FrameType | None:
    frame = _first_of(waiting, "cr_frame", "ag_frame", "gi_frame")
    return frame if isinstance(frame, FrameType) else None


def _first_of(waiting: object, *attributes: str) -> object | None:
    values: list[object] = [getattr(waiting, attribute, None) for attribute in attributes]
    return next((value for value in values if value is not None), None)


def _qualname(waiting: object) -> str:
    return str(getattr(waiting, "__qualname__", type(waiting).__qualname__))
