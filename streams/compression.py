"""Read and write gzip (.gz) and zstd (.zst) files as a stream, in bounded memory.

Several members or frames in a row are read as one stream, as the usual tools do.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from streams.errors import InputCorrupt, MissingExtra

__all__ = ["Compressor", "check_suffix", "compressor", "decompressing"]

# Four compressed bytes can stand for 128 KiB, the most of one zstd block (RFC 8878, 3.1.1.2),
# and the package has no limit of its own: at this many at a time no more than 32 MiB come out.
_PIECE = 1024


def decompressing(descriptor: int, name: str, size: int) -> Callable[[], bytes] | None:
    """A function that reads decompressed bytes, about `size` of them, b"" at the end.

    None when `name` has no suffix that asks for it. The function raises InputCorrupt.
    """
    if name.endswith(".gz"):
        return _gunzipping(descriptor, name, size)
    if name.endswith(".zst"):
        return _Unzstd(descriptor, name, size).read
    return None


def _gunzipping(descriptor: int, name: str, size: int) -> Callable[[], bytes]:
    # Imported here: slow to import, and most inputs are not compressed.
    import gzip

    raw = open(descriptor, "rb", closefd=False)  # noqa: SIM115 - the descriptor has an owner
    file = gzip.GzipFile(fileobj=raw, mode="rb")

    def read() -> bytes:
        try:
            return file.read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputCorrupt(f"{name} is no whole gzip file: {error}") from error

    return read


class _Unzstd:
    def __init__(self, descriptor: int, name: str, size: int) -> None:
        self._descriptor = descriptor
        self._name = name
        self._size = size
        package = _zstandard(name)
        self._error: type[Exception] = package.ZstdError
        self._begin: Callable[[], Any] = package.ZstdDecompressor().decompressobj
        # Any: the package's own type, which is not there when types are checked without it.
        self._frame: Any = None
        self._raw = memoryview(b"")

    def read(self) -> bytes:
        output = bytearray()
        while len(output) < self._size:
            if not self._raw:
                self._raw = memoryview(os.read(self._descriptor, self._size))
                if not self._raw:
                    if self._frame is not None:
                        raise InputCorrupt(f"{self._name} is no whole zstd file: it ends early")
                    break
            output += self._decompress()
        return bytes(output)

    def _decompress(self) -> bytes:
        piece, self._raw = self._raw[:_PIECE], self._raw[_PIECE:]
        if self._frame is None:
            self._frame = self._begin()
        try:
            output: bytes = self._frame.decompress(piece)
        except self._error as error:
            raise InputCorrupt(f"{self._name} is no whole zstd file: {error}") from error
        if self._frame.eof:
            unused: bytes = self._frame.unused_data
            self._frame = None
            if unused:
                self._raw = memoryview(unused + bytes(self._raw))
        return output


class Compressor(Protocol):
    """Compresses blocks, each of which can be read back before the next one is written."""

    def block(self, data: bytes | bytearray, /) -> bytes:
        """`data`, compressed, to its last byte."""
        ...

    def end(self) -> bytes:
        """What must follow the last block."""
        ...


def compressor(name: str) -> Compressor | None:
    """What compresses a file of this name, None if its suffix asks for nothing."""
    if name.endswith(".gz"):
        return _Gzip()
    if name.endswith(".zst"):
        return _Zstd(name)
    return None


class _Gzip:
    def __init__(self) -> None:
        # 16 above the largest window: with the header and trailer of gzip (zlib's manual).
        self._stream = zlib.compressobj(wbits=zlib.MAX_WBITS + 16)

    def block(self, data: bytes | bytearray, /) -> bytes:
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self, name: str) -> None:
        package = _zstandard(name)
        # Any: the package's own type.
        self._stream: Any = package.ZstdCompressor(write_checksum=True).compressobj()
        self._block: int = package.COMPRESSOBJ_FLUSH_BLOCK

    def block(self, data: bytes | bytearray, /) -> bytes:
        compressed: bytes = self._stream.compress(data)
        rest: bytes = self._stream.flush(self._block)
        return compressed + rest

    def end(self) -> bytes:
        rest: bytes = self._stream.flush()
        return rest


def check_suffix(name: str) -> None:
    """Raise MissingExtra if `name` asks for a package that is not installed."""
    if name.endswith(".zst"):
        _zstandard(name)


# Any: the package may be absent when types are checked.
def _zstandard(name: str) -> Any:
    """The package that reads and writes `name`, a file that ends in .zst, or MissingExtra."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise MissingExtra(
            f"{name} is compressed with zstd, which needs one more package: "
            "pip install 'penstock[zstd]'"
        ) from error
