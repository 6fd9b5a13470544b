"""Values that other threads push into sources, passed to the loop in the order of arrival.

The sources share it, so that what one thread pushes into several of them keeps its order. One
callback of the loop brings all that has arrived.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["Arrivals", "Arriving"]


class Calling(Protocol):
    """A run, which calls functions for its stages."""

    def call(self, info: StageInfo, callback: Callable[..., object], /, *args: Any) -> None: ...
    def call_soon_threadsafe(
        self, info: StageInfo, callback: Callable[..., object], /
    ) -> object: ...


class Arriving(Protocol):
    """A source that keeps values from threads until the loop takes them."""

    info: StageInfo

    @property
    def run(self) -> Calling: ...

    def came(self, count: int, /) -> None:
        """Take `count` more values; on the loop."""
        ...


class Arrivals:
    """Values from threads that wait: an entry for each change from one source to another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Arriving, list[int]]] = []

    def add(self, source: Arriving, count: int) -> None:
        """Have the loop call `source.came(count)`; on any thread."""
        with self._lock:
            is_first = not self._waiting
            if is_first or self._waiting[-1][0] is not source:
                self._waiting.append((source, [count]))
            else:
                self._waiting[-1][1][0] += count
        if is_first:
            # What comes after the loop was closed is not read.
            with suppress(RuntimeError):
                source.run.call_soon_threadsafe(source.info, self._bring)

    def _bring(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for source, (count,) in waiting:
            source.run.call(source.info, source.came, count)
