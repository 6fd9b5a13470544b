"""Growing files, followed by name through rotation, as `tail -F` does, without losing a line.

Who writes a log goes on writing into the old file for a while after it was renamed (logrotate's
`create` tells it later), so a file is read until another one has its name *and* it has been quiet
for a time (as `rotate_wait` of fluentd). Files that have had the name meanwhile wait, open, in
their order. A file that was emptied or written anew, as by `copytruncate`, is recognized by the
bytes before the place up to which it was read, and read from its start.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable

from penstock.streams.base import clock
from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.compression import MAGIC_SIZE, compression_of
from penstock.streams.io.paths import OPEN_FLAGS
from penstock.streams.io.reader import CHUNK
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.timer import Timer

__all__ = ["QUIET", "Following"]

# Seconds between two looks at the files. Chosen: a quarter of what `tail` does; no portable call
# reports a growing file on every file system.
_INTERVAL = 0.25

QUIET = 5.0
"""Seconds for which a file that has lost its name must not grow before the next one is begun.

Chosen: the same as fluentd's; a program that logs reopens its file within one or two.
"""

# Bytes before the place up to which a file was read, by which it is recognized.
_CHECKED = 1024


class _File:
    """`tail` are the last bytes that were `read`; it has not grown, with this name or without it,
    `since` a time of the loop's clock."""

    def __init__(self, descriptor: int, since: float, size: int) -> None:
        self.descriptor = descriptor
        self.since = since
        self.size = size
        self.begun = False
        self.read = 0
        self.tail = b""

    def holds(self, other: os.stat_result) -> bool:
        return os.path.samestat(os.fstat(self.descriptor), other)

    @property
    def is_rewritten(self) -> bool:
        """Whether what was read of it is no longer in it."""
        tail = self.tail
        return os.pread(self.descriptor, len(tail), self.read - len(tail)) != tail


class Following:
    """Reads a growing file, and those that take its name later, one after another.

    `read` returns b"" where one file ends and another begins, and None where nothing is to be read
    yet. A file that does not exist yet is waited for. `opened` is called with the descriptor of
    each file when it is begun, and returns where. `earlier` are descriptors of files to be read
    first, which had the name; the last may have it still. With `ends` it has `ended` at the end of
    the last file. Memory: a descriptor for each file that had the name and is not read yet.
    """

    def __init__(
        self,
        name: str,
        run: Run,
        info: StageInfo,
        ready: Callable[[], None],
        opened: Callable[[int], int] | None = None,
        earlier: Iterable[int] = (),
        *,
        ends: bool = False,
    ) -> None:
        self._name = name
        self._run = run
        self._ready = ready
        self._opened = opened
        self._ends = ends
        # Whether nothing follows what was read.
        self.ended = False
        self._timer = Timer(run, info, self._look_again)
        # The file that is read, then those that had its name after it, up to the one that has it.
        self._files: deque[_File] = deque()
        # Why the file of that name cannot be read, if another one is read meanwhile.
        self._error: CannotOpen | None = None
        for descriptor in earlier:
            self._files.append(self._earlier(descriptor))
        for file in list(self._files)[-2:]:
            # Its writer may not know yet that it has lost its name.
            file.since = run.now()
        self.rotated = self.emptied = 0
        if not self._look() and not ends:
            run.errors.warn(f"{name} does not exist yet: waiting for it.")
        try:
            if self._error is None and self._files:
                self._begin(self._files[0])
        except BaseException:
            self.close()
            raise
        self._timer.set(_INTERVAL)

    def _earlier(self, descriptor: int) -> _File:
        """A file that had the name before; it was not changed or renamed since it was."""
        status = os.fstat(descriptor)
        changed = max(status.st_mtime, status.st_ctime)
        since = self._run.now() - max(0.0, clock.wall() - changed)
        return _File(descriptor, since, status.st_size)

    def _look_again(self) -> None:
        self._timer.set(_INTERVAL)
        self._look()
        self._ready()

    def _look(self) -> bool:
        """Open the file that has the name, if that is another one; note which files grow.

        Also while nothing is requested: two rotations may come before the next request.
        """
        files, now = self._files, self._run.now()
        for file in files:
            size = os.fstat(file.descriptor).st_size
            if size != file.size:
                file.size, file.since = size, now
        try:
            if files and files[-1].holds(os.stat(self._name)):
                self._error = None
                return True
            descriptor = os.open(self._name, OPEN_FLAGS)
        except FileNotFoundError:
            # Moved away: its successor is not there yet.
            return False
        except OSError as error:
            self._error = CannotOpen(f"Cannot read {self._name}: {error.strerror}.")
            self._error.__cause__ = error
            return True
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            self._error = CannotOpen(f"Cannot follow {self._name}: it is not a regular file.")
            return True
        if files:
            files[-1].since = now
        files.append(_File(descriptor, now, status.st_size))
        self._error = None
        return True

    def _begin(self, file: _File) -> None:
        file.begun = True
        kind = compression_of(os.pread(file.descriptor, MAGIC_SIZE, 0))
        if kind is not None:
            raise CannotOpen(f"Cannot follow {self._name}: it is compressed ({kind}).")
        if self._opened is None:
            os.lseek(file.descriptor, 0, os.SEEK_SET)
            file.read = 0
        else:
            file.read = self._opened(file.descriptor)
        start = max(0, file.read - _CHECKED)
        file.tail = os.pread(file.descriptor, file.read - start, start)

    def read(self) -> bytes | None:
        """The next bytes. Raises CannotOpen and OSError."""
        if not self._files:
            self._look()
        if self._files:
            return self._read_on(self._files[0])
        if self._error is not None:
            raise self._error
        return None

    def _read_on(self, file: _File) -> bytes | None:
        if not file.begun:
            self._begin(file)
        elif file.is_rewritten:
            self._say_rewritten(file)
            file.begun = False
            return b""
        data = os.read(file.descriptor, CHUNK)
        if data:
            file.read += len(data)
            file.tail = (file.tail + data[-_CHECKED:])[-_CHECKED:]
            if file.read > file.size:
                file.size, file.since = file.read, self._run.now()
            return data
        if self._ends and len(self._files) == 1:
            self.ended = True
            return b""
        if self._run.now() - file.since < QUIET:
            return None
        if len(self._files) > 1:
            os.close(file.descriptor)
            self._files.popleft()
            self.rotated += 1
            return b""
        if self._error is not None:
            raise self._error
        return None

    def _say_rewritten(self, file: _File) -> None:
        self.emptied += 1
        self._run.errors.warn(
            f"{self._name} was emptied or written anew after {file.read:,} bytes of it were read: "
            "it is read from its start. What was appended in the last moments before, and not read "
            "yet, is lost, unless a copy was made of it, as copytruncate of logrotate does."
        )

    def sizes(self) -> tuple[int, int | None]:
        """The bytes read of the present file, and those in it, now; None while there is none."""
        if not self._files:
            return 0, None
        file = self._files[0]
        return file.read, os.fstat(file.descriptor).st_size

    def close(self) -> None:
        self._timer.cancel()
        while self._files:
            os.close(self._files.popleft().descriptor)
