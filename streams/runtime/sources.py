"""The sources of a running pipeline: their counts, and their pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["TOTALS", "Counts", "Pauses", "Source"]

TOTALS = ("in", "finished", "failed", "returned")
"""The counts that every source has."""


class Source(Protocol):
    """A running source, as seen by its run."""

    is_pushed: bool
    is_of_values: bool

    @property
    def info(self) -> StageInfo: ...

    @property
    def is_connected(self) -> bool: ...

    @property
    def gives_again(self) -> bool: ...

    @property
    def has_ended(self) -> bool: ...

    @property
    def unfinished(self) -> int: ...

    def statistics(self) -> dict[str, Any]: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class Counts:
    """The sum of the statistics of sources."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self.dropped: dict[str, int] = {}

    def add(self, numbers: dict[str, Any]) -> None:
        """Add the statistics of a source."""
        for name in TOTALS:
            self.totals[name] += numbers[name]
        for cause, count in numbers["dropped"].items():
            self.dropped[cause] = self.dropped.get(cause, 0) + count

    def join(self, other: Counts) -> None:
        """Add other sums."""
        if other.totals["in"]:
            self.add({**other.totals, "dropped": other.dropped})

    @property
    def unfinished(self) -> int:
        """How many events have not ended."""
        came, *ended = self.totals.values()
        return came - sum(ended) - sum(self.dropped.values())

    def return_unfinished(self) -> None:
        """Count the events that have not ended as returned."""
        self.totals["returned"] += self.unfinished


class Pauses:
    """All sources of a running pipeline, nested streams included, which pause together.

    A pause lasts until every reason for it is gone.
    """

    def __init__(self) -> None:
        self._sources: dict[Source, None] = {}
        self._held_by: set[object] = set()
        self.watchers: list[Callable[[], object]] = []
        """Called when they pause, go on or are drained."""
        self.drains = False
        """Whether they have been told to stop: no other stream of the pipeline begins."""
        self.input_ended = True
        """When the stream of a stage completes: whether its input has ended for good, because no
        drain has stopped a source before its end. What is due at the end of the input, as the
        result of a window, is due only then; otherwise another run goes on with the input. A
        cancel and an error are signals of their own, and end no input."""

    @property
    def are_held(self) -> bool:
        """Whether they are paused, or drained."""
        return self.drains or bool(self._held_by)

    @property
    def sources(self) -> list[Source]:
        """The sources that have not ended."""
        return list(self._sources)

    def drain(self, sources: Iterable[Source]) -> None:
        """Note that a drain stops these."""
        self.drains = True
        self._tell()
        if not all(source.has_ended for source in sources):
            self.input_ended = False

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
        self._tell()
        for source in self._sources:
            source.pause()

    def release(self, why: object) -> None:
        """Resume all sources, unless there is another reason for the pause."""
        if why in self._held_by:
            self._held_by.remove(why)
            self._tell()
            for source in list(self._sources):
                # A source that resumes may cause the next pause.
                if not self._held_by:
                    source.resume()

    def _tell(self) -> None:
        for call in self.watchers:
            call()
