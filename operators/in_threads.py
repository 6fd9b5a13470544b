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
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from penstock.streams.base.recorded import recorded
from penstock.streams.execution.handler import Pooled, pool_size

__all__ = ["in_threads"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@recorded
def in_threads(n: int) -> Callable[[Callable[[T], R]], Pooled[T, R]]:
    """Wrap a plain handler: `adaptive_flat_map(in_threads(8)(fetch))`.

    The handler must be safe to call from several threads. Context variables have the values of the
    start in it, and what it sets is not seen by other calls. Raises BuildError when `n` is below
    1 or the handler is asynchronous, which needs no threads.

    >>> from penstock import adaptive_flat_map, for_each, from_iterable, in_threads, run
    >>> stage = adaptive_flat_map(in_threads(2)(str.upper), ordered=True)
    >>> report = run(from_iterable(["a", "b"]).pipe(stage).to(for_each(print)))
    A
    B
    """
    size = pool_size("in_threads", n)

    @recorded
    def wrap(handler: Callable[[T], R]) -> Pooled[T, R]:
        return Pooled(
            handler,
            lambda: _Threads(size, thread_name_prefix="penstock"),
            "in_threads",
        )

    return wrap


class _Threads(ThreadPoolExecutor):
    """Runs each call in a copy of the caller's context, as `asyncio.to_thread` does."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(copy_context().run, partial(fn, *args, **kwargs))
