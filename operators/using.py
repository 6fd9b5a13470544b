"""Give an async handler a resource that is open while the pipeline runs, such as a session.

Items:   those of the wrapped handler.
Time:    the resource is opened on the loop at the first call, and calls wait until it is open.
Memory:  one resource for each stage of a run.
Demand:  none of its own.
Ends:    with the run: the resource is closed when all calls have ended, also after a cancel.
Errors:  what the handler raises. An error in opening fails the calls that wait for it, and the next
         call tries to open it again; an error in closing fails the run. WrongType if `make` returns
         something other than an async context manager.

    source                                        --1--2--3--|
    adaptive_flat_map(using(ClientSession)(f))    ----a--b--c|
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from penstock.streams.base.errors import BuildError, WrongType, describe
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_coroutine_function
from penstock.streams.execution.handler import Openable, check_wrapped, handler_name

__all__ = ["using"]

# The name of the task.
_NAME = "penstock using"

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


@recorded
def using(
    make: Callable[[], AbstractAsyncContextManager[S]],
) -> Callable[[Callable[[S, T], Awaitable[R]]], Openable[T, R]]:
    """Wrap a handler that takes a resource and a value: `using(ClientSession)(fetch)`.

    `make()` returns an async context manager, such as a session or a pool of connections. What
    entering it returns is the first argument of the handler, as of `async def fetch(session, url)`.
    It is entered and left in one task. Raises BuildError if `make` cannot be called or the handler
    is not an `async def`.

    >>> from contextlib import asynccontextmanager
    >>> from penstock import adaptive_flat_map, for_each, from_iterable, run, using
    >>> @asynccontextmanager
    ... async def connection():
    ...     yield {"a": 1}
    >>> async def look_up(prices, name):
    ...     return prices[name]
    >>> stage = adaptive_flat_map(using(connection)(look_up))
    >>> report = run(from_iterable(["a"]).pipe(stage).to(for_each(print)))
    1
    """
    if not callable(make):
        raise BuildError(
            f"using({describe(make)}): give a function that makes the resource, such as "
            "using(ClientSession), or using(lambda: create_pool(url))"
        )

    @recorded
    def wrap(handler: Callable[[S, T], Awaitable[R]]) -> Openable[T, R]:
        return _Using(make, handler)

    return wrap


class _Using(Openable[T, R], Generic[S, T, R]):
    """A handler, and how its resource is made."""

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[S]],
        handler: Callable[[S, T], Awaitable[R]],
    ) -> None:
        check_wrapped(handler, "using", 2, "the resource and a value")
        if not is_coroutine_function(handler):
            raise BuildError(
                f"using(...) takes an `async def` handler, and '{handler_name(handler)}' is not one"
            )
        self.func: Callable[[S, T], Awaitable[R]] = handler
        self._make = make

    def open(self) -> _Opened[S, T, R]:
        return _Opened(self._make, self.func)


class _Opened(Generic[S, T, R]):
    """A handler with its resource, for one run.

    A task of its own enters and leaves the context manager, because many, such as those with a
    group of tasks inside, must be left by the task that entered them.
    """

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[S]],
        handler: Callable[[S, T], Awaitable[R]],
    ) -> None:
        self.func = handler
        self._make = make
        self._over = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None
        self._resource: asyncio.Future[S] | None = None

    async def __call__(self, value: T) -> R:
        resource = self._resource
        if resource is None or not resource.done():
            resource = await self._opened()
        return await self.func(resource.result(), value)

    async def _opened(self) -> asyncio.Future[S]:
        """The resource, which is opened now unless it is open. Raises what opening it raises."""
        resource, holding = self._resource, self._holding
        if resource is None or holding is None:
            resource = self._resource = asyncio.get_running_loop().create_future()
            holding = self._holding = asyncio.create_task(self._hold(resource), name=_NAME)
        if not resource.done():
            # If the caller is cancelled, the task goes on: the next caller waits for it.
            either: list[asyncio.Future[Any]] = [holding, resource]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not resource.done():
            if holding is self._holding:
                self._resource = self._holding = None
            await holding
        return resource

    async def _hold(self, resource: asyncio.Future[S]) -> None:
        context: Any = self._make()
        if not hasattr(context, "__aenter__"):
            raise WrongType(
                f"using(...): {describe(context)} is not an async context manager, which "
                "`async with` could open and close"
            )
        async with context as opened:
            resource.set_result(opened)
            await self._over.wait()

    async def close(self) -> None:
        """Close the resource, if it was opened."""
        self._over.set()
        holding, resource = self._holding, self._resource
        if holding is None or resource is None:
            return
        if not resource.done():
            holding.cancel()
        await asyncio.wait([holding])
        if not holding.cancelled():
            holding.result()
