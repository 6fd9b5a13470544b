"""An event loop in a thread, for the client of a backend whose methods block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """A thread with an event loop, in which other threads have coroutines run."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        # Nothing is begun in a loop that is being stopped, where it would never end.
        self._beginning = threading.Lock()
        self._is_stopped = False
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """The result that a coroutine will have; to cancel it cancels the coroutine. Raises
        CancelledError once it is stopped."""
        with self._beginning:
            if self._is_stopped:
                work.close()
                raise CancelledError
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, when it has ended. An exception in the thread that waits, such
        as KeyboardInterrupt, cancels it. Raises CancelledError once it is stopped."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel what runs, and end the thread."""
        with self._beginning:
            self._is_stopped = True
            cancelling = asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)
        cancelling.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
