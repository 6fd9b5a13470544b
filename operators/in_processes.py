"""Run a plain handler in processes: for work that keeps a core busy.

Items:   as the handler around which it stands.
Time:    a call waits for a free one of the `n` processes, and for its value and result to be
         pickled there and back.
Memory:  `n` processes, started by the first call of a running and ended with it.
Demand:  none of its own.
Ends:    with the running. A call past its timeout keeps its slot and its turn until it has
         really ended, and counts as `stuck`.
         The processes end with this one, however it ends.
Errors:  what the handler raises, with its traceback as its cause; NotPicklable for a value or a
         result that cannot be pickled. A process that dies fails the calls that were in it with
         BrokenProcessPool; later calls get fresh processes.

    source                                    --1--2--3--------|
    adaptive_flat_map(in_processes(2)(f))     -----a--b--c-----|
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, reduce
from importlib import import_module
from pickle import dumps, loads
from typing import TYPE_CHECKING, Any, TypeVar

from streams.errors import BuildError, NotPicklable, describe
from streams.handler import Opened, Pooled, handler_name, pool_size

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor

__all__ = ["in_processes"]

T = TypeVar("T")
R = TypeVar("R")


def in_processes(n: int) -> Callable[[Callable[[T], R]], Pooled[T, R]]:
    """Wrap a plain handler: `adaptive_flat_map(in_processes(4)(render))`, or decorate one.

    The handler must be a function of a module, its values and results picklable. Raises
    BuildError when `n` is below 1 or the handler is asynchronous; the stage that it is given to
    raises BuildError when it cannot be pickled, as a lambda cannot.
    """
    size = pool_size("in_processes", n)

    def wrap(handler: Callable[[T], R]) -> Pooled[T, R]:
        return _Processes(handler, lambda: _pool(size), "in_processes")

    return wrap


class _Processes(Pooled[T, R]):
    def check(self, stage: str) -> None:
        try:
            dumps(self._portable())
        except Exception as error:
            raise BuildError(
                f"{stage}(in_processes(...)({handler_name(self.func)})): another process has to "
                f"find the handler by its name, and cannot ({error}). Give a function that is "
                "defined with `def` at the top level of a module"
            ) from error

    def open(self) -> Opened[T, R]:
        """The handler for one running."""
        return _Opened(self._portable(), self._make_pool)

    def _portable(self) -> Callable[[T], R]:
        """The handler as it is pickled: by name, and that of a decorated one leads to this."""
        module, name = (getattr(self.func, key, "") for key in ("__module__", "__qualname__"))
        if _named(sys.modules.get(module), name) is self:
            return partial(_call_decorated, module, name)
        return self.func


class _Opened(Opened[T, R]):
    """Values and results travel as bytes: what cannot be pickled is noticed where it is, and is
    reported in one line instead of an executor's traceback."""

    def __init__(self, handler: Callable[[T], R], make_pool: Callable[[], Executor]) -> None:
        there: Any = partial(_call, handler)
        super().__init__(there, make_pool)

    async def __call__(self, value: T) -> R:
        there: Any = super().__call__
        result: R = loads(await there(_pickled(value, "The value")))
        return result


def _call(handler: Callable[[Any], Any], value: bytes) -> bytes:
    return _pickled(handler(loads(value)), f"The result of '{handler_name(handler)}'")


def _pickled(value: object, what: str) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        raise NotPicklable(
            f"{what} cannot go to another process: {error}: {describe(value)}. in_processes takes "
            "and returns plain data: no open files or connections, locks, generators or lambdas."
        ) from None


def _named(module: Any, name: str) -> Any:
    return reduce(lambda found, part: getattr(found, part, None), name.split("."), module)


def _call_decorated(module: str, name: str, value: Any) -> Any:
    return _named(import_module(module), name).func(value)


def _pool(size: int) -> ProcessPoolExecutor:
    # Imported here: slow to import, and most pipelines need none.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from streams.lifeline import end_with_parent

    # Never fork: a copy of a process with a running loop and threads may hang.
    return ProcessPoolExecutor(
        size, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
    )
