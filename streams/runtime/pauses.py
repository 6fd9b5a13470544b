"""Pauses of the sources of a running, for as long as anything holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

__all__ = ["Pauses", "Source"]


class Source(Protocol):
    """A running source, as its run controls it."""

    is_pushed: bool

    def statistics(self) -> dict[str, Any]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class Pauses:
    """All sources of a running, those of nested streams included, which pause together."""

    def __init__(self) -> None:
        self._sources: dict[Source, None] = {}
        self._held_by: set[object] = set()

    def add(self, source: Source) -> None:
        """Let a source that begins be paused, now if the others are."""
        self._sources[source] = None
        if self._held_by:
            source.pause()

    def remove(self, sources: Iterable[Source]) -> None:
        """These are over."""
        for source in sources:
            del self._sources[source]

    def hold(self, why: object) -> None:
        """Pause all sources, and those that are still to begin, until `why` is released, and
        whatever else holds them."""
        self._held_by.add(why)
        for source in self._sources:
            source.pause()

    def release(self, why: object) -> None:
        """Let all sources go on, unless something else holds them."""
        if why in self._held_by:
            self._held_by.remove(why)
            for source in list(self._sources):
                # One that goes on may have the next held again.
                if not self._held_by:
                    source.resume()
