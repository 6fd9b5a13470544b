"""How the runs of one execution stand in each other.

A stage that reads a stream besides the one above it does so in an inner run, which is closed when
that stream and all its events have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, Protocol, TypeVar

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.observing import Statistics
from penstock.streams.runtime.sources import Counts, Source

__all__ = ["Nesting"]


class _Run(Protocol):
    """A run, as the one that it is in closes it."""

    @property
    def has_loop(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def spawn(self) -> Callable[[Coroutine[Any, Any, None], str], object]: ...
    async def close(self) -> None: ...
    def released(self) -> None: ...


R = TypeVar("R", bound=_Run)


class Nesting(Generic[R]):
    """Where `run` stands: in `outer`, and around the runs in `inner`.

    The sources of a *part* count where it is, and a drain stops them; its stages may be listed
    there. Any other inner run is read for one event: its events are counted beside, as `inside`,
    unless they are plain values, and a drain does not stop it.
    """

    def __init__(self, run: R, outer: Nesting[R] | None) -> None:
        self.run = run
        self.outer = outer
        self.inner: dict[Nesting[R], None] = {}
        self.own_sources: list[Source] = []
        self.own_stages: list[tuple[StageInfo, Statistics]] = []
        # Parts whose stages are listed here, also when they have ended.
        self._listed: list[Nesting[R]] = []
        self._is_part = False
        self._is_inside = outer is not None
        # Whether its stream has ended, and perhaps not all of its events.
        self._is_over = False
        # The numbers of the sources in parts that have ended, and in other inner runs.
        self.past, self.inside = Counts(), Counts()
        # Where its failures count too; those here that ended a stream after which nothing went on
        # yet; and at the root, those after which it did.
        self._counted_in = outer
        self._ended_by = self.recovered = 0
        self.left = 0
        """The events that are left to another execution: those that failed after their source had
        ended, and are to be tried again, and those that stages have returned since a drain began.
        """
        if outer is not None:
            outer.inner[self] = None

    def become_part(
        self, *, listed: bool, instead_of: Nesting[R] | None, counted_in: Nesting[R]
    ) -> None:
        """Be a part of `outer`. Its stages are `listed` there, in place of those of `instead_of`;
        failures of its events count in `counted_in` too."""
        assert self.outer is not None
        self._is_part, self._is_inside = True, self.outer._is_inside
        self._counted_in = counted_in
        if instead_of in self.outer._listed:
            self.outer._listed.remove(instead_of)
        if listed:
            self.outer._listed.append(self)

    @property
    def root(self) -> Nesting[R]:
        """The outermost of those that it is in."""
        return self if self.outer is None else self.outer.root

    @property
    def _parts(self) -> Iterator[Nesting[R]]:
        return (one for one in self.inner if one._is_part)

    def with_inner(self) -> Iterator[Nesting[R]]:
        """This one and all in it."""
        yield self
        for one in self.inner:
            yield from one.with_inner()

    # What is read here.

    @property
    def sources(self) -> list[Source]:
        """The sources here and in parts."""
        return [*self.own_sources, *(source for part in self._parts for source in part.sources)]

    @property
    def stages(self) -> list[tuple[StageInfo, Statistics]]:
        """The stages here and in the parts that are listed."""
        return [*self.own_stages, *(stage for part in self._listed for stage in part.stages)]

    def counts(self, source: Source) -> bool:
        """Whether the events of a source that is read here are counted by themselves."""
        return not (source.is_of_values and self._is_inside)

    def count(self, counts: Counts, inside: Counts) -> None:
        """Add the numbers of the sources here and in parts to `counts`, and those of the sources in
        other inner runs to `inside`."""
        counts.join(self.past)
        inside.join(self.inside)
        for source in self.own_sources:
            if self.counts(source):
                counts.add(source.statistics())
        for one in self.inner:
            one.count(counts if one._is_part else inside, inside)

    def in_flight_inside(self) -> int:
        """How many events are in flight in inner runs that are no parts."""
        runs = (one for one in self.with_inner() if one is not self and not one._is_part)
        return sum(numbers().get("in_flight", 0) for one in runs for _, numbers in one.stages)

    @property
    def is_unfinished(self) -> bool:
        """Whether events of the sources here and in inner runs have not ended."""
        for source in self.own_sources:
            if source.unfinished:
                return True
        return bool(self.inner) and any(one.is_unfinished for one in self.inner)

    # How events end.

    def failed_for_good(self, count: int) -> None:
        """Count events whose error ends what is read here, unless a stage goes on after it."""
        one: Nesting[R] | None = self
        while one is not None:
            one._ended_by += count
            one = one._counted_in

    def went_on(self) -> None:
        """A stage has gone on after the error that ended what was read here."""
        count, one = self._ended_by, self
        self._ended_by = 0
        while one._counted_in is not None:
            one = one._counted_in
            one._ended_by -= count
        one.recovered += count
        self.leave_to_others(-self.left)

    def leave_to_others(self, count: int) -> None:
        """Count events that are left to another execution."""
        one: Nesting[R] | None = self
        while one is not None:
            one.left += count
            one = one.outer if one._is_part else None

    # The end of an inner run.

    def leave(self) -> None:
        """The stream that was read here has ended: close it when all of its events have."""
        self._is_over = True
        self.settled()

    def settled(self) -> None:
        """Events of a source that has ended have ended."""
        one: Nesting[R] | None = self
        while one is not None:
            outer = one.outer
            if one._is_over and not one.is_unfinished:
                one._end()
            one = outer

    def _end(self) -> None:
        self._is_over = False
        # Without a loop nothing in it has to be awaited.
        if self.outer is not None and self.run.is_open and self.run.has_loop:
            self.outer.run.spawn(self.close(), "close of a nested stream")
        else:
            self._forget()

    async def close(self) -> None:
        """Close the run, unless it has been closed or goes on alone."""
        if self.outer is not None and self in self.outer.inner:
            try:
                await self.run.close()
            finally:
                # Otherwise its events are still counted.
                if not self.is_unfinished:
                    self._forget()

    def _forget(self) -> None:
        outer = self.outer
        if outer is not None and self in outer.inner:
            self.run.released()
            del outer.inner[self]
            self.count(outer.past if self._is_part else outer.inside, outer.inside)

    def discount(self) -> None:
        """Take this part out of the statistics, pauses and drains: its events are counted above
        it."""
        outer = self.outer
        assert outer is not None
        if self in outer._listed:
            outer._listed.remove(self)
        if self in outer.inner:
            self.run.released()
            del outer.inner[self]
        for source in self.sources:
            # A pause that began before holds what they read from now on, and not them.
            source.resume()

    def go_on_alone(self) -> None:
        """Be a root. Where this was, its events that have not ended count as returned, and its
        stages keep the numbers that they have now."""
        root = self.root
        del root.inner[self]
        counts, inside = Counts(), Counts()
        self.count(counts, inside)
        for past, now in ((root.past, counts), (root.inside, inside)):
            now.return_unfinished()
            past.join(now)
        if self in root._listed:
            root._listed.remove(self)
            for info, statistics in self.stages:
                ended: dict[str, Any] = {**statistics(), "waiting": 0, "in_flight": 0}
                root.own_stages.append((info, ended.copy))
        self.outer = self._counted_in = None
        self._is_part = False
