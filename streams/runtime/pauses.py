"""Pauses of the sources of a running pipeline; each lasts until every reason for it is gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

__all__ = ["Pauses", "Source"]


class Source(Protocol):
    """A running source, as seen by its run."""

    is_pushed: bool

    @property
    def is_connected(self) -> bool: ...

    def statistics(self) -> dict[str, Any]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class Pauses:
    """All sources of a running pipeline, nested streams included, which pause together."""

    def __init__(self) -> None:
        self._sources: dict[Source, None] = {}
        self._held_by: set[object] = set()

    @property
    def sources(self) -> list[Source]:
        """Those that have not ended."""
        return list(self._sources)

    def add(self, source: Source) -> None:
        """Add a source that begins. It is paused at once if the others are."""
        self._sources[source] = None
        if self._held_by:
            source.pause()

    def remove(self, sources: Iterable[Source]) -> None:
        """Remove sources that have ended."""
        for source in sources:
            del self._sources[source]

    def hold(self, why: object) -> None:
        """Pause all sources, and those that begin later, until `why` and every other reason is
        released."""
        self._held_by.add(why)
        for source in self._sources:
            source.pause()

    def release(self, why: object) -> None:
        """Resume all sources, unless there is another reason for the pause."""
        if why in self._held_by:
            self._held_by.remove(why)
            for source in list(self._sources):
                # A source that resumes may cause the next pause.
                if not self._held_by:
                    source.resume()
