"""The source of lines: options, bad lines, event times, drain, position.

A `Format` decodes lines; everything else is the same for JSON, for plain text and for CSV, whose
rows are lines that may have line breaks in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count, islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.streams.base.errors import (
    BadLine,
    BuildError,
    CannotOpen,
    LineTooLong,
    PenstockError,
    counted,
    describe,
)
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.validation import is_count
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.policy import OnBadInput, Route, check_bad_input, routed_by
from penstock.streams.io.body import NotAValue
from penstock.streams.io.compression import Kind, Unpacked, check_suffix, compression_by_name
from penstock.streams.io.following import Following
from penstock.streams.io.inputs.patterns import Order, files_of, is_several, is_url
from penstock.streams.io.line_format import Format
from penstock.streams.io.lines import Line, TooLong
from penstock.streams.io.paths import Paths, actual_input, file_of, input_name, is_path
from penstock.streams.io.reader import CHUNK, open_input
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import BaseEvent, Decoded, Ending, Event, new_events
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, Files, Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.wait import Wait
from penstock.streams.stages.source_stage import BaseSourceStage
from penstock.streams.stages.stream import Stream
from penstock.streams.stages.time_slice import fitting

if TYPE_CHECKING:
    from penstock.streams.delivery.marks import Marks
    from penstock.streams.io.creation import Creation
    from penstock.streams.io.inputs.objects import Object
    from penstock.streams.io.inputs.several import Several
    from penstock.streams.io.position import Position

__all__ = ["MAX_LINE", "LineOptions", "read_lines_as"]

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MAX_LINE = 16 * 1024 * 1024
"""The most bytes of a line that a source takes where its user gives no `max_line`."""


class LineOptions(NamedTuple):
    """The options of all sources of lines; see `read_jsonl`."""

    path: Paths
    follow: bool
    created: By[Any] | None
    on_bad_line: OnBadInput
    max_line: int
    position: str | os.PathLike[str] | Marks | None
    order: Order | None = None


def read_lines_as(name: str, line_format: Format[T], options: LineOptions) -> Stream[T]:
    """The source `name`. Raises BuildError for invalid options, and MissingExtra."""
    path = options.path
    source = input_name(path)
    several = is_several(path)
    compressed = not several and compression_by_name(source) is not None
    if not is_count(options.max_line):
        raise BuildError(f"{name}(max_line={options.max_line!r}): at least 1 byte is needed")
    check_bad_input(options.on_bad_line, name, "on_bad_line")
    if options.order not in (None, "name", "time"):
        raise BuildError(f"{name}(order={options.order!r}): it is 'name' or 'time'")
    names = files_of(path) if several else [source]
    urls = [one for one in names if is_url(one)]
    if urls and options.follow:
        raise BuildError(
            f"{name}({urls[0]!r}, follow=True): an object does not grow as a file does"
        )
    if urls and options.order == "time":
        raise BuildError(
            f"{name}({urls[0]!r}, order='time'): the times of objects are not asked for: give the "
            "list in the order that you want"
        )
    if options.follow and (path == "-" or isinstance(path, int) or compressed or several):
        raise BuildError(
            f"{name}({source!r}, follow=True): only a plain file can be followed, by its name; "
            "standard input is read until it ends anyway"
        )
    if options.created is not None:
        Key(options.created, "created")
    position = options.position
    marks = position if hasattr(position, "marks_in") else None
    if position is not None and marks is None and not is_path(position):
        raise BuildError(
            f"{name}(position={position!r}): the path of a file is needed, in which the position "
            "is kept, or a Store"
        )
    for one in names:
        check_suffix(one)
    if urls:
        from penstock.streams.io.inputs.objects import check_url

        for one in urls:
            check_url(one)
    details = [source]
    if options.follow:
        details.append("followed")
    if options.created is not None:
        details.append(f"created by {key_name(options.created)}")
    if position is not None:
        # Any: a path or a store.
        kept: Any = getattr(marks, "name", position)
        details.append(f"position in {os.fspath(kept)}")
    info = StageInfo(
        name,
        ", ".join(details),
        0,
        f"reads {CHUNK // 1024} KiB at a time",
        routed=routed_by(options.on_bad_line),
        delivery=Delivery(
            acknowledges=position is not None,
            continues=position is not None,
            ends=position is None and not options.follow,
            store=marks,
            once=f"{source} is read once" if path == "-" or isinstance(path, int) else "",
        ),
        placement=Placement(
            reads=(options.created,),
            decode=line_format.decode_all
            if line_format.repeatable and not callable(options.created)
            else None,
        ),
        files=Files(path=path),
    )

    def attach(downstream: Subscriber[T], run: Run) -> None:
        _Reading(downstream, run, stream.info, line_format, options).start()

    stream: Stream[T] = Stream(attach, info, values=line_format.values)
    return stream


class _Reading(BaseSourceStage):
    """`_lines` are from the last read, and not emitted yet."""

    _input: Unpacked | Following | Several | None = None
    _lines: Iterator[Line] = iter(())
    _read_at = 0.0
    # Whether nothing follows the lines that were read.
    _ended = False
    # The error that ends the stream, after the events before it.
    _failure: BadLine | CannotOpen | None = None
    # Whether the next line read is the first of another file.
    _another_file = True
    # The bytes read, and those in all where that is known.
    _sizes: tuple[int, int | None] = (0, None)
    # How often a followed file was replaced, and rewritten.
    _rotated = _emptied = 0

    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        line_format: Format[Any],
        options: LineOptions,
    ) -> None:
        super().__init__(downstream, run, info)
        # The format of the first line of a file, and that of the next line.
        self._first_format = self._format = line_format
        self._path = options.path
        self._order: Order | None = options.order
        self._name = input_name(options.path)
        self.file = file_of(options.path)
        # Decompressed bytes before the position, which are read again and left out.
        self._skip = 0
        self._follow = options.follow
        created, route = options.created, options.on_bad_line
        self._created: Creation | None = None
        if created is not None:
            # Imported where it is used: most runs do not.
            from penstock.streams.io.creation import Creation

            self._created = Creation(created, run.now, self._warn)
        self._stop_at_bad_line = route == "stop"
        self._letters = channel_to(route.sink, run) if isinstance(route, Route) else None
        self._stage = str(info)
        self._splitter = line_format.splitter(options.max_line)
        self._max_line = options.max_line
        self._number = self._blank = self._bad = 0
        self._keeps_lines = run.overrides.decoded_again == self.info.number
        self._kind: type[BaseEvent] = Decoded if self._keeps_lines else Event
        self._position: Position | None = None
        if options.position is not None:
            from penstock.streams.io.position import Position

            self._position = Position(
                *(options.position, run, self, self._all_finished),
                follow=options.follow,
                several=is_several(actual_input(options.path)),
            )
            self._wait = Wait(run, self.info, self._waits)
            self.ack = self._position.settle

    def produce(self) -> None:
        now = self.run.now()
        while self.demand and not self._slice.is_over(now):
            if length_hint(self._lines):
                self._emit_lines()
                before, now = now, self.run.now()
                self._chunk = fitting(self._chunk, now - before)
            elif self._read():
                now = self._read_at
            else:
                return
            if self._failure is not None:
                self.fail(self._failure)
            elif self._ended and not length_hint(self._lines):
                self.complete()

    def _read(self) -> bool:
        """Read some lines, if there is something to read."""
        position = self._position
        if self._another_file and position is not None and position.unfinished:
            # The position belongs to one file.
            self._wait.begin()
            return False
        try:
            if self._input is None:
                self._input = self._open()
            data = self._input.read()
        except (PenstockError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self._name
            self.fail(error)
            return False
        if data is None:
            return False
        self._read_at = self.run.now()
        if data:
            if self._another_file:
                self._another_file = False
                self._begin_lines()
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
                if not data:
                    return True
            lines = self._splitter.feed(data)
        else:
            lines = self._splitter.end()
            self._ended = self._input.ended
            self._another_file = not self._ended
            if position is not None:
                position.end()
        self._lines = iter(lines)
        if position is not None:
            position.has_read(data)
        return True

    def _waits(self) -> str:
        position = self._position
        assert position is not None
        count, first = position.unfinished, position.first
        lines = counted(count, "line")
        which = f"line {first:,}" if count == 1 else f"the first is line {first:,}"
        return (
            f"{self._name} waits until the file that was read before it is finished, because a "
            f"position is that of one file: {lines} of that file unfinished, {which}."
        )

    def _all_finished(self) -> None:
        self._wait.end()
        self.wake_soon()

    def _open(self) -> Unpacked | Following | Several:
        position = self._position
        path = actual_input(self._path)
        if is_several(path):
            names = files_of(path, self._order)
            if not names:
                raise CannotOpen(f"Cannot read {input_name(path)}: no file has such a name.")
            from penstock.streams.io.inputs.several import Several

            return Several(names, self._open_next)
        if position is not None and not is_url(path):
            earlier = [version.descriptor for version in position.rotated(self._name)]
            if self._follow or earlier:
                return Following(
                    *(self._name, self.run, self.info, self.wake),
                    *(self._begin_at, earlier),
                    ends=not self._follow,
                )
        if self._follow:
            return Following(self._name, self.run, self.info, self.wake)
        return self._open_file(path)

    def _open_next(self, name: str) -> Unpacked:
        self._name, self.file = name, file_of(name)
        return self._open_file(name)

    def _open_file(self, path: Any) -> Unpacked:
        position = self._position
        if position is None:
            return open_input(path, self.run, self.wake)

        def opened(descriptor: int | Object) -> Kind | None:
            self._begin_at(descriptor)
            self._skip = position.skip
            return position.packed

        return open_input(path, self.run, self.wake, opened)

    def _begin_at(self, descriptor: int | Object) -> int:
        position = self._position
        assert position is not None
        # Imported where it is used: a run without a position does not.
        from penstock.streams.io.inputs.opened import OpenedFile

        opened = OpenedFile(descriptor, self._name) if isinstance(descriptor, int) else descriptor
        offset = position.begin(opened, self._name)
        self._number = position.line
        return offset

    def _begin_lines(self) -> None:
        """Begin with the first line of a file, or with that of the position."""
        position = self._position
        self._number = 0 if position is None else position.line
        self._format = self._first_format
        if position is not None and position.head is not None and position.line:
            self._head(position.head)

    def _head(self, line: bytes) -> None:
        """Note the header of the lines that follow. Raises CannotOpen."""
        headed = self._first_format.headed
        assert headed is not None
        try:
            self._format = headed(line.removesuffix(b"\r"))
        except CannotOpen as error:
            raise CannotOpen(f"{self._name}: {error}") from error

    def _without_head(self, lines: list[Line]) -> list[Line]:
        """The lines after the header, if it is among these; the others are blank."""
        for at, line in enumerate(lines):
            self._number += 1
            if isinstance(line, TooLong):
                raise CannotOpen(f"{self._name}: its first row is longer than max_line")
            if line.strip():
                self._head(bytes(line))
                if self._position is not None:
                    self._position.head = bytes(line)
                self.settle_line(self._number)
                return lines[at + 1 :]
            self._blank += 1
            self.settle_line(self._number)
        return []

    def _emit_lines(self) -> None:
        """Emit a chunk of the lines that were read."""
        lines = list(islice(self._lines, min(self._chunk, self.demand)))
        position = self._position
        if position is not None:
            position.take(lines)
        first = lines[0]
        if self._number == 0 and not isinstance(first, TooLong):
            lines[0] = first.removeprefix(_BYTE_ORDER_MARK)
        if self._format.headed is not None:
            try:
                lines = self._without_head(lines)
            except CannotOpen as error:
                self.fail(error)
                return
            if not lines:
                return
        resuming = position is not None and position.resuming
        values = None if resuming else self._format.decode_all(lines)
        if values is None:
            events = self._good_ones(lines)
        else:
            numbers = count(self._number + 1)
            events = new_events(values, self._read_at, self, numbers, self._kind)
            self._number += len(lines)
            if self._keeps_lines:
                decoded: Any = zip(events, lines, strict=True)
                for event, line in decoded:
                    event.data = line
        if self._created is not None:
            for event in events:
                event.created = self._created(event.value, self._read_at)
        self.send_all(events)

    def _warn(self, text: str) -> None:
        self.run.errors.warn(f"{self.info}: {text}")

    def _good_ones(self, lines: list[Line]) -> list[Event[Any]]:
        """The events of a chunk that may also have other lines, up to one that ends the stream."""
        events: list[Event[Any]] = []
        line_format, position = self._format, self._position
        for line in lines:
            self._number = number = self._number + 1
            if position is not None and position.was_finished(number):
                position.settle_line(number)
            elif isinstance(line, TooLong):
                what = f"is longer than max_line ({self._max_line:,} bytes)"
                self._bad_line(line, number, what)
            elif line_format.skips_blank and not line.strip():
                self._blank += 1
                self.settle_line(number)
            else:
                try:
                    value = line_format.decode(bytes(line.removesuffix(b"\r")))
                except NotAValue as bad:
                    foreign = line_format.foreign
                    if number == 1 and foreign is not None and (what := foreign(bytes(line))):
                        self._failure = CannotOpen(f"{self._name} {what}")
                    else:
                        self._bad_line(line, number, str(bad))
                else:
                    event: Any = self._kind(value, self._read_at, self, number)
                    if self._keeps_lines:
                        event.data = line
                    events.append(event)
            if self._failure is not None:
                break
        return events

    def _bad_line(self, line: Line, number: int, what: str) -> None:
        raw = (line.head if isinstance(line, TooLong) else line).removesuffix(b"\r")
        text = raw.decode("utf-8", "backslashreplace")
        where = f"{self._name}, line {number} {what}"
        if isinstance(line, TooLong):
            error: BadLine = LineTooLong(f"{where}: it begins with {text[:80]!r}")
        else:
            # If bytes were escaped, not the repr of the text, which would escape them again.
            shown = describe(text if text.encode() == raw else bytes(raw))
            error = BadLine(f"{where}: {shown}")
        error.place = f"{self._name}, line {number}"
        self._bad += 1
        self.run.errors.count_bad_line(error)
        if self._stop_at_bad_line:
            self._failure = error
        elif self._letters is None:
            self.settle_line(number)
        else:
            event = Event(text, self._read_at, _Routed(self), number)
            self._letters.send(event, error, self._stage, 1)

    def identity(self, token: Any, /) -> Identity | None:
        return None if self._position is None else self._position.identity(token)

    def settle_line(self, number: int) -> None:
        if self._position is not None:
            self._position.settle_line(number)

    def stop(self) -> None:
        opened = self._input
        if self.state or self._ended:
            return
        if opened is None or isinstance(opened, Following) or opened.lasting:
            self.complete()
            return
        opened.stop()
        if not length_hint(self._lines):
            self._read()
        if self._ended and not length_hint(self._lines):
            self.complete()
        elif self.demand_withheld:
            self.resume()
        else:
            self.wake()

    def release(self) -> None:
        if self._position is not None:
            self._wait.end()
        if self._input is not None:
            self._note_sizes(self._input)
            self._input.close()
            self._input = None

    def _note_sizes(self, opened: Unpacked | Following | Several) -> None:
        self._sizes = opened.sizes()
        if isinstance(opened, Following):
            self._rotated, self._emptied = opened.rotated, opened.emptied

    def statistics(self) -> dict[str, Any]:
        """The numbers of every source, and of the lines that are not events.

        `bad_lines` and `blank_lines`; lines `read_ahead` (read, not yet requested); `bytes_read`
        and `bytes_total` (None unless it is a file), and the part of the file that has been
        `emitted`; the bytes of compressed input are counted compressed, and as read when they have
        been decompressed; with `created`, events whose time was `created_in_future` or
        `created_unknown`; with `follow`, how often the file was `rotated`, and `emptied` or written
        anew; and with `position`, the `offset` in bytes up to which everything is finished, and the
        seconds in which a file `waited` for the last lines of the one before it.
        """
        numbers = super().statistics()
        numbers["bad_lines"] = self._bad
        numbers["blank_lines"] = self._blank
        numbers["read_ahead"] = ahead = length_hint(self._lines)
        if self._input is not None:
            self._note_sizes(self._input)
        read, total = self._sizes
        numbers["bytes_read"] = read
        numbers["bytes_total"] = total
        numbers["emitted"] = self._emitted(read, total, ahead)
        if self._follow:
            numbers["rotated"] = self._rotated
            numbers["emptied"] = self._emptied
        if self._created is not None:
            numbers["created_in_future"] = self._created.in_future
            numbers["created_unknown"] = self._created.unknown
        if self._position is not None:
            numbers["offset"] = self._position.offset
            numbers["waited"] = self._wait.seconds
        return numbers

    def _emitted(self, read: int, total: int | None, ahead: int) -> float | None:
        """The fraction of the input that was emitted, if all lines are about equally long."""
        if total is None:
            return None
        lines = self._number + ahead
        # A file that is shorter than what was read of it has been truncated.
        return min(1.0, read / total if total else 1.0) * (self._number / lines if lines else 1.0)


class _Routed(Nobody):
    """The origin of a bad line on its way to the dead letters: not an event of the source."""

    __slots__ = ("_reading", "identity")

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading
        self.identity = reading.identity

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        if ending is Ending.FORGIVEN:
            for event in events:
                self._reading.settle_line(event.token)
