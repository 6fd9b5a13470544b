"""The items of an async iterable, one at a time, for a stage that does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Any

from penstock.streams.base.errors import as_raised, cancelled_inside
from penstock.streams.boundary.once import new_iterator
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import is_cancelled_by_owner

__all__ = ["NOT_YET", "AsyncItems"]

NOT_YET = object()
"""In place of an item that has not come yet."""


class AsyncItems(Iterator[Any]):
    """Iterates over an async iterable, of which an item is pulled when it is requested.

    If an item has not come yet, the result is NOT_YET, and `came` is called when it is there, or
    the end or an error. `is_new`: it was requested, and nobody has reset this since.
    Memory: one item, and the task that pulls. At the end and at `close` the iterable is closed by
    its `aclose`, if it has one; the run waits for that. An exception of it is raised by `next`.
    """

    is_new = False

    def __init__(
        self,
        items: AsyncIterable[Any],
        run: Run,
        info: StageInfo,
        came: Callable[[AsyncItems], object],
    ) -> None:
        self._iterator = new_iterator(items, aiter)
        self._run = run
        self._info = info
        self._came = came
        self._item: Any = NOT_YET
        self._ending: tuple[BaseException | None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._is_asked = False

    def __next__(self) -> Any:
        item, self._item = self._item, NOT_YET
        if item is not NOT_YET:
            return item
        if self._ending is not None:
            (error,) = self._ending
            if error is not None:
                raise as_raised(error)
            raise StopIteration
        if not self._is_asked:
            self._is_asked = self.is_new = True
            self._wanted.set()
            if self._task is None:
                self._task = self._run.spawn(self._pull(), self._info.name, stage=self._info)
        return NOT_YET

    def close(self) -> None:
        """Pull no more, and forget the item that was not taken."""
        self._ending = (None,)
        self._item = NOT_YET
        if self._task is not None:
            self._run.tasks.cancel(self._task)

    async def _pull(self) -> None:
        try:
            while self._ending is None:
                await self._wanted.wait()
                self._wanted.clear()
                self._arrived(*await self._next())
        finally:
            close: Any = getattr(self._iterator, "aclose", None)
            if close is not None:
                await close()

    async def _next(self) -> tuple[Any, tuple[BaseException | None] | None]:
        """The next item, or the ending."""
        try:
            return await anext(self._iterator), None
        except StopAsyncIteration:
            return NOT_YET, (None,)
        except asyncio.CancelledError as error:
            if is_cancelled_by_owner():
                raise
            return NOT_YET, (cancelled_inside(f"an async iterable of {self._info}", error),)
        except Exception as error:
            if self._ending is not None:
                # Nobody calls `next` any more: the error is the task's, and ends the run.
                raise
            return NOT_YET, (error,)

    def _arrived(self, item: Any, ending: tuple[BaseException | None] | None) -> None:
        if self._ending is None:
            self._item, self._ending = item, ending
            self._is_asked = self.is_new = False
            self._came(self)
