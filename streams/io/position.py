"""The checkpoint of a reader: how far into a file everything is finished, kept in a small file.

The position is an offset at which a line begins: every line before it is finished, so a process
that begins there loses nothing, whenever the last one was killed. The lines behind it that are
finished too, as ranges of their numbers, are kept with it, so that only those are repeated that
were unfinished. It is written in the loop iteration after lines have finished, to a new file that
then takes the old one's name, so a reader finds either the old position or the new one (rename in
POSIX.1-2017). It is not forced to the disk: after a power failure an older one may be found, and
more is repeated.

What is written names the file: its path, its inode, how much it had, and a checksum of the last
bytes that were read of it, which are kept, because a file may be emptied while its lines are in
work (copytruncate of logrotate). It has a version and a checksum of its own.

In a compressed file the offset counts the decompressed bytes, and the next process decompresses it
again up to there. Its size and its last bytes are those of the file itself when it was opened; one
that was read to its end, and all of which is finished, is not opened again while it has that size.

A last line without a newline may be half written. It is taken as a line, and its size and checksum
are kept, by which the next process sees whether it has changed, and then takes it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from orjson import dumps

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.marks import Marks
from penstock.streams.delivery.text import text_of
from penstock.streams.io.compression import (
    Kind,
    compression_by_name,
    compression_of,
    is_read,
)
from penstock.streams.io.inputs.folder import InFolder
from penstock.streams.io.inputs.opened import CHECKED, Opened, OpenedFile
from penstock.streams.io.kept_position import ABOUT, InFile, InStore, written
from penstock.streams.io.lines import Line, TooLong
from penstock.streams.io.rotated import Untraceable, Version, rotated
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.protocol.identity import Identity
from penstock.streams.runtime.context import Run

__all__ = ["Position"]


class Position:
    """The position in one file, and in the next when another file takes its name.

    It is kept in a file of its own, whose path is given, or in a store. `finished` is called when
    no taken line is unfinished any more. With `follow`, another file may take the name at any time.
    With `several`, the input is several files, one after another, and the path that of a folder.
    Memory: a few numbers for each line that is unfinished. Time: O(1) per line, and one small file
    written per loop iteration in which lines finish.
    """

    def __init__(
        self,
        kept: str | os.PathLike[str] | Marks,
        run: Run,
        origin: Origin,
        finished: Callable[[], None],
        *,
        follow: bool,
        several: bool = False,
    ) -> None:
        self._kept: InFile | InStore
        if not isinstance(kept, str | os.PathLike):
            self._kept = InStore(kept, run, origin, self._content, self._finish)
        elif several:
            self._kept = InFolder(os.fspath(kept), run, self._content, _has_what_was_read)
        else:
            self._kept = InFile(os.fspath(kept), run, self._content)
        self._several = several
        # How the present file is compressed, and whether it was read to its end.
        self._packed: Kind | None = None
        self.head: bytes | None = None
        """The header of the present file, if its lines have one."""
        self._at_end = False
        self._run = run
        self._follow = follow
        self._name = self._generation = self._version = ""
        self._finished = finished
        self._saved: dict[str, Any] | None = None
        self._is_loaded = False
        self._inode = self._size = 0
        # The lines that were taken; the mark of an unfinished one is where it begins.
        self._ledger = Ledger[int](1)
        # Where the next line to be taken begins.
        self._next = 0
        # The bytes of the file that have been read; up to the end of the last whole line, the last
        # of them; and the last behind it, where a writer may be at work.
        self._read = self._whole = 0
        self._tail = self._rest = b""
        # The line that was taken last, if its end is not read yet.
        self._long: TooLong | None = None
        # The last line of the file, if it was taken without a newline: number, size and checksum.
        self._unended: tuple[int, int, int] | None = None
        # The number of that line, if what the last process took was another.
        self._changed = 0

    @property
    def unfinished(self) -> int:
        """How many lines were taken that are not finished."""
        return len(self._ledger)

    @property
    def first(self) -> int:
        """The number of the first line that is not finished."""
        return self._ledger.floor or 1

    @property
    def offset(self) -> int:
        """How many bytes of the file are finished: everything before them is."""
        return self._ledger.mark(self._next)

    def identity(self, number: int) -> Identity:
        """The identity of a line of the file: its path, a random id that the file was given when it
        was begun, and the number of the line."""
        return Identity(written(self._name), self._generation, number)

    @property
    def resuming(self) -> bool:
        """Whether there may be lines ahead that the last process has finished."""
        return self._ledger.resumes

    def was_finished(self, number: int) -> bool:
        """Whether the last process has finished this line; called for each line in order."""
        return number != self._changed and self._ledger.was_finished(number)

    @property
    def line(self) -> int:
        """How many lines were taken before the one that is read next."""
        return (self._ledger.next or 1) - 1

    def rotated(self, name: str) -> list[Version]:
        """The file of the position and those that had its name after it, in order, if what has the
        name now is another one; their reader closes them. Raises CannotOpen."""
        if self._kept.is_new:
            return []
        self._load(name)
        saved = self._saved
        if saved is None or saved["path"] != written(os.path.abspath(name)):
            return []
        try:
            versions = rotated(
                name,
                saved["inode"],
                (lambda file: _has_what_was_read(saved, OpenedFile(file, name)))
                if saved["read"]
                else None,
                self._kept.files,
            )
        except Untraceable as untraceable:
            why = f"{_difference(saved, name)}, and {untraceable}"
            raise self._refused(name, why, saved, moved=False) from untraceable
        except OSError as error:
            raise CannotOpen(f"Cannot look for {name}: {error.strerror}.") from error
        if versions:
            # A copy has another inode.
            saved["inode"] = os.fstat(versions[0].descriptor).st_ino
            others = "".join(f", then {version.name}" for version in versions[1:])
            self._run.errors.warn(
                f"{name} was rotated while no run read it: going on at byte {saved['offset']:,} of "
                f"{versions[0].name}{others}."
            )
        return versions

    def _load(self, name: str) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._saved = self._kept.load(name)

    @property
    def packed(self) -> Kind | None:
        """How the present file is compressed; None if it is not."""
        return self._packed

    @property
    def skip(self) -> int:
        """How many decompressed bytes of the present file, just begun, are before the position."""
        return 0 if self._packed is None or self._at_end else self._next

    def end(self) -> None:
        """Note that all of the present file was read."""
        if self._packed is not None and not self._at_end:
            self._at_end = True
            self._kept.changed()

    def begin(self, opened: Opened, name: str) -> int:
        """Place `opened`, just opened, at the position, and return that; a compressed file is
        left at its start, or placed at its end if it is done.

        Raises CannotOpen if reading cannot be resumed in it, or if it is not the file of the
        position. A file that takes its name later is read from its start.
        """
        size = opened.size
        kind = compression_by_name(name) or compression_of(opened.head())
        if not (kind is None or is_read(kind)):
            raise CannotOpen(
                f"Cannot keep a position in {name}: it is compressed ({kind}). Decompress it first."
            )
        if isinstance(self._kept, InFolder):
            saved = self._kept.find(name, opened)
        else:
            if self._several:
                # Each file has a mark of its own.
                self._is_loaded = False
            self._load(name)
            saved, self._saved = self._saved, None
        self._packed = kind
        offset, ledger, generation = 0, Ledger[int](1), os.urandom(8).hex()
        self._at_end = False
        head: str | None = None if saved is None else saved.get("head")
        self.head = None if head is None else head.encode("latin-1")
        # Any: three numbers.
        unended: Any = None
        if saved is not None:
            offset, first = self._checked(saved, opened, name), saved["line"] + 1
            finished = [(begin, end) for begin, end in saved["finished"]]
            unended = tuple(saved["unended"]) or None
            self._at_end = saved.get("done", False) and saved["size"] == size
            if unended is not None and unended[0] < first and not self._at_end:
                # It is read once more, to see whether it has changed.
                first, length, _ = unended
                offset, finished = offset - length, [(first, first + 1)]
            ledger = Ledger[int](first, finished)
            generation = saved["generation"]
        whole = offset if kind is None else size
        is_path = self._follow or os.path.exists(name)
        self._name = os.path.abspath(name) if is_path else name
        self._generation = generation
        self._inode, self._size, self._version = opened.inode, size, opened.version
        self._next = self._read = offset
        self._whole = whole
        self._tail, self._rest = opened.before(whole), b""
        self._long = None
        self._unended, self._changed = unended, 0
        self._ledger = ledger
        if kind is None:
            opened.place(offset)
        elif self._at_end:
            opened.place(size)
        if isinstance(self._kept, InFolder):
            self._kept.called(generation)
        self._kept.begin()
        return offset

    # Any: numbers, but for the ranges.
    def _checked(self, saved: dict[str, Any], opened: Opened, name: str) -> int:
        offset = saved["offset"]
        is_other = saved["inode"] != opened.inode
        if is_other and (self._follow or not saved["read"]):
            raise self._refused(name, _other(saved), saved, moved=not opened.version)
        difference = _difference(saved, opened)
        if difference:
            raise self._refused(name, difference, saved, moved=not opened.version)
        if is_other:
            self._run.errors.warn(
                f"{name} is another file than the one that was read, but the same before byte "
                f"{saved['read']:,}: going on at byte {offset:,}, as in a copy of it."
            )
        return int(offset)

    def _refused(
        self, name: str, why: str, saved: dict[str, Any], *, moved: bool = True
    ) -> CannotOpen:
        about = f", which is about {saved['path']}" if saved["path"] else ""
        advice = self._kept.again(name)
        if moved:
            advice = (
                "If what was read was renamed or copied, as log rotation does, finish it first: "
                "read it once under its new name with the same position, without follow=True. "
                f"{advice}"
            )
        return CannotOpen(
            f"Cannot go on in {name} from the position in {self._kept.name}{about}: {why}. {advice}"
        )

    def has_read(self, data: bytes) -> None:
        """Note the next bytes of the file that have been read, decompressed."""
        if self._packed is not None:
            self._read += len(data)
            return
        end = data.rfind(b"\n") + 1
        if end:
            if not self._whole:
                # Until something is written of it, only its inode tells that it was read.
                self._kept.changed()
            self._whole = self._read + end
            self._tail = (self._tail + self._rest + data[max(0, end - CHECKED) : end])[-CHECKED:]
            self._rest = b""
        self._rest = (self._rest + data[max(end, len(data) - CHECKED) :])[-CHECKED:]
        self._read += len(data)
        self._size = max(self._size, self._read)

    def take(self, lines: list[Line]) -> None:
        """Note the lines that are emitted next.

        A line that is too long is known before its end is. Until then the next run would begin with
        it, rather than in the middle of it.
        """
        if self._long is not None and self._long.ended:
            self._next += self._long.size
            self._long = None
        if self._unended is not None:
            self._compare(lines)
        starts, begin = list[int](), self._next
        for line in lines:
            starts.append(begin)
            if not isinstance(line, TooLong):
                begin += len(line) + 1
            elif line.ended:
                begin += line.size
            else:
                self._long = line
        self._ledger.read_all(starts)
        self._next = begin
        if begin > self._read:
            # The last line of the file lacks its newline.
            self._next = self._read
            last = lines[-1]
            assert not isinstance(last, TooLong)
            self._unended = self.line, len(last), _checksum(last)

    def _compare(self, lines: list[Line]) -> None:
        """Note whether the line that was taken without a newline by the last process is another
        one now, if it is among these."""
        assert self._unended is not None
        number, _, checksum = self._unended
        index = number - self.line - 1
        if index >= len(lines):
            return
        self._unended, line = None, lines[index]
        if isinstance(line, TooLong) or _checksum(line) != checksum:
            self._changed = number
            self._run.errors.warn(
                f"{self._name}, line {number:,} had no newline when it was read, and has changed "
                "since: it is read again."
            )

    def settle(self, events: Sequence[Event[Any]]) -> None:
        """Note that the lines of these events are finished."""
        before = len(self._ledger)
        self._finish(events)
        self._settled(before)

    def settle_line(self, number: int) -> None:
        """Note that a line is finished, or need not be emitted."""
        before = len(self._ledger)
        self._ledger.finish(number)
        self._settled(before)

    def _finish(self, events: Sequence[Event[Any]]) -> None:
        for event in events:
            self._ledger.finish(event.token)

    def _settled(self, before: int) -> None:
        # The store notes what it is about to write.
        if len(self._ledger) < before:
            self._kept.changed()
        if not self._ledger:
            self._finished()

    def _content(self, done: Sequence[Event[Any]] = ()) -> bytes:
        """What is kept, as it is when the lines of these events are finished too."""
        ledger = self._ledger.after(event.token for event in done) if done else self._ledger
        content = {
            "path": written(self._name),
            "generation": self._generation,
            "inode": self._inode,
            "size": self._size,
            "offset": ledger.mark(self._next),
            "read": self._whole,
            "checksum": crc32(self._tail),
            "line": (ledger.floor or 1) - 1,
            "finished": list(ledger.finished()),
            "unended": self._unended or (),
        }
        if self._version:
            content["version"] = self._version
        if self.head is not None:
            content["head"] = self.head.decode("latin-1")
        if self._packed is not None:
            content["packed"] = self._packed
            content["done"] = self._at_end and not ledger
        return text_of(ABOUT, dumps(content).decode()).encode()


# Any: numbers, but for the ranges.
def _has_what_was_read(saved: dict[str, Any], opened: Opened) -> bool:
    return not _difference(saved, opened)


def _difference(saved: dict[str, Any], file: str | Opened) -> str:
    """Why a file does not have what was read; empty if it has."""
    if isinstance(file, str):
        try:
            with open(file, "rb") as opened:
                return _difference(saved, OpenedFile(opened.fileno(), file)) or _other(saved)
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
    if saved["version"] != file.version:
        is_other_kind = not (saved["version"] and file.version)
        return "the position is not that of an object" if is_other_kind else "it was replaced"
    if file.version:
        return ""
    size, read = file.size, saved["read"]
    if saved.get("packed"):
        if size < read:
            return "it is shorter than what was read"
        if saved["checksum"] != crc32(file.before(read)):
            return (
                f"before byte {read:,} it has other content than the compressed file that was read"
            )
        return ""
    # A last line without a newline may be removed, as `mend_end` does.
    if size < (read if saved["unended"] else max(saved["size"], saved["offset"])):
        return "it is shorter than what was read"
    if saved["checksum"] != crc32(file.before(read)):
        return f"before byte {read:,} it has other content than the file that was read"
    return ""


def _other(saved: dict[str, Any]) -> str:
    return f"it is not the file that was read (inode {saved['inode']})"


def _checksum(line: bytes | bytearray) -> int:
    # The end of a line may have two bytes, of which only the first was there.
    return crc32(line.removesuffix(b"\r"))
