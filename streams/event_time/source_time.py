"""The time of the events of one source: a time line for each partition that it reads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from orjson import dumps, loads

from penstock.streams.event_time.kept import Waits
from penstock.streams.event_time.line import TimeLine
from penstock.streams.event_time.unmet import UnmetDemand
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.protocol.partitions import Partitioned

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["SourceTime", "first_term"]

# The partition of all events of a source that has no others, and its name.
_WHOLE, _NO_NAME = None, ""


class _Reader(Protocol):
    def leads(self, line: TimeLine, source: SourceTime, /) -> None:
        """The line has come further: hold it if it is ahead of others."""
        ...

    def went_back(self) -> None:
        """A partition has come with its states, and may be behind those that were here."""
        ...


class SourceTime:
    """The time lines of a source, which share the demand, and a mark of this `name` in a store."""

    def __init__(self, run: Run, name: str, lateness: float, idle: float) -> None:
        self.name = name
        self.lateness = lateness
        self.idle = idle
        self.wall = run.wall
        self.demand = UnmetDemand(run.now, run.pauses, self._resumed)
        self.readers: list[_Reader] = []
        self.when_let_go: Callable[[], object] = _nothing
        """Called when the source may be asked again, if it has no partitions."""
        self.last = -inf
        """The first term before the end."""
        self.marks_all = False
        """Whether each time has the watermark with it, and events in flight hold that back as it
        was before them, whatever their times; if there are no partitions."""
        self.may_leave = False
        """Whether it is forgotten when it has ended, as it was made while the pipeline runs."""
        self.moves = False
        """Whether its partitions move, with their watermarks, and are others when they come back.
        """
        self._is_closed = False
        self._when_gone: list[Callable[[], object]] = []
        self._run = run
        self._source: Partitioned | None = None
        self._lines: dict[Hashable, TimeLine] = {_WHOLE: TimeLine(self, _NO_NAME)}
        self._listeners: list[Callable[[], object]] = []
        self._is_changed = False
        # Notes that the stored watermark has changed, by the store that has it, and what is stored
        # of partitions that have no line yet.
        self._kept: dict[object, Callable[[], object]] = {}
        self._stored: dict[str, dict[str, Any]] = {}
        # The lines of partitions whose states are here, and which are not read yet, by their names.
        self._coming: dict[str, TimeLine] = {}

    @property
    def lines(self) -> Iterable[TimeLine]:
        """All lines, also those of partitions that are not read any more, or not yet."""
        return (
            [*self._lines.values(), *self._coming.values()]
            if self._coming
            else self._lines.values()
        )

    @property
    def whole(self) -> TimeLine | None:
        """The line of all events, if the source has no partitions."""
        return self._lines[_WHOLE] if self._source is None else None

    @property
    def is_silent(self) -> bool:
        """Whether all that is read is silent."""
        return all(line.is_silent for line in self.lines if line.is_here and not line.has_ended)

    def place(self, event: Event[Any]) -> tuple[TimeLine, Origin]:
        """The line of an event of a source with partitions, and the origin of the event."""
        source = self._source
        origin, token = event.origin, event.token
        if origin is not source:
            origin, token = next(roots(event))
        if origin is source and source is not None:
            partition = source.partition_of(token)
            line = self._lines.get(partition)
            if line is None:
                # Read before the partition has left.
                line = self._lines[partition] = TimeLine(
                    self, _NO_NAME, partition, source.sequence_of
                )
                line.is_here = False
            return line, event.origin
        # Such as of a stage that adds events of its own.
        whole = self._lines[_WHOLE]
        whole.is_here = True
        return whole, event.origin

    def end(self) -> None:
        """No more events come, for good."""
        for line in self.lines:
            line.all_have_come()
        self.last = first_term(self.lines)
        for line in self.lines:
            line.end()
        self.changed()

    def close(self) -> None:
        """The source is read no more."""
        if self.may_leave:
            self.demand.close()
            self._is_closed = True
            self.leave()

    def leave(self) -> None:
        """Be forgotten, if the source is read no more and no event of it is on its way."""
        if not self._is_closed or self._kept:
            return
        if all(line.on_its_way() == inf for line in self.lines):
            calls, self._when_gone = self._when_gone, []
            for call in calls:
                call()

    def on_gone(self, call: Callable[[], object]) -> None:
        """Have this called when the source is forgotten."""
        self._when_gone.append(call)

    def _resumed(self) -> None:
        """The source goes on after a pause, and is not silent before nothing comes again."""
        for line in self.lines:
            if line.is_here:
                line.end_silence()

    # Partitions.

    def watch(self, source: Partitioned) -> None:
        """Have a line for each partition of the source. As long as it reads none, that of all
        events holds the watermark where others are read too."""
        self._source = source
        source.watch(self)

    def joined(self, partition: Hashable, name: str, /) -> None:
        if not self._reads_any():
            self._lines[_WHOLE].is_here = False
        if self.moves or not self._kept:
            gone = [
                key
                for key, line in self._lines.items()
                if key is not _WHOLE and not line.is_here and line.on_its_way() == inf
            ]
            for key in gone:
                del self._lines[key]
        line = self._lines.get(partition)
        if line is None:
            line = self._coming.pop(name, None) or self._new_line(name)
            line.partition = partition
            self._lines[partition] = line
            if (stored := self._stored.pop(name, None)) is not None:
                line.restore(stored)
            if self.moves:
                self._go_back()
                self.changed()
        line.is_here, line.is_empty = True, False
        line.begin_silence()
        line.lead_anew()

    def _new_line(self, name: str) -> TimeLine:
        sequence_of = None if self._source is None else self._source.sequence_of
        return TimeLine(self, name, None, sequence_of)

    def _go_back(self) -> None:
        """Others may be ahead of a partition that moves: the states of its keys are as of its own
        watermark."""
        for reader in self.readers:
            reader.went_back()

    def left(self, partition: Hashable, /) -> None:
        line = self._lines.get(partition)
        if line is None:
            # The run ends while it was about to join.
            return
        line.leave()
        if not self._reads_any():
            whole = self._lines[_WHOLE]
            whole.is_here = True
            whole.begin_silence()
        self.changed()

    def _reads_any(self) -> bool:
        """Whether the source reads a partition."""
        return any(line.is_here for line in self.lines if line.partition is not _WHOLE)

    def emptied(self, partition: Hashable, /) -> None:
        self._lines[partition].is_empty = True
        self.changed()

    def filled(self, partition: Hashable, /) -> None:
        self._lines[partition].is_empty = False

    # Lines that are ahead.

    def leads(self, line: TimeLine) -> None:
        for reader in self.readers:
            reader.leads(line, self)
        if not line.is_held:
            line.lead_anew()

    def hold(self, line: TimeLine) -> None:
        if line.partition is not _WHOLE and self._source is not None:
            self._source.hold(line.partition, self)

    def let_go(self, line: TimeLine) -> None:
        if line.partition is not _WHOLE and self._source is not None:
            self._source.let_go_of(line.partition, self)
        else:
            self.when_let_go()

    # The stored watermark.

    @property
    def is_kept(self) -> bool:
        """Whether a store has the watermark."""
        return bool(self._kept)

    def is_kept_in(self, store: object) -> bool:
        """Whether this store has the watermark already."""
        return store in self._kept

    def restore(self, store: object, mark: bytes | None, changed: Callable[[], object]) -> None:
        """Go on from the `mark` of a store; `changed` is called when it may be another."""
        self._stored |= loads(mark) if mark else {}
        for line in self.lines:
            if (stored := self._stored.pop(line.name, None)) is not None:
                line.restore(stored)
        self._kept[store] = changed

    def coming(self, mark: bytes) -> None:
        """Go on from the `mark` of a partition whose states are here, and which joins next."""
        for name, stored in loads(mark).items():
            line = self._coming[name] = self._new_line(name)
            line.is_empty = False
            line.restore(stored)
        self._go_back()

    def goes(self, name: str) -> None:
        """The states of a partition have gone, perhaps before it has joined."""
        if self._coming.pop(name, None) is not None:
            self.changed()

    def marks(self, waits: Waits) -> Iterable[tuple[Any, str, bytes]]:
        """The partitions that are read, or whose last events are not done, with their names, and
        the mark of each: as `mark`."""
        here = {line.name for line in self.lines if line.is_here}
        for line in self.lines:
            if line.partition is _WHOLE or (not line.is_here and line.name in here):
                continue
            if (mark := line.mark(-inf, waits)) is not None:
                yield line.partition, line.name, dumps({line.name: mark})

    def moved(self) -> None:
        """The stored watermark may be another."""
        for changed in self._kept.values():
            changed()

    def mark(self, waits: Waits) -> bytes:
        """The mark of the events that are done, of all partitions: see `TimeLine.mark`."""
        marks = dict(self._stored)
        # Windows that silence has closed stay closed after a restart. Of several partitions another
        # may end the silence of all before this one has an event: then it had not counted for it.
        by_clock = -inf
        if len(self._lines) == 1 and self.is_silent:
            by_clock = first_term(self.lines)
        for line in self.lines:
            if (mark := line.mark(by_clock, waits)) is not None:
                marks[line.name] = mark
        return dumps(marks)

    def written(self) -> None:
        """The commit with the last marks has been made."""
        for line in self.lines:
            line.written()

    # Changes.

    def ring_at(self, due: float, /) -> None:
        """A stage waits for the watermark to come to this time."""

    def on_change(self, call: Callable[[], object]) -> None:
        """Have this called soon after the watermark may have moved because an event ended, or a
        partition came or went."""
        self._listeners.append(call)

    def not_on_change(self, call: Callable[[], object]) -> None:
        """Take back an `on_change`."""
        self._listeners.remove(call)

    def changed(self) -> None:
        self.leave()
        self.moved()
        if self._is_changed:
            return
        self._is_changed = True
        if self._run.has_loop:
            self._run.call_soon(None, self._tell)
        else:
            self._tell()

    def _tell(self) -> None:
        self._is_changed = False
        for call in list(self._listeners):
            call()

    def statistics(self) -> dict[str, Any]:
        """The `watermarks`, one for each partition that is read: see `TimeLine.statistics`. The
        `partition` of all that a source without partitions has is ""."""
        lines = [line for line in self.lines if line.is_here]
        if self._source is not None:
            # One that only holds the watermark back has no number.
            lines = [line for line in lines if line.partition is not _WHOLE or line.first > -inf]
        return {"watermarks": [line.statistics() for line in lines]}


def first_term(lines: Iterable[TimeLine]) -> float:
    """The first term of the watermark of several lines: of those that are not silent the one that
    is furthest behind. If all are, the one that the clock has brought furthest. Minus infinity if
    nothing is read; infinity if all has ended."""
    least, by_clock = inf, -inf
    is_here = is_open = is_active = False
    for line in lines:
        if not line.is_here:
            continue
        is_here = True
        if line.has_ended:
            continue
        is_open = True
        if not line.is_silent:
            is_active = True
            least = min(least, line.first)
        elif not is_active:
            by_clock = max(by_clock, line.by_clock)
    if is_active:
        return least
    return by_clock if is_open or not is_here else inf


def _nothing() -> None: ...
