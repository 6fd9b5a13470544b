"""Read and write gzip and zstd as a stream, in bounded memory.

Several members or frames in a row are read as one stream, as the usual tools do.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Protocol

from penstock.streams.errors import InputCorrupt
from penstock.streams.extras import missing_extra

__all__ = [
    "Compressor",
    "Input",
    "Unpacked",
    "check_suffix",
    "compression_by_name",
    "compression_of",
    "compressor",
]

Kind = Literal["gzip", "zstd"]

# 16 above the largest window: with the header and trailer of gzip (zlib's manual).
_GZIP_WINDOW = zlib.MAX_WBITS + 16

_SUFFIXES: dict[str, Kind] = {".gz": "gzip", ".zst": "zstd"}

# The first bytes of a gzip member (RFC 1952, 2.3.1) and of a zstd frame (RFC 8878, 3.1.1). No
# text in UTF-8 begins with either.
_MAGIC: dict[bytes, Kind] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Input(Protocol):
    """An open input.

    `lasting` says that what was read can be read again: a file's lines wait on its disk.
    """

    lasting: bool

    def read(self) -> bytes | None:
        """Some bytes, b"" at the end, None when `ready` will be called for more."""

    def close(self) -> None:
        """Read no more."""


class Unpacked:
    """Reads an input, decompressed if it is compressed.

    A name that ends in .gz or .zst asks for it; otherwise the first bytes decide, unless the input
    is not read `from_start`. `read` returns
    about `size` bytes at most, and raises InputCorrupt for what is damaged or ends early, and
    MissingExtra for zstd where its package is not installed. Memory: one read of the raw input,
    and `size` bytes.
    """

    def __init__(self, raw: Input, name: str, size: int, *, from_start: bool = True) -> None:
        self._raw = raw
        self._name = name
        self._size = size
        # Bytes that were read and not yet passed on.
        self._pending = b""
        self._stopped = False
        self.lasting = raw.lasting
        kind = compression_by_name(name)
        self.read: Callable[[], bytes | None]
        if kind is None:
            self.read = self._first if from_start else self._more
        else:
            self.read = self._unpack(kind)

    def stop(self) -> None:
        """Read nothing more of the input; what was read of it already still comes."""
        self._stopped = True
        self._raw.close()

    def close(self) -> None:
        """Read no more."""
        self._raw.close()

    def _more(self) -> bytes | None:
        return b"" if self._stopped else self._raw.read()

    def _first(self) -> bytes | None:
        """Read until the first bytes say what this is."""
        while True:
            data = self._more()
            if data is None:
                return None
            head = self._pending + data
            kind = compression_of(head)
            if kind is not None:
                self._pending = head
                self.read = self._unpack(kind)
                return self.read()
            if not data or not any(magic.startswith(head) for magic in _MAGIC):
                self._pending = b""
                self.read = self._more
                return head
            self._pending = head

    def _unpack(self, kind: Kind) -> Callable[[], bytes | None]:
        make, failure = _unpackers(kind, self._name)
        frame: _Unpacker | None = None

        def read() -> bytes | None:
            nonlocal frame
            while True:
                if not self._pending and (frame is None or frame.needs_input):
                    data = self._more()
                    if data is None:
                        return None
                    if not data:
                        if frame is not None and not self._stopped:
                            raise InputCorrupt(f"{self._name} is a truncated {kind} file")
                        return b""
                    self._pending = data
                if frame is None:
                    frame = make()
                pending, self._pending = self._pending, b""
                try:
                    output = frame.decompress(pending, self._size)
                except failure as error:
                    raise InputCorrupt(
                        f"{self._name} is not a valid {kind} file: {error}"
                    ) from error
                if frame.eof:
                    self._pending = frame.unused_data
                    frame = None
                    if kind == "gzip":
                        # A member may be padded, as on tapes (the manual of GNU gzip).
                        self._pending = self._pending.lstrip(b"\0")
                if output:
                    return output

        return read


class _Unpacker(Protocol):
    """One member or frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gunzip:
    """A gzip member; input that has no room in the output yet is kept, as zstd's keeps it."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _unpackers(kind: Kind, name: str) -> tuple[Callable[[], _Unpacker], type[Exception]]:
    """The decompressor of a member or frame, and the errors it raises."""
    if kind == "gzip":
        return _Gunzip, zlib.error
    package = _zstd(name)
    return package.ZstdDecompressor, package.ZstdError


class Compressor(Protocol):
    """Compresses blocks, each of which can be read back before the next one is written."""

    def block(self, data: bytes | bytearray, /) -> bytes:
        """`data`, compressed, to its last byte."""
        ...

    def end(self) -> bytes:
        """What must follow the last block."""
        ...


def compressor(name: str) -> Compressor | None:
    """The compressor for a file of this name, None if its suffix names none."""
    kind = compression_by_name(name)
    if kind is None:
        return None
    return _Gzip() if kind == "gzip" else _Zstd(name)


class _Gzip:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(wbits=_GZIP_WINDOW)

    def block(self, data: bytes | bytearray, /) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self, name: str) -> None:
        package = _zstd(name)
        # Any: the package's own type.
        self._stream: Any = package.ZstdCompressor(
            options={package.CompressionParameter.checksum_flag: 1}
        )
        self._flush_block: Any = package.ZstdCompressor.FLUSH_BLOCK

    def block(self, data: bytes | bytearray, /) -> bytes:
        compressed: bytes = self._stream.compress(data, self._flush_block)
        return compressed

    def end(self) -> bytes:
        rest: bytes = self._stream.flush()
        return rest


def check_suffix(name: str) -> None:
    """Raise MissingExtra if `name` asks for a package that is not installed."""
    if compression_by_name(name) == "zstd":
        _zstd(name)


def compression_of(first_bytes: bytes) -> Kind | None:
    """How something is compressed that begins with `first_bytes`, of which four suffice."""
    return next((kind for magic, kind in _MAGIC.items() if first_bytes.startswith(magic)), None)


def compression_by_name(name: str) -> Kind | None:
    """The compression of a file of this name, None if its suffix names none."""
    return next((kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)), None)


# Any: the package may be absent when types are checked.
def _zstd(name: str) -> Any:
    """The zstd module: that of Python 3.14's standard library, or its backport."""
    package = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(package)
    except ImportError as error:
        raise missing_extra(
            f"{name} is compressed with zstd, which needs one more package", "zstd"
        ) from error
