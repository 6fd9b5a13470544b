"""Read and write gzip, zstd, bzip2 and xz as a stream, in bounded memory.

Several members, frames or streams in a row are read as one, as the usual tools do.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeGuard

from penstock.streams.base.errors import BuildError, CannotOpen, InputCorrupt
from penstock.streams.base.extras import missing_extra
from penstock.streams.io.descriptor import Descriptor

__all__ = [
    "MAGIC_SIZE",
    "PLAIN",
    "Compressor",
    "Kind",
    "Unpacked",
    "check_suffix",
    "compression_by_name",
    "compression_of",
    "compressor",
    "is_block",
    "is_read",
]

Kind = Literal["gzip", "zstd", "bzip2", "xz"]

# Bytes that a decompressor gets at once. While it still has output, the one for zstd does not say
# how many of them it has used, and a small file has few. Chosen: larger pieces are not read faster.
_PIECE = 16 * 1024

# 16 above the largest window: with the header and trailer of gzip (zlib's manual).
_GZIP_WINDOW = zlib.MAX_WBITS + 16

_SUFFIXES: dict[str, Kind] = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}

# Zeros may follow them: tapes (the manual of GNU gzip), the padding of xz (its format, 2.2).
_PADDED = ("gzip", "xz")

# The first bytes of a gzip member (RFC 1952, 2.3.1), of a zstd frame (RFC 8878, 3.1.1), of xz (its
# format, 2.1.1.1) and of bzip2, whose blocks have 100 to 900 KB. None begins a text in UTF-8 that
# anybody would write: each has a control character, or ten characters that are always the same.
_MAGIC: dict[bytes, Kind] = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    **{b"BZh%d1AY&SY" % size: "bzip2" for size in range(1, 10)},
}

# What Z_SYNC_FLUSH ends a block with (RFC 7692, 7.2.1).
_FLUSHED = b"\x00\x00\xff\xff"

# The bytes of a zstd frame up to its descriptor.
_ZSTD_DESCRIPTOR = 5

# How a batch of bzip2 or xz begins here, and hardly one of another program: blocks of 100 KB, where
# the default is 900; a CRC32 (its format, 2.1.1.2), where the default is a CRC64.
_BATCHES: dict[Kind, bytes] = {"bzip2": b"BZh1", "xz": b"\xfd7zXZ\x00\x00\x01"}

# Other formats are recognized, so that they are not taken for text.
_OTHER_SUFFIXES = {
    ".lzma": "lzma",
    ".lz4": "lz4",
    ".7z": "7z",
    ".zip": "zip",
    ".br": "brotli",
    ".Z": "compress",
}

_OTHER_MAGIC = {
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"PK\x03\x04": "zip",
    b"\x1f\x9d": "compress",
    b"\x78\x9c": "zlib",
}

_ADVICE = (
    "Only gzip, zstd, bzip2 and xz are read and written (.gz, .zst, .bz2, .xz): decompress it "
    "first, as by `unzip -p`, or compress what is written by another program."
)

_ALL_MAGIC: dict[bytes, str] = {**_MAGIC, **_OTHER_MAGIC}

MAGIC_SIZE = max(map(len, _ALL_MAGIC))
"""The bytes by which every compression is recognized."""


class Unpacked:
    """Reads an input, decompressed if it is compressed.

    The suffix of `name` decides; for other names the first bytes do, unless the input is not read
    `from_start`; or `kind` is given. `read` returns at most about `size` bytes, and raises
    InputCorrupt for data that is damaged or ends early, and MissingExtra for zstd if its package is
    not installed.
    Memory: one read of the raw input, and `size` bytes.
    """

    def __init__(
        self,
        raw: Descriptor,
        name: str,
        size: int,
        *,
        from_start: bool = True,
        kind: Kind | None = None,
    ) -> None:
        self._raw = raw
        self._name = name
        self._size = size
        # Bytes that were read and not yet passed on.
        self._pending = b""
        # How many bytes a decompressor has that may still give output.
        self._held = 0
        self._stopped = False
        self.whole = 0
        """How many bytes of the raw input the members or frames have that ended."""
        self.ended_early = False
        """Whether the input has ended within a member or a frame that is not damaged before."""
        self.ended = True
        """Whether nothing follows when `read` has returned b""."""
        self.lasting = raw.lasting
        self.read: Callable[[], bytes | None]
        self.choose(kind, from_start=from_start)

    def choose(self, kind: Kind | None, *, from_start: bool) -> None:
        """Decide how the next `read` begins; see the class."""
        kind = kind or compression_by_name(self._name)
        if kind is None:
            self.read = self._first if from_start else self._plain
        else:
            self.read = self._unpack(kind)

    def sizes(self) -> tuple[int, int | None]:
        """The bytes of the raw input, as of a `Descriptor`; those passed on count as read."""
        read, total = self._raw.sizes()
        return read - len(self._pending) - self._held, total

    def stop(self) -> None:
        """Read no more of the input; `read` still returns what was read already."""
        self._stopped = True
        self._raw.close()

    def close(self) -> None:
        """Read no more."""
        self._raw.close()

    def _more(self, size: int) -> bytes | None:
        return b"" if self._stopped else self._raw.read(size)

    def _plain(self) -> bytes | None:
        return self._more(self._size)

    def _first(self) -> bytes | None:
        """Read until the first bytes show whether the input is compressed."""
        while True:
            data = self._plain()
            if data is None:
                return None
            head = self._pending + data
            kind = compression_of(head)
            if kind is not None and is_read(kind):
                self._pending = head
                self.read = self._unpack(kind)
                return self.read()
            if kind is not None:
                raise CannotOpen(f"Cannot read {self._name}: it is compressed ({kind}). {_ADVICE}")
            if not data or not any(magic.startswith(head) for magic in _ALL_MAGIC):
                self._pending = b""
                self.read = self._plain
                return head
            self._pending = head

    def _unpack(self, kind: Kind) -> Callable[[], bytes | None]:
        make, failure = _unpackers(kind, self._name)
        # Any: a decompressor of zstd's package, or one like it.
        frame: Any = None
        # Whether a member has ended: it may be padded, as on tapes (the manual of GNU gzip).
        padded = False

        def read() -> bytes | None:
            nonlocal frame, padded
            while True:
                if not self._pending and (frame is None or frame.needs_input):
                    data = self._more(_PIECE)
                    if data is None:
                        return None
                    if not data:
                        if frame is not None and not self._stopped:
                            self.ended_early = True
                            raise InputCorrupt(f"{self._name} is a truncated {kind} file")
                        return b""
                    self._pending = data
                if frame is None:
                    if padded:
                        self._pending = self._pending.lstrip(b"\0")
                        if not self._pending:
                            continue
                    frame = make()
                piece, self._pending = self._pending[:_PIECE], self._pending[_PIECE:]
                try:
                    output: bytes = frame.decompress(piece, self._size)
                except failure as error:
                    raise InputCorrupt(
                        f"{self._name} is not a valid {kind} file: {error}"
                    ) from error
                if frame.eof or frame.needs_input:
                    self._held = 0
                elif kind == "gzip":
                    self._held = frame.held
                elif piece:
                    self._held = len(piece)
                if frame.eof:
                    self._pending = frame.unused_data + self._pending
                    frame = None
                    padded = kind in _PADDED
                    self.whole = self.sizes()[0]
                if output:
                    return output

        return read


class _Gunzip:
    """A gzip member. Input whose output has no room yet is kept, as by zstd's decompressor."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def held(self) -> int:
        """How many bytes of its input it has not used."""
        return len(self._stream.unconsumed_tail)

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _unpackers(kind: Kind, name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """The decompressor of a member or frame, and the errors it raises."""
    if kind == "gzip":
        return _Gunzip, zlib.error
    # Imported where they are used: a plain run does not.
    if kind == "bzip2":
        from bz2 import BZ2Decompressor

        return BZ2Decompressor, OSError
    if kind == "xz":
        from lzma import LZMADecompressor, LZMAError

        return LZMADecompressor, LZMAError
    package = _zstd(name)
    return package.ZstdDecompressor, package.ZstdError


class Compressor(NamedTuple):
    """Compresses blocks so that each can be read back before the next one is written."""

    block: Callable[[bytes | bytearray], bytes | bytearray]
    """Its argument, compressed, to the last byte."""
    end: Callable[[], bytes]
    """What must follow the last block."""


def _unchanged(data: bytes | bytearray) -> bytes | bytearray:
    return data


PLAIN = Compressor(_unchanged, bytes)
"""Leaves data unchanged."""


def compressor(name: str, *, whole: bool = False) -> Compressor:
    """The compressor for a file of this name, PLAIN if its suffix names none.

    With `whole` each block is a member, a frame or a stream of its own, so that others may be
    written behind it at any time, also after a kill; small blocks are hardly compressed then. Those
    of bzip2 and xz always are, which have no point within up to which a reader surely gets all.
    """
    kind = compression_by_name(name)
    if kind == "gzip" and whole:
        return Compressor(partial(zlib.compress, wbits=_GZIP_WINDOW), bytes)
    if kind == "gzip":
        gzip = zlib.compressobj(wbits=_GZIP_WINDOW)

        def gzipped(data: bytes | bytearray) -> bytes:
            return gzip.compress(data) + gzip.flush(zlib.Z_SYNC_FLUSH)

        return Compressor(gzipped, gzip.flush)
    if kind == "zstd":
        package = _zstd(name)
        options = {package.CompressionParameter.checksum_flag: 1}
        if whole:
            return Compressor(partial(package.compress, options=options), bytes)
        zstd = package.ZstdCompressor(options=options)
        return Compressor(partial(zstd.compress, mode=zstd.FLUSH_BLOCK), zstd.flush)
    # Imported where they are used: a plain run does not.
    if kind == "bzip2":
        import bz2

        return Compressor(partial(bz2.compress, compresslevel=1), bytes)
    if kind == "xz":
        import lzma

        # The fastest: a batch fits into the smallest window.
        return Compressor(partial(lzma.compress, check=lzma.CHECK_CRC32, preset=0), bytes)
    return PLAIN


def is_block(kind: Kind, start: bytes) -> bool:
    """Whether this is the start of a member or frame that a `Compressor` with `whole` has made.

    Others may be long, and have been flushed within. False if it is not sure.
    """
    if kind == "gzip":
        # Without a name and a time, which gzip's own command gives.
        head = zlib.compress(b"", wbits=_GZIP_WINDOW)[:8]
        return start[:8] == head[: len(start)] and _FLUSHED not in start
    if kind in _BATCHES:
        head = _BATCHES[kind]
        return start[: len(head)] == head[: len(start)]
    # What is compressed at once has its size in the header (RFC 8878, 3.1.1.1.1).
    return len(start) < _ZSTD_DESCRIPTOR or bool(start[_ZSTD_DESCRIPTOR - 1] & 0b1110_0000)


def check_suffix(name: str) -> None:
    """Raise MissingExtra if `name` needs a package that is not installed, BuildError if its suffix
    belongs to a compression that is neither read nor written."""
    if compression_by_name(name) == "zstd":
        _zstd(name)


def compression_of(first_bytes: bytes) -> str | None:
    """The compression of data that begins with `first_bytes`; MAGIC_SIZE of them suffice."""
    return next((kind for magic, kind in _ALL_MAGIC.items() if first_bytes.startswith(magic)), None)


def is_read(kind: str) -> TypeGuard[Kind]:
    """Whether data of this compression can be read."""
    return kind in _SUFFIXES.values()


def compression_by_name(name: str) -> Kind | None:
    """The compression of a file of this name, None if its suffix names none.

    Raises BuildError for a compression that is neither read nor written.
    """
    for suffix, other in _OTHER_SUFFIXES.items():
        if name.endswith(suffix):
            raise BuildError(f"{name} has the name of a file compressed by {other}. {_ADVICE}")
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


# Any: the package may be absent when types are checked.
def _zstd(name: str) -> Any:
    """The zstd module of Python 3.14's standard library, or its backport."""
    package = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(package)
    except ImportError as error:
        raise missing_extra(
            f"{name} is compressed with zstd, which needs one more package", "zstd"
        ) from error
