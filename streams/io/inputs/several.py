"""Several files that are read one after another, as one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.streams.io.compression import Unpacked

__all__ = ["Several"]


class Several:
    """Reads files by their names, in order; each is opened by `opening` when it is begun.

    `read` returns b"" where a file ends, and has `ended` then if that was the last one. One file is
    open at a time. Raises what `opening` and the files raise.
    """

    def __init__(self, names: Sequence[str], opening: Callable[[str], Unpacked]) -> None:
        self._names = iter(names)
        self._left = len(names)
        self._opening = opening
        self._file: Unpacked | None = None
        # The bytes read of the files that have ended.
        self._before = 0
        self.ended = False

    @property
    def lasting(self) -> bool:
        """Whether what was read of the present file can be read again."""
        return self._file is None or self._file.lasting

    def read(self) -> bytes | None:
        """The next bytes of the present file, or of the next one."""
        if self._file is None:
            self._file = self._opening(next(self._names))
            self._left -= 1
        data = self._file.read()
        if data == b"":
            self._before += self._file.sizes()[0]
            self._file.close()
            self._file = None
            self.ended = not self._left
        return data

    def sizes(self) -> tuple[int, int | None]:
        """The bytes read, and None for those in all: later files may not be there yet."""
        now = 0 if self._file is None else self._file.sizes()[0]
        return self._before + now, None

    def stop(self) -> None:
        """Begin no other file; `read` still returns what was read of the present one."""
        self._left = 0
        if self._file is not None:
            self._file.stop()

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._file.close()
