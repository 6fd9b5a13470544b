"""An open input in which a position is kept: a file on a disk, or an object by its URL."""

from __future__ import annotations

import os
import stat
from typing import Protocol

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.compression import MAGIC_SIZE

__all__ = ["CHECKED", "Opened", "OpenedFile"]

CHECKED = 1024
"""Bytes by which a file is recognized. Chosen: some lines of a log."""


class Opened(Protocol):
    """What a position asks of an input. `version` is empty for a file, which may grow; an object
    that has another version is another object. `inode` tells apart those that have one path."""

    inode: int
    version: str

    @property
    def size(self) -> int: ...

    def head(self) -> bytes:
        """The first bytes, which show how it is compressed."""
        ...

    def before(self, offset: int) -> bytes:
        """The last bytes before the offset, by which a file is recognized; an inode may be used
        again. Empty for an object, which its version tells."""
        ...

    def place(self, offset: int) -> None:
        """Read on from here."""
        ...


class OpenedFile:
    """A regular file, by its descriptor. Raises CannotOpen for anything else."""

    version = ""

    def __init__(self, descriptor: int, name: str) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CannotOpen(f"Cannot keep a position in {name}: it is not a regular file.")
        self._descriptor = descriptor
        self.inode = status.st_ino

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def head(self) -> bytes:
        return os.pread(self._descriptor, MAGIC_SIZE, 0)

    def before(self, offset: int) -> bytes:
        start = max(0, offset - CHECKED)
        return os.pread(self._descriptor, offset - start, start)

    def place(self, offset: int) -> None:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
