"""The end of a file of JSON lines that is appended to: it must be a whole line, and where the file
is compressed, a whole member of gzip or a frame of zstd.

A full disk or a kill can cut off a line. What is appended would continue it, and a line that is not
JSON in the middle stops many a reader (`jq`) for ever; nothing behind a member that is cut off can
be read at all. The events of what was cut off have not finished, so nothing is lost with it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress

from penstock.streams.base.errors import CannotOpen, InputCorrupt, describe
from penstock.streams.io.body import NotAValue, json_value, text_of
from penstock.streams.io.compression import Kind, Unpacked, compression_by_name, is_block
from penstock.streams.io.descriptor import Descriptor
from penstock.streams.io.paths import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["mend_end"]

# Bytes that are read at once, and of a last line at most. Chosen: as `max_line` of a reader.
_PIECE, _MOST = 64 * 1024, 16 * 1024 * 1024

# The most bytes of a compressed batch that was cut off. Chosen: 16 of what is written at once.
_MOST_BATCH = 1024 * 1024

# The first bytes of JSON. Lines that begin otherwise are not of this library, and stay.
_FIRST = b'{["-0123456789tfn'


def mend_end(
    path: Path,
    descriptor: int,
    own: ExitStack,
    warn: Callable[[str], None],
    *,
    alone: bool,
    sole: bool = False,
    delimiter: str = "",
) -> None:
    """Remove a last line that was cut off, or end it if it is whole and lacks only its newline.
    Of a compressed file, remove the last member if it was cut off and no line of it has finished.

    Nothing is done unless `descriptor` appends to a regular file. A line is only removed where no
    other run has the file open (by a lock, which `own` releases), and with `alone` no process of
    this one can have; otherwise it is ended, and stays. With a `delimiter`, lines are rows of CSV:
    the last one is removed if it lacks its newline, because nothing tells whether a field is whole.
    Raises CannotOpen for a compressed file that ends otherwise than in a whole member, and with
    `sole` for one that another run has open. Time: a compressed file is decompressed.
    """
    if not _appends(descriptor):
        return
    where = f"/dev/fd/{descriptor}" if isinstance(path, int) or path == "-" else path
    try:
        file = os.open(where, os.O_RDWR | getattr(os, "O_BINARY", 0))
    except OSError:
        # It may still be open to appending.
        return
    own.callback(os.close, file)
    name = os.fspath(where)
    free = _locked(file)
    if sole and not free and sys.platform != "win32":
        raise CannotOpen(
            f"Cannot rotate {name}: another run writes to it, which would go on in the file that "
            "was renamed. Give each run a file of its own."
        )
    kind = compression_by_name(name)
    if kind is None:
        _mend_line(file, name, warn, delimiter, alone=free and alone)
    elif alone and (free or sys.platform == "win32"):
        # Else another run has mended it, and may be writing.
        _mend_member(file, name, kind, warn, free=free)
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _mend_line(
    file: int, name: str, warn: Callable[[str], None], delimiter: str, *, alone: bool
) -> None:
    size = os.fstat(file).st_size
    if delimiter:
        # Imported here: a plain run does not.
        from penstock.streams.io.csv_end import last_row

        line = last_row(file, size, delimiter)
    else:
        line = _last_line(file, size)
    if not line:
        return
    if alone and (delimiter or _is_cut_off(line)):
        os.ftruncate(file, size - len(line))
        warn(
            f"{name} ended within a line, as after a full disk or a kill: its last {len(line):,} "
            f"bytes were removed: {describe(text_of(line))}"
        )
    else:
        os.pwrite(file, b"\n", size)


def _mend_member(
    file: int, name: str, kind: Kind, warn: Callable[[str], None], *, free: bool
) -> None:
    content = Unpacked(Descriptor(file, ExitStack(), lasting=True), name, _PIECE)
    try:
        while content.read():
            pass
    except InputCorrupt as error:
        rest = os.fstat(file).st_size - content.whole
        start = os.pread(file, min(rest, _MOST_BATCH), content.whole)
        if free and content.ended_early and rest <= _MOST_BATCH and is_block(kind, start):
            os.ftruncate(file, content.whole)
            warn(
                f"{name} ended within a batch, as after a full disk or a kill: its last {rest:,} "
                "bytes were removed"
            )
            return
        raise CannotOpen(
            f"Cannot append: {error}. A run that wrote it was killed, or the disk was full; what "
            "follows could not be read. Move it away, and save what can be read of it, as with "
            "zcat."
        ) from error


def _appends(descriptor: int) -> bool:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return False
    return sys.platform == "win32" or bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)


def _locked(file: int) -> bool:
    """Whether no other run appends to the file, as each holds a shared lock."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _last_line(file: int, size: int) -> bytes:
    """The bytes after the last newline, at most _MOST."""
    line = b""
    while len(line) < min(size, _MOST):
        start = max(0, size - len(line) - _PIECE)
        line = os.pread(file, size - len(line) - start, start) + line
        if b"\n" in line[:_PIECE]:
            return line[line.rindex(b"\n") + 1 :]
    return line


def _is_cut_off(line: bytes) -> bool:
    """Whether this is the beginning of a line of JSON. A number may have been a longer one."""
    if len(line) >= _MOST or line[0] not in _FIRST:
        return False
    try:
        json_value(line)
    except NotAValue:
        return True
    return line[0] not in b'{["'
