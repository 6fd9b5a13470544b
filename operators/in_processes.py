"""Run a plain handler in processes, for CPU-bound work.

Items:   those of the wrapped handler.
Time:    a call waits for a free one of the `n` processes, and for its value and result to be
         pickled there and back.
Memory:  `n` processes, started by the first call of a run and ended with it.
Demand:  none of its own.
Ends:    with the run. A call past its timeout keeps its slot and its turn until it has really
         ended, and counts as `stuck`. The processes end with this one, however it ends.
Errors:  what the handler raises, with its traceback as its cause, or JobFailed with its text if it
         cannot be pickled; NotPicklable for a value or a result that cannot be. A process that
         dies fails all calls that were under way in the pool with BrokenProcessPool, which says
         how it ended; later calls get fresh processes.

    source                                    --1--2--3--------|
    adaptive_flat_map(in_processes(2)(f))     -----a--b--c-----|
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial, reduce
from importlib import import_module
from os.path import exists
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from penstock.streams.base import clock
from penstock.streams.base.errors import BuildError, NotPicklable, as_raised, describe
from penstock.streams.base.recorded import recorded
from penstock.streams.execution.handler import Opened, Pooled, handler_name, pool_size
from penstock.streams.failures.sent_error import SentError

if TYPE_CHECKING:
    from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
    from multiprocessing.process import BaseProcess

__all__ = ["in_processes"]

# Seconds for a process to end after the executor has ordered it.
_GRACE = 1.0

T = TypeVar("T")
R = TypeVar("R")


@recorded
def in_processes(n: int) -> Callable[[Callable[[T], R]], Pooled[T, R]]:
    """Wrap a plain handler: `adaptive_flat_map(in_processes(4)(render))`, or decorate one.

    The handler must be a function of a module, its values and results picklable. Raises BuildError
    when `n` is below 1 or the handler is asynchronous; the stage that it is given to raises
    BuildError when it cannot be pickled, as a lambda cannot, or has no file to be imported from,
    such as one typed into an interactive session.

    >>> from math import factorial
    >>> from penstock import adaptive_flat_map, collect, from_iterable, in_processes
    >>> flow = from_iterable([1_000, 2_000]).pipe(adaptive_flat_map(in_processes(2)(factorial)))
    >>> print(flow.to(collect([])))
    <Pipeline from_iterable > adaptive_flat_map > collect>
    """
    size = pool_size("in_processes", n)
    # Slow to import, which would block the loop, and most pipelines do not need it.
    import_module("concurrent.futures.process")

    @recorded
    def wrap(handler: Callable[[T], R]) -> Pooled[T, R]:
        return _Processes(handler, lambda: _pool(size), "in_processes")

    return wrap


class _Processes(Pooled[T, R]):
    def check(self, stage: str) -> None:
        if getattr(self.func, "__module__", "") == "__main__" and not _main_can_be_imported():
            raise BuildError(
                f"{stage}(in_processes(...)({handler_name(self.func)})): other processes import "
                "the handler from its file, and code typed into a session or read from standard "
                "input has none. Write it to a module, and import it from there"
            )
        try:
            dumps(self._portable())
        except Exception as error:
            raise BuildError(
                f"{stage}(in_processes(...)({handler_name(self.func)})): another process has to "
                f"find the handler by its name, and cannot ({error}). Give a function that is "
                "defined with `def` at the top level of a module"
            ) from None

    def open(self) -> Opened[T, R]:
        """The handler for one run."""
        return _Opened(self._portable(), self._make_pool, handler_name(self.func))

    def _portable(self) -> Callable[[T], R]:
        """The handler as it is pickled: by name, which for a decorated one leads to the wrapper."""
        module, name = (getattr(self.func, key, "") for key in ("__module__", "__qualname__"))
        if _named(sys.modules.get(module), name) is self:
            return partial(_call_decorated, module, name)
        return self.func


class _Opened(Opened[T, R]):
    """Values and results travel as bytes: a pickling error is noticed on its own side, and is
    reported in one line instead of an executor's traceback."""

    def __init__(
        self, handler: Callable[[T], R], make_pool: Callable[[], Executor], name: str
    ) -> None:
        there: Any = partial(_call, handler)
        # By pool, for an executor that is shut down has forgotten its processes.
        self._processes: WeakKeyDictionary[Executor, dict[int, BaseProcess]] = WeakKeyDictionary()

        def make() -> Executor:
            pool = make_pool()
            self._processes[pool] = getattr(pool, "_processes", {})
            return pool

        super().__init__(there, make)
        self._name = name

    async def __call__(self, value: T) -> R:
        there: Any = super().__call__
        answer: bytes | SentError = await there(_pickled(value, "The value"))
        if isinstance(answer, SentError):
            raise as_raised(answer.raised())
        try:
            result: R = loads(answer)
        except Exception as error:
            raise NotPicklable(
                f"The result of '{self._name}' cannot be read by the process that gets it, "
                f"{type(error).__name__}: {error}"
            ) from error
        return result

    async def explained(self, error: BrokenExecutor, pool: Executor) -> BrokenExecutor:
        """The error with the handler's name and the exit status of the process that died."""
        # The executor's own error has neither.
        processes = list(self._processes[pool].values())
        loop = asyncio.get_running_loop()
        ends = await loop.run_in_executor(None, _ends, processes)
        return type(error)(
            f"a process of in_processes has died{ends}, which fails all calls that were under way "
            f"in the pool, this one of '{self._name}' among them"
        )


def _ends(processes: list[BaseProcess]) -> str:
    """The exit statuses of processes, one of which died; the executor ends the others."""
    from penstock.streams.runtime.process.lifeline import ending_of

    until = clock.monotonic() + _GRACE
    for process in processes:
        status = None
        while status is None and clock.monotonic() < until:
            # Where the executor waits for it at the same moment, this returns without a status.
            process.join(0.01)
            status = process.exitcode
        # SIGTERM is how the executor ends the others.
        if status is not None and status != -signal.SIGTERM:
            return f" ({ending_of(status)})"
    return ""


def _call(handler: Callable[[Any], Any], value: bytes) -> bytes | SentError:
    try:
        result = handler(loads(value))
    except Exception as error:
        # An error that the executor cannot read ends its pool, with all calls under way.
        return SentError.of(error)
    return _pickled(result, f"The result of '{handler_name(handler)}'")


def _pickled(value: object, what: str) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        raise NotPicklable(
            f"{what} cannot go to another process: {error}: {describe(value)}. in_processes takes "
            "and returns plain data: no open files or connections, locks, generators or lambdas."
        ) from None


def _main_can_be_imported() -> bool:
    main: Any = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return getattr(main, "__spec__", None) is not None or (path is not None and exists(path))


def _named(module: Any, name: str) -> Any:
    return reduce(lambda found, part: getattr(found, part, None), name.split("."), module)


def _call_decorated(module: str, name: str, value: Any) -> Any:
    return _named(import_module(module), name).func(value)


def _pool(size: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Never fork: a copy of a process with a running loop and threads may hang.
    return ProcessPoolExecutor(
        size, mp_context=multiprocessing.get_context("spawn"), initializer=_begin
    )


def _begin() -> None:
    """What a process of the pool does first."""
    from penstock.streams.runtime.process.lifeline import end_with_parent
    from penstock.streams.runtime.process.os_signals import FROM_TERMINAL, left_to_parent

    end_with_parent()
    # Ctrl-C and a closed terminal drain the pipeline, for which calls in progress go on here. The
    # executor itself ends its processes by SIGTERM.
    left_to_parent(FROM_TERMINAL)
