"""Objects by their URLs, such as `s3://bucket/name`, read through fsspec.

A file of fsspec blocks while it waits for the network, so a thread opens it and makes each read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from errno import EIO
from hashlib import sha256
from importlib import import_module
from typing import Any

from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    InputCorrupt,
    MissingExtra,
)
from penstock.streams.base.extras import require
from penstock.streams.io.compression import MAGIC_SIZE, Kind, Unpacked
from penstock.streams.io.descriptor import Threaded
from penstock.streams.runtime.context import Run

__all__ = ["Object", "UnpackedObject", "check_url"]

# Bytes of one read at least: each is made by a thread of its own.
_PIECE = 256 * 1024

# What servers say of a version, and `ukey` of some file systems (that of HTTP) leaves out.
_VERSIONS = ("ETag", "Content-MD5", "Digest", "Last-Modified")


def check_url(url: str) -> None:
    """Raise MissingExtra without fsspec or the driver of the URL, BuildError for a database, for a
    pattern and for a scheme that fsspec does not know."""
    if url.lower().startswith(("sqlite:", "postgresql:", "postgres:")):
        raise BuildError(
            f"{redacted(url)}: this reads lines, and a database has rows, which have no position "
            "in a file: a table is read by read_table(), an ordinary one with from_id="
        )
    if "*" in url:
        raise BuildError(
            f"{url}: a pattern of URLs is not searched for. Give a list, as by "
            "`files, pattern = fsspec.url_to_fs(url)` and "
            "`[files.unstrip_protocol(name) for name in sorted(files.glob(pattern))]`"
        )
    require("fsspec", f"{url}: URLs are read through fsspec", "objects")
    # The links of a chain, as in `simplecache::s3://bucket/name`.
    for link in url.split("::"):
        scheme = link.partition("://")[0]
        try:
            import_module("fsspec").get_filesystem_class(scheme)
        except ImportError as error:
            raise MissingExtra(f"{url}: {scheme}:// needs one more package: {error}") from error
        except ValueError as error:
            raise BuildError(f"{url}: fsspec does not know {scheme}://") from error


class Object(Threaded):
    """The bytes of an object. Memory: what fsspec reads ahead, by default 5 MiB or a few.

    `inode`, `version`, `head`, `before` and `place` are what a position asks of it; they, and
    `size`, are known when it is `opened`. `version` is the `ukey` of fsspec, made of a checksum,
    an ETag or the time of the last change, whichever the store has.
    """

    version = ""

    def __init__(self, url: str, own: ExitStack, run: Run, ready: Callable[[], None]) -> None:
        super().__init__(-1, own, run, ready)
        self._url = url
        self._file: Any = None
        self._total: int | None = None
        self._head = b""
        # Bytes that were read and not asked for yet.
        self._ahead = b""
        self.lasting = True
        self.inode = int.from_bytes(sha256(url.encode()).digest()[:6], "big")

    def opened(self) -> bool:
        """Whether it is open; if not, `ready` will be called. Raises CannotOpen."""
        if self._file is None:
            found = self._call(self._open)
            if found is None:
                return False
            self._file, self._total, self.version, self._head = found
        return True

    def _open(self) -> tuple[Any, int | None, str, bytes]:
        try:
            files, path = import_module("fsspec").url_to_fs(self._url)
            # What was listed before it was replaced.
            files.invalidate_cache()
            file = files.open(path, "rb")
            self._own.callback(file.close)
            info = files.info(path)
            size: int | None = info.get("size")
            versions = [files.ukey(path), size, *(info[name] for name in _VERSIONS if name in info)]
            # Where a server has no ranges, no byte can be read twice.
            head: bytes = b"" if size is None else file.read(MAGIC_SIZE)
        except Exception as error:
            raise CannotOpen(f"Cannot read {self._url}: {_reason(error)}.") from error
        return file, size, " ".join(map(str, versions)), head

    def read(self, size: int) -> bytes | None:
        if not self._ahead:
            data = self._call(self._piece, self._read, max(size, _PIECE))
            if not data:
                return data
            self._ahead = data
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        self._read += len(data)
        return data

    def _piece(self, start: int, size: int) -> bytes:
        file = self._file
        try:
            if file.tell() != start:
                file.seek(start)
            data: bytes = file.read(size)
        except OSError:
            raise
        except Exception as error:
            # Whatever the driver raises: of its HTTP client, of its SDK.
            raise OSError(EIO, f"{type(error).__name__}: {error}", self._url) from error
        if not data and self._total is not None and start < self._total:
            raise InputCorrupt(f"{self._url} ends at byte {start:,} of {self._total:,}")
        return data

    def sizes(self) -> tuple[int, int | None]:
        return self._read, self._total

    @property
    def size(self) -> int:
        """Raises CannotOpen if the server does not say it."""
        if self._total is None:
            raise CannotOpen(
                f"Cannot keep a position in {self._url}: its server does not say how long it is, "
                "and so cannot give a part of it."
            )
        return self._total

    def head(self) -> bytes:
        return self._head

    def before(self, offset: int) -> bytes:
        return b""

    def place(self, offset: int) -> None:
        self._read = offset


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        # Over HTTP, also of a server that does not answer.
        cause = error.__cause__
        why = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        return f"there is no such object{why}"
    return f"{type(error).__name__}: {str(error).rstrip('.')}"


class UnpackedObject(Unpacked):
    """The same as of a file. `opened`, as of `open_input`, is called when the object is open."""

    def __init__(
        self,
        raw: Object,
        name: str,
        size: int,
        opened: Callable[[Object], Kind | None] | None,
    ) -> None:
        super().__init__(raw, name, size, from_start=opened is None)
        self._object = raw
        self._opened = opened
        self.read = self._begin

    def _begin(self) -> bytes | None:
        if not self._object.opened():
            return None
        kind = None if self._opened is None else self._opened(self._object)
        self.choose(kind, from_start=self._opened is None)
        return self.read()
