"""Run a plain handler in processes: for work that keeps a core busy.

Items:   as the handler around which it stands.
Time:    a call waits for a free one of the `n` processes, and for its value and result to be
         pickled there and back.
Memory:  `n` processes, started by the first call of a running and ended with it.
Demand:  none of its own.
Ends:    with the running. A call past its timeout keeps its slot and its turn until it has
         really ended, and counts as `stuck`.
Errors:  what the handler raises, with its traceback as its cause. A process that dies fails the
         calls that were in it with BrokenProcessPool; later calls get fresh processes.

    source                                    --1--2--3--------|
    adaptive_flat_map(in_processes(2)(f))     -----a--b--c-----|
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from streams.handler import Pooled, pool_size

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

__all__ = ["in_processes"]

T = TypeVar("T")
R = TypeVar("R")


def in_processes(n: int) -> Callable[[Callable[[T], R]], Pooled[T, R]]:
    """Wrap a plain handler: `adaptive_flat_map(in_processes(4)(render))`, or decorate one.

    The handler must be a function of a module, its values and results picklable. Raises
    BuildError when `n` is below 1 or the handler is asynchronous.
    """
    size = pool_size("in_processes", n)

    def wrap(handler: Callable[[T], R]) -> Pooled[T, R]:
        return _Processes(handler, lambda: _pool(size), "in_processes")

    return wrap


class _Processes(Pooled[T, R]):
    def open(self) -> Any:
        """The handler for one running."""
        opened = super().open()
        # Functions are pickled by name, and that of a decorated one leads to this wrapper.
        module, name = (getattr(self.func, key, "") for key in ("__module__", "__qualname__"))
        if _named(sys.modules.get(module), name) is self:
            opened.func = partial(_call_decorated, module, name)
        return opened


def _named(module: Any, name: str) -> Any:
    return reduce(lambda found, part: getattr(found, part, None), name.split("."), module)


def _call_decorated(module: str, name: str, value: Any) -> Any:
    return _named(import_module(module), name).func(value)


def _pool(size: int) -> ProcessPoolExecutor:
    # Imported here: slow to import, and most pipelines need none.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Never fork: a copy of a process with a running loop and threads may hang.
    return ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn"))
