"""Handlers: plain or asynchronous, on the loop or in a pool."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from reactivex import Observable

from penstock.streams.base.errors import (
    BuildError,
    UnfinishedResult,
    as_raised,
    check_plain,
    describe,
    not_awaited,
)
from penstock.streams.base.validation import is_async, is_count, require_parameters, require_seconds
from penstock.streams.protocol.blame import is_ours

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = [
    "OpenHandler",
    "Openable",
    "Opened",
    "Pooled",
    "called_name",
    "check_handler",
    "check_result",
    "check_timeout",
    "check_wrapped",
    "handler_name",
    "is_own",
    "is_plain",
    "is_users",
    "opened",
    "pool_size",
    "speaks_for_its_type",
    "unfinished",
    "with_plain_results",
]

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


def check_handler(handler: object, stage: str, of: str = "one value") -> None:
    """BuildError for what cannot be called; one easily calls a handler instead of giving it.

    `of` says what the handler is called with.
    """
    if inspect.iscoroutine(handler):
        handler.close()
        raise BuildError(
            f"{stage}({handler.__name__}(...)): the handler was called already: give "
            f"{handler.__name__} itself, without parentheses"
        )
    if not callable(handler):
        raise BuildError(f"{stage}({handler!r}): that is not callable. Give it a function of {of}")
    if isinstance(handler, FunctionType) and (handler.__module__ or "").startswith(
        "penstock.operators."
    ):
        made = f"{handler.__qualname__.split('.')[0]}(...)"
        raise BuildError(
            f"{stage}({made}): {made} is not a handler. If it wraps one, give it yours: "
            f"{stage}({made}(handler)). An operator goes into pipe()"
        )
    require_parameters(handler, f"{stage}({handler_name(handler)})", 1, of)
    if isinstance(handler, Openable):
        handler.check(stage)


def check_wrapped(handler: object, kind: str, count: int = 1, of: str = "one value") -> None:
    """BuildError for what cannot be called and so not be wrapped, such as the stream of a pipe.

    The handler is called with `count` arguments, of which `of` says what they are.
    """
    if not callable(handler):
        raise BuildError(
            f"{kind}(...) wraps a function, and {describe(handler)} is not one: write "
            f"adaptive_flat_map({kind}(...)(handler))"
        )
    require_parameters(handler, f"{kind}(...)({handler_name(handler)})", count, of)


def check_timeout(stage: str, handler: Callable[..., Any], timeout: float | None) -> None:
    """Raise BuildError unless calls of `handler` can be given so many seconds."""
    if timeout is None:
        return
    require_seconds(stage, timeout=timeout)
    if not is_async(handler):
        name = handler_name(handler)
        raise BuildError(
            f"{stage}({name}, timeout={timeout:g}): '{name}' is a plain function that runs inline, "
            "where nothing can interrupt it. Make it async, or wrap it in in_threads(n)(...) or "
            "in_processes(n)(...)."
        )


def handler_name(handler: Callable[..., Any]) -> str:
    """The name of a handler in messages."""
    inner = getattr(handler, "func", handler)
    return str(getattr(inner, "__name__", type(inner).__name__))


def is_own(handler: Callable[..., Any]) -> bool:
    """Whether a handler is one of the library's own functions, or a method of such."""
    inner = getattr(handler, "func", handler)
    return is_ours(getattr(inner, "__module__", None) or type(inner).__module__)


def is_users(value: object) -> bool:
    """Whether a value given to an operator is a function of the user's."""
    return callable(value) and not isinstance(value, type) and not is_own(value)


def called_name(*values: object) -> str:
    """The name of the first of these that is a function of the user's; "" if none is."""
    for one in values:
        if callable(one) and is_users(one):
            return handler_name(one)
    return ""


def unfinished(result: object, name: str) -> UnfinishedResult | None:
    """What is wrong with a result that is work to do, or a list of such, for which nobody waits.

    Unless the result is a list, the type alone decides, so one look at each type is enough.
    """
    if isinstance(result, list | tuple):
        items = cast("Sequence[object]", result)
        to_await = [item for item in items if _is_to_be_awaited(item)]
        if not to_await:
            return None
        for item in to_await:
            not_awaited(item)
        return UnfinishedResult(
            f"'{name}' returned a list with {describe(to_await[0], 80)} in it, which is never "
            "awaited: write `return await asyncio.gather(...)` in an async handler"
        )
    if _is_to_be_awaited(result):
        not_awaited(result)
        return UnfinishedResult(
            f"'{name}' returned {describe(result, 80)}, which nobody awaits: write "
            "`return await ...` in it"
        )
    if isinstance(result, Generator):
        return UnfinishedResult(
            f"'{name}' returned a generator, which is never read: for several results write an "
            "async generator (`async def` with `yield`), for one use `return`"
        )
    return None


def _is_to_be_awaited(result: object) -> bool:
    # An Observable can be awaited, and is a value like any other.
    return hasattr(type(result), "__await__") and not isinstance(result, Observable)


def speaks_for_its_type(result: object) -> bool:
    """Whether what a look at it says holds of all results of its type, unlike an empty list."""
    return not isinstance(result, list | tuple) or bool(cast("Sequence[object]", result))


