"""What a file prints while it is loaded, when it is not known yet what standard output is for."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["kept_back"]


@contextmanager
def kept_back() -> Generator[Callable[[bool], None]]:
    """Inside, what is printed is kept until the given function is called, or an error leaves.

    The function says whether it is for standard error. A terminal gets all at once.
    """
    before: Any = sys.stdout
    if not isinstance(sys.stdout, io.TextIOWrapper) or before.isatty():
        yield lambda _: None
        return
    kept = _Kept()
    text = io.TextIOWrapper(
        io.BufferedWriter(kept), before.encoding, before.errors, line_buffering=True
    )
    sys.stdout = text

    def write_out(to_standard_error: bool = False) -> None:
        if sys.stdout is text:
            sys.stdout = before
        text.flush()
        stream: Any = sys.stderr if to_standard_error else before
        if kept.data and stream is not None:
            # Without a buffer it may write a part.
            rest = memoryview(kept.data)
            while rest:
                rest = rest[stream.buffer.write(rest) :]
            stream.flush()
        kept.data = None

    try:
        yield write_out
    except BaseException:
        write_out()
        raise


class _Kept(io.RawIOBase):
    """Keeps what is written, and later passes on what the file's own objects still write here."""

    data: bytearray | None = bytearray()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any, /) -> int:
        if self.data is None:
            return os.write(1, data)
        self.data = self.data + data
        return len(data)
