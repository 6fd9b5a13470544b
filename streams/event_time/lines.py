"""The watermark of a stage: of all time lines that its events are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf

from penstock.streams.event_time.above import Timed
from penstock.streams.event_time.line import TimeLine
from penstock.streams.event_time.result_time import ResultTime
from penstock.streams.event_time.source_time import SourceTime, first_term
from penstock.streams.event_time.stored import keep_time
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer
from penstock.streams.state.commits import Commits

__all__ = ["TimeLines"]

# Loop iterations in which what is ready is delivered, before silence moves anything: one in which
# the loop finds that something can be read, and one for the task that waits for it.
_ITERATIONS = 2

# Seconds, more than the rounding of a clock.
_MOMENT = 1e-6


class TimeLines:
    """The time lines of a stage. Of several the one that is furthest behind counts; one that is
    silent is left out while others are not.

    `changed` is called soon after the watermark may have moved for another reason than that events
    have arrived. With `commits` the lines are kept there. A partition that is ahead of others of
    its source waits for them; with `merges` a source does too: then each of them must be read
    whether or not events of the others come.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        timed: Iterable[Timed],
        commits: Commits | None,
        changed: Callable[[], object],
        *,
        merges: bool = False,
    ) -> None:
        self._run = run
        self._info = info
        self._commits = commits
        self._changed = changed
        self._merges = merges
        self._sources: list[SourceTime] = []
        self._watermark = -inf
        self.results: ResultTime | None = None
        """The time of the results of the stage, if it gives them times."""
        self.is_back = False
        """Whether it may be less than it was when it was asked for last."""
        # The lines that wait for others, each with those for which it does.
        self._held: dict[TimeLine, SourceTime] = {}
        self._alarm = Timer(run, info, self._ring)
        # When it rings, by the clock of the loop.
        self._rings_at = inf
        self._timed = list(timed)
        # The greatest watermark before the end of a source that is forgotten.
        self._last = -inf
        for one in self._timed:
            one.read(run, self._add)

    def _add(self, source: SourceTime) -> None:
        self._sources.append(source)
        source.readers.append(self)
        source.on_change(self._changed)
        source.on_gone(partial(self._forget, source))
        if self._commits is not None:
            keep_time(source, self._commits)

    def _forget(self, source: SourceTime) -> None:
        """The source has ended, and was made while the pipeline runs."""
        if source not in self._sources:
            # The stage has ended before it.
            return
        self._last = max(self._last, source.last)
        self._sources.remove(source)
        for line in source.lines:
            self._held.pop(line, None)

    def _lines(self) -> Iterator[TimeLine]:
        for source in self._sources:
            yield from source.lines

    def arrived(self) -> None:
        """Note that events have arrived, or that the watermark has."""
        for source in self._sources:
            source.moved()

    def watermark(self) -> float:
        """The time up to which all events have arrived, or are late. It goes back only when a
        partition comes that is behind, with its states."""
        self.is_back = False
        watermark = self._reached()
        if watermark > self._watermark:
            self._watermark = watermark
            if self._commits is not None:
                # With what is done by it: silence may have moved it.
                self.arrived()
        for source in list(self._sources):
            source.leave()
        if self._held:
            for line, source in list(self._held.items()):
                if not self._is_ahead(line, source):
                    del self._held[line]
                    line.let_go(self)
        return self._watermark

    def _reached(self) -> float:
        on_their_way = min((line.on_its_way() for line in self._lines()), default=inf)
        return min(first_term(self._lines()), on_their_way)

    def went_back(self) -> None:
        """A partition has come with its states, and may be behind those that were here."""
        self._watermark, self.is_back = -inf, True
        if self.results is not None:
            self.results.went_back()

    def last(self) -> float:
        """The watermark before the end of the input, from which on it is infinity."""
        return min((source.last for source in self._sources), default=self._last)

    # Lines that are ahead of others.

    def leads(self, line: TimeLine, source: SourceTime) -> None:
        """The line has come further: hold it if it is ahead of others."""
        if self._is_ahead(line, source):
            self._held[line] = source
            line.hold(self)

    def _is_ahead(self, line: TimeLine, source: SourceTime) -> bool:
        """Whether another that is not silent has not come as far as this one when it was last
        asked."""
        others = self._lines() if self._merges else source.lines
        return any(
            other.first < line.reached
            for other in others
            if other.is_here and not other.has_ended and not other.is_silent
        )

    # Silence.

    @property
    def is_silent(self) -> bool:
        """Whether all that is read is silent, and nothing is on its way."""
        return all(
            line.on_its_way() == inf and (line.is_silent or line.has_ended)
            for line in self._lines()
            if line.is_here
        )

    def ring_at(self, due: float | None) -> None:
        """Have the stage told when silence may have brought the watermark to this time, or when
        lines that wait for others need not."""
        if due is None and not self._held:
            return
        lines: list[TimeLine] = []
        # When lines that wait need not any more, or the stage is told.
        awaited = min(inf if due is None else due, *(line.reached for line in self._held), inf)
        for source in self._sources:
            source.ring_at(awaited)
            if source.demand.is_unmet:
                lines += [one for one in source.lines if one.is_here and not one.has_ended]
            else:
                source.demand.when_unmet(self._changed)
        # The clock counts when all are silent.
        active = [line for line in lines if not line.is_silent]
        wait = min((line.silence_until(due or 0.0) for line in active or lines), default=inf)
        if wait == inf:
            # Since the stage has looked at the watermark, silence may have brought it there.
            if due is not None and self._watermark < due <= self._reached():
                self._soon(1)
            return
        wait += _MOMENT
        rings_at = self._run.now() + wait
        if rings_at < self._rings_at:
            self._rings_at = rings_at
            self._alarm.set(wait)

    def _ring(self) -> None:
        late = self._run.now() - self._rings_at
        self._rings_at = inf
        for source in self._sources:
            source.demand.blocked(late)
        self._soon(_ITERATIONS)

    def _soon(self, iterations: int) -> None:
        if iterations:
            self._run.call_soon(self._info, self._soon, iterations - 1)
        else:
            self._changed()

    def close(self) -> None:
        """Tell the stage nothing more."""
        self._alarm.cancel()
        for one in self._timed:
            one.unread(self._run, self._add)
        for source in self._sources:
            source.readers.remove(self)
            source.not_on_change(self._changed)
        self._sources.clear()
