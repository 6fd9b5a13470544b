"""Inputs: files, pipes, sockets and terminals, read to their end; and growing files, followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from penstock.streams.errors import CannotOpen
from penstock.streams.io.compression import Unpacked
from penstock.streams.io.descriptor import non_blocking
from penstock.streams.io.paths import OPEN_FLAGS, Path, actual_input, input_name, opening
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["CHUNK", "Following", "open_input"]

# Bytes of one read. Chosen: four times what a pipe holds; larger chunks parse no faster.
CHUNK = 256 * 1024

# Seconds between two polls of a file that has nothing new. Chosen: a quarter of what `tail` does;
# no portable call reports a growing file on every file system.
_INTERVAL = 0.25


def open_input(
    path: Path,
    run: Run,
    ready: Callable[[], None],
    opened: Callable[[int], object] | None = None,
) -> Unpacked:
    """Open `path`; `ready` is called when an input that had nothing to read has something.

    What is compressed by gzip or zstd is decompressed. `opened` is called with the descriptor
    before anything is read, and may place it elsewhere than at the start. Raises CannotOpen, and
    what `opened` raises.
    """
    path, name = actual_input(path), input_name(path)
    with opening(path, name, 0, "read") as (descriptor, own):
        if opened is not None:
            opened(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise CannotOpen(f"Cannot read {name}: it is a directory. Name a file in it.")
        raw = non_blocking(descriptor, own, run, ready, writing=False)
    return Unpacked(raw, name, CHUNK, from_start=opened is None)


class Following:
    """Follows a growing file, also when it is truncated or replaced, as `tail -F` does.

    `read` returns b"" where one file ends and another begins. A file that does not exist yet is
    waited for. It counts as truncated when it is shorter than what was read of it: one that is
    rewritten and longer again between two polls is not noticed, as with `tail`.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        info: StageInfo,
        ready: Callable[[], None],
        opened: Callable[[int], int] | None = None,
    ) -> None:
        self._name = name
        self._timer = Timer(run, info, ready)
        self._opened = opened
        self._descriptor: int | None = None
        self._read = 0
        if not self._open():
            run.errors.warn(f"{name} does not exist yet: waiting for it.")

    def _open(self) -> bool:
        try:
            descriptor = os.open(self._name, OPEN_FLAGS)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CannotOpen(f"Cannot read {self._name}: {error.strerror}.") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CannotOpen(f"Cannot follow {self._name}: it is not a regular file.")
        self._descriptor = descriptor
        self._read = 0 if self._opened is None else self._opened(descriptor)
        return True

    def read(self) -> bytes | None:
        if self._descriptor is not None or self._open():
            data = self._read_on()
            if data is not None:
                return data
        if not self._timer.is_set:
            self._timer.set(_INTERVAL)
        return None

    def _read_on(self) -> bytes | None:
        descriptor = self._descriptor
        assert descriptor is not None
        replaced = self._is_replaced(descriptor)
        # Read after the poll: what the writer appended last to a replaced file is not missed.
        data = os.read(descriptor, CHUNK)
        if data:
            self._read += len(data)
            return data
        if replaced or os.fstat(descriptor).st_size < self._read:
            os.close(descriptor)
            self._descriptor = None
            return b""
        return None

    def _is_replaced(self, descriptor: int) -> bool:
        try:
            found = os.stat(self._name)
        except FileNotFoundError:
            # Moved away: its successor is not there yet.
            return False
        return not os.path.samestat(found, os.fstat(descriptor))

    def sizes(self) -> tuple[int, int | None]:
        """The bytes read of the present file, and those in it, now; None while there is none."""
        if self._descriptor is None:
            return 0, None
        return self._read, os.fstat(self._descriptor).st_size

    def close(self) -> None:
        self._timer.cancel()
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
