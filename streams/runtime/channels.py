"""The channels of a run to its dead-letter sinks, each opened once for all stages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

__all__ = ["Channels"]

S = TypeVar("S")
C = TypeVar("C", bound="Channel")

_Flush = Callable[[], Coroutine[Any, Any, None]]


class Channel(Protocol):
    """A channel to one sink."""

    async def flush(self) -> None:
        """Complete what is sent, and wait until the sink has closed."""

    def hurry(self) -> None:
        """Limit the wait for a slow sink to a few seconds."""


class Flushing(Protocol):
    """A run, which flushes its channels at its end."""

    def on_flush(self, flush: _Flush, /) -> None: ...
    def not_on_flush(self, flush: _Flush, /) -> None: ...


class Channels:
    """The channels of `run`.

    A part of a running that may go on after the `whole` has its own channels. They are flushed and
    hurried with the whole's too, until they `leave` it.
    """

    def __init__(self, run: Flushing, whole: Channels | None = None) -> None:
        self._run = run
        self._whole = whole
        self._parts: list[Channels] = []
        self._open: dict[int, tuple[object, Channel]] = {}

    def open(self, sink: S, make: Callable[[S, Any], C]) -> C:
        """The channel to `sink`, which `make(sink, run)` makes the first time.

        It is flushed when the run is closed.
        """
        if id(sink) not in self._open:
            channel = make(sink, self._run)
            self._run.on_flush(channel.flush)
            if self._whole is not None:
                self._whole._run.on_flush(channel.flush)
                if not self._open:
                    self._whole._parts.append(self)
            self._open[id(sink)] = sink, channel
        return cast("C", self._open[id(sink)][1])

    def leave(self) -> None:
        """The part has ended, or goes on after the whole."""
        whole, self._whole = self._whole, None
        if whole is not None and self._open:
            whole._parts.remove(self)
            for _, channel in self._open.values():
                whole._run.not_on_flush(channel.flush)

    def hurry(self) -> None:
        """Limit the wait for slow sinks to a few seconds."""
        for _, channel in self._open.values():
            channel.hurry()
        for part in self._parts:
            part.hurry()
