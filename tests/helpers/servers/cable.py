"""A cable between a process and its servers, which can be pulled and put back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

from tests.helpers.servers.wire import Wire

__all__ = ["Cable"]


class Cable:
    """Wires to servers at these URLs, in a thread of their own: `urls` are their other ends.

    What is sent while it is pulled arrives when it is put back.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._wires = [Wire(url) for url in urls]
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Cable:
        self._thread.start()
        for wire in self._wires:
            self._wait(wire.lay())
        return self

    def __exit__(self, *_: object) -> None:
        for wire in self._wires:
            self._wait(wire.remove())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def urls(self) -> list[str]:
        return [wire.url for wire in self._wires]

    @contextmanager
    def pulled(self) -> Generator[None]:
        """While it is pulled."""
        for wire in self._wires:
            self._loop.call_soon_threadsafe(wire.cut)
        try:
            yield
        finally:
            for wire in self._wires:
                self._loop.call_soon_threadsafe(wire.mend)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