def check_result(result: object, name: str) -> bool:
    """Raise UnfinishedResult for what is work to do instead of a result.

    Whether results of this type need no further look.
    """
    if (error := unfinished(result, name)) is not None:
        raise error
    return speaks_for_its_type(result)


def with_plain_results(
    function: Callable[..., R], stage: str, *, answers: bool = False
) -> Callable[..., R]:
    """`function`, for a stage that does not await: a coroutine as a result is UnfinishedResult.

    `answers` as for `check_plain`.
    """
    name = handler_name(function)
    # Types of results that are not coroutines.
    known: set[type] = set()

    def called(*args: Any) -> R:
        result = function(*args)
        if type(result) not in known:
            check_plain(result, name, stage, answers=answers)
            known.add(type(result))
        return result

    return called


def is_plain(function: object) -> bool:
    """Whether a call runs the body of `function`; not so for a coroutine or a generator."""
    return callable(function) and not (is_async(function) or inspect.isgeneratorfunction(function))


class OpenHandler(Protocol[T_contra, R_co]):
    """A handler for one run, with what was opened for it."""

    async def __call__(self, value: T_contra, /) -> R_co: ...

    async def close(self) -> None:
        """Close what was opened, after all calls have ended."""
        ...


class Openable(ABC, Generic[T, R]):
    """A handler for which something is opened in each run, and closed at its end."""

    func: Callable[..., object]
    """The user's function."""

    def check(self, stage: str) -> None:
        """BuildError for a handler that `stage` could not call."""

    @abstractmethod
    def open(self) -> OpenHandler[T, R]:
        """The handler for one run."""

    async def __call__(self, value: T) -> R:
        opened = self.open()
        try:
            return await opened(value)
        finally:
            await opened.close()


class Pooled(Openable[T, R]):
    """A plain handler that runs in a pool of threads or processes.

    The pool is made by `make_pool` at the first call of a run and shut down at its end.
    Cancelling a call does not stop work that has begun: the call ends when the work has, so
    that its slot and its turn are kept that long. A second cancellation gives up waiting.
    """

    def __init__(
        self, handler: Callable[[T], R], make_pool: Callable[[], Executor], kind: str
    ) -> None:
        check_wrapped(handler, kind)
        if is_async(handler):
            raise BuildError(
                f"{kind} takes plain handlers; '{handler_name(handler)}' is asynchronous and runs "
                "on the loop: give it to adaptive_flat_map as it is"
            )
        self.func: Callable[[T], R] = handler
        self._make_pool = make_pool

    def open(self) -> Opened[T, R]:
        return Opened(self.func, self._make_pool)


class Opened(Generic[T, R]):
    """A handler and its pool, for one run."""

    def __init__(self, handler: Callable[[T], R], make_pool: Callable[[], Executor]) -> None:
        self.func = handler
        self._make_pool = make_pool
        self._pool: Executor | None = None
        self._working: set[Future[R]] = set()

    async def __call__(self, value: T) -> R:
        if self._pool is None:
            self._pool = self._make_pool()
        try:
            future = self._pool.submit(_call, self.func, value)
        except RuntimeError:
            # A pool whose worker died takes no more work: this and later calls get a new one.
            self._pool.shutdown(wait=False)
            self._pool = self._make_pool()
            future = self._pool.submit(_call, self.func, value)
        pool = self._pool
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        result = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError as cancelled:
            if future.cancel():
                raise
            try:
                await asyncio.wait([result])
            except asyncio.CancelledError:
                # Given up: nobody will ask what became of it, perhaps not even the loop.
                result.cancel()
                raise
            raise cancelled from result.exception()
        except BrokenExecutor as error:
            raise await self.explained(error, pool) from None

    async def explained(self, error: BrokenExecutor, pool: Executor) -> BrokenExecutor:
        """`error`, with which `pool` broke, in words that help."""
        return error

    async def close(self) -> None:
        """Shut the pool down; work that is stuck is left behind instead of waited for."""
        pool, self._pool = self._pool, None
        if pool is not None:
            stuck = bool(self._working)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, lambda: pool.shutdown(not stuck, cancel_futures=True))


def _call(handler: Callable[[T], R], value: T) -> R:
    try:
        return handler(value)
    except StopIteration as error:
        # A future does not accept it, and its awaiter would wait for ever.
        raise as_raised(error) from error


def opened(handler: Callable[[Any], Any] | Openable[Any, Any], run: Run) -> Callable[[Any], Any]:
    """The function to call in `run`: the handler, or what it opens, which is closed with `run`."""
    if not isinstance(handler, Openable):
        return handler
    for_run: OpenHandler[Any, Any] = cast(Any, handler).open()
    run.on_close(for_run.close)
    return for_run


def pool_size(kind: str, n: int) -> int:
    """`n`, or BuildError if that many workers make no pool."""
    if callable(n):
        # Typed as a number, but that is what is easily forgotten.
        name = handler_name(n)
        raise BuildError(
            f"{kind}({name}): the number of workers comes first: write {kind}(4)({name}), or "
            f"@{kind}(4) above the function"
        )
    if not is_count(n):
        raise BuildError(f"{kind}({n!r}): at least 1 worker is needed")
    return n
