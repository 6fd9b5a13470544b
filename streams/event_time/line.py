"""The time line of a source, or of one of its partitions: how far the time of its events has come.

    emitted        10  12  11 | 15          (the time of each event; | is now)
    lateness 2         first term: 15 - 2 = 13
    in flight      11 in a slow handler     second term: 11
    watermark of a stage below the handler  11

The first term says which events are late; it depends on nothing but the events and the silence
between them. The second term is the low watermark of MillWheel (T. Akidau et al., VLDB 2013): the
least time of an event that is on its way, so that no slow handler makes an event late.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol

from penstock.streams.event_time.kept import KeptList, KeptPartition, SequenceOf, Waits
from penstock.streams.event_time.unmet import UnmetDemand
from penstock.streams.protocol.acknowledgement import AckHook
from penstock.streams.protocol.event import RETURNED, BaseEvent, Ending, Event, Origin

__all__ = ["InFlight", "LateTime", "MarkedTime", "TimeLine", "arrived"]

# Events after which it is looked whether a line is ahead of others, and then waits for them.
_LEAD = 500


class Source(Protocol):
    """What the lines of a source share."""

    lateness: float
    idle: float
    wall: Callable[[], float]
    demand: UnmetDemand
    marks_all: bool
    moves: bool

    @property
    def whole(self) -> TimeLine | None:
        """The line of all events, if the source has no partitions."""
        ...

    @property
    def is_silent(self) -> bool:
        """Whether all its lines are silent."""
        ...

    @property
    def is_kept(self) -> bool:
        """Whether a store has its watermark."""
        ...

    def changed(self) -> None:
        """The watermark may have moved."""
        ...

    def leads(self, line: TimeLine, /) -> None:
        """The line has come further: hold it if it is ahead of others."""
        ...

    def hold(self, line: TimeLine, /) -> None:
        """Let no more come of a line."""
        ...

    def let_go(self, line: TimeLine, /) -> None:
        """Let more come of a line again."""
        ...


class MarkedTime(float):
    """The time of an event, with the first term of the watermark when it has been emitted."""

    __slots__ = ("watermark",)

    watermark: float


class LateTime(MarkedTime):
    """The time of a late event, which is before that watermark."""

    __slots__ = ()


class InFlight(AckHook):
    """The events of one list that are on their way: `left` of them.

    One record for a list, in front of the `origin` that all its events have.
    """

    __slots__ = ("_line", "kept", "left", "origin")

    def __init__(self, line: TimeLine, origin: Origin, left: int) -> None:
        self._line = line
        self.origin = origin
        self.left = left
        # If the watermark is stored.
        self.kept: KeptList | None = None

    def behind(self, outer: Any, /) -> tuple[Origin, Any]:
        return self.origin, outer

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        event: BaseEvent
        origin = self.origin
        for event in events:
            event.origin = origin
        if ending >= RETURNED and self._line.returned(self, events):
            origin.settle(events, ending, why)
            return
        self.left -= len(events)
        if ending >= RETURNED and self.kept is not None:
            self.kept.returned += [event.token for event in events]
        self._line.changed(self)
        origin.settle(events, ending, why)


def arrived(event: Event[Any]) -> InFlight | None:
    """The list of an event, which is on its way no more; None if it was made of others, and is on
    its way with them until they end."""
    list_ = event.origin
    if not isinstance(list_, InFlight):
        return None
    list_.left -= 1
    event.origin = list_.origin
    return list_


class TimeLine:
    """The time of one partition of a source, of which `name` tells it from the others.

    Its first term is the greatest time so far less the lateness. It is *silent* after `idle`
    seconds of unmet demand in which nothing came of it, although the source asked for more and was
    told that there is nothing. Memory: an entry for each list that is on its way. Time: O(log n)
    for each list.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        partition: Hashable = None,
        sequence_of: SequenceOf | None = None,
    ) -> None:
        self.name = name
        self.partition = partition
        self.first = -inf
        """The time before which an event that is emitted now is late, apart from the clock."""
        self.is_here = True
        """Whether the source reads the partition, so that the watermark may wait for it."""
        self.is_empty = True
        """Whether there is nothing more to be read, as far as the source knows."""
        self.reached = -inf
        """How far the others must have come before this line may go further ahead."""
        self.late = 0
        """How many of its events were late."""
        self._source = source
        # The greatest time so far, the unmet demand at the last event, and what is stored of it.
        self._greatest = -inf
        self._seen = source.demand.seconds
        self._kept_lists = KeptPartition(sequence_of)
        # Events that were returned and are emitted again, by their places: the lists that they are
        # of, and their times.
        self._sequence_of = sequence_of
        self._returned: dict[Any, tuple[InFlight, Any]] = {}
        # By their least times; the numbers tell those of one time apart.
        self._on_their_way: list[tuple[float, int, InFlight]] = []
        self._lists = 0
        # How many events have come since `reached`, and the stages for which it waits.
        self._lead = 0
        self._holders: set[object] = set()

    # Events.

    def emit(self, origin: Origin, events: list[Event[Any]], times: list[float]) -> None:
        """Stamp events that have one origin, in the order in which they are emitted."""
        source = self._source
        self.end_silence()
        self._seen = source.demand.seconds
        if self._returned:
            events, times = self._emit_again(events, times)
            if not events:
                return
        first, greatest, lateness = self.first, self._greatest, source.lateness
        kept_lists = self._kept_lists
        list_ = InFlight(self, origin, len(events))
        kept = None
        if source.is_kept:
            kept = list_.kept = kept_lists.new_list(origin, greatest, first, list_, events)
        marks_all = source.marks_all and source.whole is self
        # What is due by the watermark before it comes before it, and nothing else does.
        least = first if marks_all else inf
        event: BaseEvent
        for event, time in zip(events, times, strict=True):
            if kept is not None and kept_lists.ahead:
                greatest = kept_lists.greatest_before(event, greatest, kept)
                first = max(first, greatest - lateness)
            event.origin = list_
            if time >= first:
                event.time = time
                if marks_all:
                    marked = event.time = MarkedTime(time)
                    marked.watermark = max(first, time - lateness)
                if time < least:
                    least = time
            else:
                late = LateTime(time)
                late.watermark = first
                event.time = late
                self.late += 1
                # It still counts in windows that end after that.
                if first < least:
                    least = first
            if time > greatest:
                greatest = time
                if kept is not None:
                    kept.raised.append((event.token, time))
                if greatest - lateness > first:
                    first = greatest - lateness
        self._greatest, self.first = greatest, first
        self._lists += 1
        heappush(self._on_their_way, (least, self._lists, list_))
        self._lead += len(events)
        if self._lead >= _LEAD:
            source.leads(self)

    def returned(self, list_: InFlight, events: list[Event[Any]]) -> bool:
        """Whether events that were returned are emitted again, as those of partitions that move
        are: then they are still on their way, and are no later than they were."""
        sequence_of = self._sequence_of
        if sequence_of is None or not (self._source.moves and self.is_here):
            return False
        for event in events:
            self._returned[sequence_of(event.token)] = list_, event.time
        return True

    def _emit_again(
        self, events: list[Event[Any]], times: list[float]
    ) -> tuple[list[Event[Any]], list[float]]:
        """Give those that were returned their lists and times of before; the others are left."""
        sequence_of = self._sequence_of
        assert sequence_of is not None
        others: list[Event[Any]] = []
        times_of_others: list[float] = []
        event: BaseEvent
        for event, time in zip(events, times, strict=True):
            before = self._returned.pop(sequence_of(event.token), None)
            if before is None:
                others.append(event)
                times_of_others.append(time)
            else:
                event.origin, event.time = before
        return others, times_of_others

    def all_have_come(self) -> None:
        """Also what was done in an earlier run, ahead of events that came again, came before the
        end."""
        for _, _, time in self._kept_lists.ahead:
            self._greatest = max(self._greatest, time)
        self.first = max(self.first, self._greatest - self._source.lateness)

    def end(self) -> None:
        """No more events come, for good."""
        self.first = inf

    @property
    def has_ended(self) -> bool:
        """Whether no more events come, for good."""
        return self.first == inf

    def changed(self, list_: InFlight) -> None:
        """The watermark may have moved, if a list is on its way no more."""
        if not list_.left:
            self._source.changed()

    # The watermark.

    @property
    def by_clock(self) -> float:
        """The first term if silence counts: time goes on with the clock from the last event."""
        return max(self.first, self._greatest + self._silence - self._source.lateness)

    def on_its_way(self) -> float:
        """The least time of an event that has been emitted and has not arrived; infinity if there
        is none."""
        lists = self._on_their_way
        while lists and not lists[0][2].left:
            heappop(lists)
        return lists[0][0] if lists else inf

    # Silence.

    @property
    def _silence(self) -> float:
        """For how many seconds events were requested and none came, since the last one."""
        if not self.is_empty or self._holders:
            return 0.0
        return self._source.demand.seconds - self._seen

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for long enough, also since the last pause."""
        return self._quiet >= self._source.idle

    @property
    def _quiet(self) -> float:
        return min(self._silence, self._source.demand.since_pause)

    def end_silence(self) -> None:
        """The line is silent no more: how far the clock has brought it stays."""
        if self.is_silent and self._source.is_silent:
            self.first = self.by_clock

    def begin_silence(self) -> None:
        """Silence begins only now."""
        self._seen = self._source.demand.seconds

    def silence_until(self, time: float) -> float:
        """For how many seconds nothing must come until it is silent or, if it is, until its clock
        has reached this time; infinity if silence does not bring that about."""
        if not self.is_empty or self._holders or self.has_ended:
            return inf
        left = self._source.idle - self._quiet
        if left > 0:
            return left
        # NaN before the first event, which has no time.
        missing = time - self.by_clock
        return missing if missing > 0 else inf

    # Lines that are ahead of others.

    def hold(self, holder: object) -> None:
        """Emit no more soon, until this holder lets go."""
        if not self._holders:
            self._source.hold(self)
        self._holders.add(holder)

    def let_go(self, holder: object) -> None:
        """The others have come far enough for this holder."""
        if holder in self._holders:
            self._holders.remove(holder)
            if not self._holders:
                self.lead_anew()
                self.begin_silence()
                self._source.let_go(self)

    @property
    def is_held(self) -> bool:
        """Whether it waits for others."""
        return bool(self._holders)

    def lead_anew(self) -> None:
        """It may go so many events further ahead of where it is."""
        self._lead, self.reached = 0, self.first

    def leave(self) -> None:
        """The source reads the partition no more."""
        self.is_here = False
        for list_, _ in self._returned.values():
            list_.left -= 1
        self._returned.clear()
        for holder in list(self._holders):
            self.let_go(holder)

    # The stored watermark.

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from what was stored."""
        # JSON has no infinity, and earlier versions had no first term.
        greatest, first = stored["greatest"], stored.get("first")
        self._greatest = -inf if greatest is None else greatest
        by_events = self._greatest - self._source.lateness
        self.first = by_events if first is None else max(by_events, first)
        self._kept_lists.restore(stored)

    def mark(self, by_clock: float, waits: Waits) -> dict[str, Any] | None:
        """What is stored of the events that are done, also by the commit that begins now: not those
        that are on their way, or that `waits` says of, by their roots; None before the first. The
        clock has brought the first term to `by_clock`."""
        greatest = self._greatest
        if greatest == -inf:
            return None
        return self._kept_lists.mark(greatest, max(self.first, by_clock), waits)

    def written(self) -> None:
        """The commit with the last mark has been made."""
        self._kept_lists.written()

    def statistics(self) -> dict[str, Any]:
        """The `watermark` of events of the `partition` that are emitted now, None before the first
        and after the last; its `lag` behind the clock in seconds, whether it is `idle`, and how
        many of its events were `late`."""
        source = self._source
        first = self.by_clock if self.is_silent and source.is_silent else self.first
        is_known = abs(first) < inf
        return {
            "partition": self.name,
            "watermark": first if is_known else None,
            "lag": source.wall() - first if is_known else None,
            "idle": is_known and self.is_silent,
            "late": self.late,
        }
