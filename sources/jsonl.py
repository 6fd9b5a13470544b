r"""Read JSON lines: one event for each line that is a JSON object.

Items:   the object of each line, in order, as a dict; an integer beyond 64 bits is a float.
         Lines end with `\n` or `\r\n`, the last one may lack it; a UTF-8 byte-order mark and
         blank lines are ignored.
Time:    as the bytes come; an event is stamped with the time its bytes were read, or with its
         own time (`created`). A followed file is looked at every quarter of a second while it
         has nothing new. Between lines the loop gets a turn every few milliseconds. Pipes,
         sockets and terminals are read when they have something, and never block it. A regular
         file is read on the loop, at most 256 KiB at a time, which lasts as long as its disk
         takes: a network file system that hangs blocks the loop (`cat file |` does not).
Memory:  the lines of one read of at most 256 KiB, and an unfinished line of at most `max_line`.
Demand:  the input is opened at the first request and read only when there is demand and every
         line already read is out. Bad lines cost no demand.
Ends:    with the input; a followed file never ends. Cancel closes the input. Drain reads no
         more; lines that were read and cannot be read again (a pipe's) still go out.
Errors:  a line that is not a JSON object, or is too long, is no event: it is reported with its
         number and counted (`on_bad_line="report"`), ends the stream with BadLine ("stop"), or
         goes to a sink of dead letters (`route(sink)`). An input that cannot be opened is
         CannotOpen; one that breaks while it is read is InputCorrupt or the system's OSError.

    bytes        --{}\n{--}\n---x\n---|
    read_jsonl   --a-------b----------|     "x" is reported
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from operator import length_hint
from typing import Any, Literal

from orjson import JSONDecodeError, loads

from streams.compression import check_suffix
from streams.creation import Creation
from streams.errors import BadLine, BuildError, LineTooLong, PenstockError, describe
from streams.event import Event, new_events
from streams.faults import Route
from streams.flowable import Flowable
from streams.follow import Following
from streams.input import Input, open_input
from streams.keys import By, key_name
from streams.lines import Line, LineSplitter, TooLong
from streams.origins import Nobody
from streams.paths import Path, input_name
from streams.run import Run
from streams.slices import fitting
from streams.source import Emission
from streams.stage import StageInfo, Subscriber

__all__ = ["read_jsonl"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOBODY = Nobody()
# What a line is that gives no event; null is a value, and a bad line.
_NOTHING = object()


def read_jsonl(
    path: Path = "-",
    follow: bool = False,
    created: By[dict[str, Any]] | None = None,
    on_bad_line: Literal["report", "stop"] | Route = "report",
    max_line: int = 16 * 1024 * 1024,
) -> Flowable[dict[str, Any]]:
    """Read events from a file, a pipe or standard input.

    `path` is a file's name (`.gz` and `.zst` are decompressed), "-" for standard input, or an
    open descriptor, which stays open. `follow` keeps reading as a file grows, also after it was
    truncated or replaced, as `tail -F` does. `created` is the field or function that gives an
    event's time of creation: seconds since 1970 or ISO 8601, UTC if it names no zone; an event
    without one, or with one in the future, counts as created when it was received. `max_line`
    is in bytes. Raises BuildError for options that make no sense
    together, MissingExtra for `.zst` without zstandard.
    """
    name = input_name(path)
    if max_line < 1:
        raise BuildError(f"read_jsonl(max_line={max_line!r}): at least 1 byte is needed")
    if on_bad_line not in ("report", "stop") and type(on_bad_line) is not Route:
        raise BuildError(
            f'read_jsonl(on_bad_line={on_bad_line!r}): use "report", "stop" or route(sink)'
        )
    if follow and (path == "-" or isinstance(path, int) or name.endswith((".gz", ".zst"))):
        raise BuildError(
            f"read_jsonl({name!r}, follow=True): only a plain file can be followed, by its name; "
            "standard input is read until it ends anyway"
        )
    check_suffix(name)
    details = [name]
    if follow:
        details.append("followed")
    if created is not None:
        details.append(f"created by {key_name(created)}")
    info = StageInfo("read_jsonl", ", ".join(details), 0, "reads 256 KiB at a time", path=path)

    def attach(downstream: Subscriber[dict[str, Any]], run: Run) -> None:
        _Reading(
            downstream, run, flowable.info, path, follow, created, on_bad_line, max_line
        ).start()

    flowable: Flowable[dict[str, Any]] = Flowable(attach, info, mappings=True)
    return flowable


class _Reading(Emission[dict[str, Any]]):
    """`_lines` are those of the last read that are not out yet."""

    _input: Input | None = None
    _lines: Iterator[Line] = iter(())
    _read_at = 0.0
    # Whether nothing follows the lines at hand.
    _ended = False
    # The bad line that ends the stream, once the events before it are out.
    _failure: BadLine | None = None
    # Whether the next line read is the first of another file.
    _another_file = False

    def __init__(
        self,
        downstream: Subscriber[dict[str, Any]],
        run: Run,
        info: StageInfo,
        path: Path,
        follow: bool,
        created: By[dict[str, Any]] | None,
        on_bad_line: Literal["report", "stop"] | Route,
        max_line: int,
    ) -> None:
        super().__init__(downstream, run, info)
        self._path = path
        self._name = input_name(path)
        self._follow = follow
        self._created = None if created is None else Creation(created, run.now)
        self._stop_at_bad_line = on_bad_line == "stop"
        self._letters = run.letters(on_bad_line.sink) if isinstance(on_bad_line, Route) else None
        self._stage = str(info)
        self._splitter = LineSplitter(max_line)
        self._max_line = max_line
        self._number = self._blank = self._bad = 0

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
                self.error(self._failure)
            elif self._ended and not length_hint(self._lines):
                self.complete()

    def _read(self) -> bool:
        """Read some lines, if there is something to read."""
        try:
            if self._input is None:
                self._input = self._open()
            data = self._input.read()
        except (PenstockError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self._name
            self.error(error)
            return False
        if data is None:
            return False
        self._read_at = self.run.now()
        if data:
            if self._another_file:
                self._another_file = False
                self._number = 0
            self._lines = iter(self._splitter.feed(data))
        else:
            self._lines = iter(self._splitter.end())
            self._another_file = self._follow
            self._ended = not self._follow
        return True

    def _open(self) -> Input:
        if self._follow:
            return Following(self._name, self.run, self.wake)
        return open_input(self._path, self.run, self.wake)

    def _emit_lines(self) -> None:
        """Emit a chunk of what is at hand."""
        lines = list(islice(self._lines, min(self._chunk, self.demand)))
        values: list[Any] = []
        try:
            values += map(loads, lines)  # type: ignore[arg-type]  # refuses TooLong
            all_good = set(map(type, values)) == {dict}
        except JSONDecodeError:
            all_good = False
        if all_good:
            events = new_events(values, self._read_at, self, count(self._number + 1))
            self._number += len(lines)
        else:
            events = self._good_ones(lines)
        if self._created is not None:
            for event in events:
                event.created = self._created(event.value, self._read_at)
        self.send(events)

    def _good_ones(self, lines: list[Line]) -> list[Event[Any]]:
        """The events of a chunk that has other lines too, up to one that ends the stream."""
        events: list[Event[Any]] = []
        for line in lines:
            self._number = number = self._number + 1
            try:
                value: Any = loads(line)  # type: ignore[arg-type]  # refuses TooLong
            except JSONDecodeError as error:
                value = self._second_look(line, number, error)
            if value.__class__ is dict:
                events.append(Event(value, self._read_at, self, number))
            elif value is not _NOTHING:
                self._bad_line(line, number, f"is {_kind(value)}, not an object")
            if self._failure is not None:
                break
        return events

    def _second_look(self, line: Line, number: int, error: JSONDecodeError) -> Any:
        """The value of a line that was refused for its byte-order mark only, or `_NOTHING`."""
        if isinstance(line, TooLong):
            self._bad_line(line, number, f"is longer than max_line ({self._max_line:,} bytes)")
            return _NOTHING
        if number == 1 and line.startswith(_BYTE_ORDER_MARK):
            line = line[len(_BYTE_ORDER_MARK) :]
            try:
                return loads(line)
            except JSONDecodeError as second:
                error = second
        if line.strip():
            self._bad_line(line, number, f"is no JSON ({error})")
        else:
            self._blank += 1
        return _NOTHING

    def _bad_line(self, line: Line, number: int, what: str) -> None:
        raw = line.head if isinstance(line, TooLong) else line
        text = raw.decode("utf-8", "backslashreplace").removesuffix("\r")
        kind = LineTooLong if isinstance(line, TooLong) else BadLine
        # Only the head of a line that is too long is known, not its size.
        shown = f"it begins with {text[:80]!r}" if kind is LineTooLong else describe(text)
        error = kind(f"{self._name}, line {number} {what}: {shown}")
        self._bad += 1
        self.run.count_bad_line(error)
        if self._stop_at_bad_line:
            self._failure = error
        elif self._letters is not None:
            event = Event(text, self._read_at, _NOBODY, number)
            self._letters.send(event, error, self._stage, 1)

    def stop(self) -> None:
        opened = self._input
        if self.done or self._ended:
            return
        if opened is None or opened.lasting:
            self.complete()
            return
        self.release()
        self._ended = True
        self._lines = iter([*self._lines, *self._splitter.end()])
        if not length_hint(self._lines):
            self.complete()
        elif self.demand_withheld:
            self.resume()
        else:
            self.wake()

    def release(self) -> None:
        opened, self._input = self._input, None
        if opened is not None:
            opened.close()

    def statistics(self) -> dict[str, Any]:
        """What every source has, and what became of the lines that are no events.

        `bad_lines` and `blank_lines`; lines `read_ahead` (read, not yet asked for); and with
        `created`, events whose time was `created_in_future` or `created_unknown`.
        """
        numbers = super().statistics()
        numbers["bad_lines"] = self._bad
        numbers["blank_lines"] = self._blank
        numbers["read_ahead"] = length_hint(self._lines)
        if self._created is not None:
            numbers["created_in_future"] = self._created.in_future
            numbers["created_unknown"] = self._created.unknown
        return numbers


def _kind(value: Any) -> str:
    """A JSON value's kind, in JSON's words."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a truth value"
    if isinstance(value, list):
        return "an array"
    return "a string" if isinstance(value, str) else "a number"
