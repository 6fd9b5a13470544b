"""Run a plain handler in threads, so that it does not block the loop.

Items:   those of the wrapped handler.
Time:    a call waits for a free one of the `n` threads; a limit above `n` has no effect.
Memory:  `n` threads, started by the first calls of a run and ended with it.
Demand:  none of its own.
Ends:    with the run. A thread cannot be interrupted: a call past its timeout keeps its slot and
         its turn until it has really ended, and counts as `stuck`.
Errors:  what the handler raises, with its own traceback.

    source                                    --1--2--3--------|
    adaptive_flat_map(in_threads(2)(f))       -----a--b--c-----|
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.streams.execution.handler import Pooled, pool_size

__all__ = ["in_threads"]

T = TypeVar("T")
R = TypeVar("R")


def in_threads(n: int) -> Callable[[Callable[[T], R]], Pooled[T, R]]:
    """Wrap a plain handler: `adaptive_flat_map(in_threads(8)(fetch))`.

    The handler must be safe to call from several threads. Raises BuildError when `n` is below
    1 or the handler is asynchronous, which needs no threads.
    """
    size = pool_size("in_threads", n)

    def wrap(handler: Callable[[T], R]) -> Pooled[T, R]:
        return Pooled(
            handler,
            lambda: ThreadPoolExecutor(size, thread_name_prefix="penstock"),
            "in_threads",
        )

    return wrap
