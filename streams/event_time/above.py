"""The times that the events of a stream have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.stage_info import StageInfo

if TYPE_CHECKING:
    from penstock.streams.event_time.source_time import SourceTime
    from penstock.streams.runtime.context import Run

__all__ = ["Timed", "are_merged", "timed_above", "times_for", "with_times"]


class _Sources:
    """The times of the sources of a run, and who is told of each."""

    def __init__(self) -> None:
        self.sources: list[SourceTime] = []
        self.readers: list[Callable[[SourceTime], object]] = []


class Timed:
    """What one `event_time` has of its sources, by run; several if it is applied to several
    streams.

    `of_results`: the times are those that a stage gives its results, and others may be read from
    fields of these.
    """

    def __init__(self, *, of_results: bool = False) -> None:
        self.of_results = of_results
        self._of_runs: WeakKeyDictionary[Run, _Sources] = WeakKeyDictionary()

    def _of(self, run: Run) -> _Sources:
        return self._of_runs.setdefault(run.root, _Sources())

    def add(self, run: Run, source: SourceTime) -> None:
        """Add the time of a source of this run, which has emitted nothing yet."""
        of_run = self._of(run)
        of_run.sources.append(source)
        for call in of_run.readers:
            call(source)

    def remove(self, run: Run, source: SourceTime) -> None:
        """Forget the time of a source that has ended."""
        self._of(run).sources.remove(source)

    def is_read(self, run: Run) -> bool:
        """Whether a stage of this run reads the times."""
        return bool(self.readers(run))

    def readers(self, run: Run) -> Sequence[Callable[[SourceTime], object]]:
        """Whom `read` has told of the times in this run: the list itself, which changes."""
        return self._of(run).readers

    def read(self, run: Run, call: Callable[[SourceTime], object]) -> None:
        """Have this called with the time of each source of this run, as soon as it is made."""
        of_run = self._of(run)
        of_run.readers.append(call)
        for source in of_run.sources:
            call(source)

    def unread(self, run: Run, call: Callable[[SourceTime], object]) -> None:
        """Take back a `read`."""
        readers = self._of(run).readers
        if call in readers:
            readers.remove(call)


def timed_above(stages: Sequence[StageInfo]) -> list[Timed]:
    """What gives their times to the events of a stream with these stages, source first; nothing if
    the results of a stage have none, or if events of one of its sources have no time."""
    found = list(_nearest(stages))
    return [] if None in found else list(dict.fromkeys(one for one in found if one is not None))


def _nearest(stages: Sequence[StageInfo]) -> Iterator[Timed | None]:
    for stage in reversed(stages):
        if stage.timed is not None:
            yield stage.timed
            return
        if stage.untimed:
            yield None
            return
        for column in stage.inputs:
            yield from _nearest(column)
    yield None


def with_times(
    operator: str, source: Any, own: Callable[[Any], Any] | None, options: str
) -> tuple[Any, list[Timed]]:
    """A stream for an operator, and what gives their times to its events: an `event_time` above it,
    or `own`, which is put in front if the operator has such `options`.

    Raises BuildError if there are both.
    """
    timed = timed_above([stream.info for stream in source.chain()])
    if own is None:
        return source, timed
    if any(not one.of_results for one in timed):
        raise BuildError(
            f"{operator}(...) reads the times that the event_time in front gives: leave out its "
            f"own {options}"
        )
    source = own(source)
    return source, timed_above([source.info])


def times_for(source: Any, which: str = "") -> str:
    """What to do for events of a stream that need times and have none: `which` are its sources."""
    for stream in reversed(source.chain()):
        if stream.info.untimed:
            return f"put event_time(field) behind {stream.info}, whose results have no times"
    return f"put event_time(field) directly behind each source{which}"


def are_merged(stages: Sequence[StageInfo]) -> bool:
    """Whether each source of a stream with these stages is read whether or not events of the others
    come."""
    return all(
        stage.shared is None
        and (stage.merges or not stage.inputs)
        and all(map(are_merged, stage.inputs))
        for stage in stages
    )
