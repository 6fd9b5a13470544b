"""Standard input and output, which belong to a pipeline alone while it uses them.

Meanwhile the descriptor 0 of the process is an empty file, and 1 is standard error. So no handler,
no program that it starts, no process that it forks and no library in C can read the pipeline's
input, or print between the lines of its output: they all use these numbers. The pipeline has a copy
of each, which no other program inherits.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

if sys.platform != "win32":
    import fcntl

__all__ = ["Taken", "keep", "standing_for", "taken", "write_out_of_c"]

# The copies of those that are taken, and how many have taken them.
_copies: dict[int, int] = {}
_takers: dict[int, int] = {}
# What `print` writes into, of those that were made to write out each line.
_by_line: list[Any] = []
# The streams that the program has read ahead, so that no pipeline can read the rest now.
_ahead: set[int] = set()
_lock = threading.Lock()


class Taken:
    """A standard stream, whose user reads or writes `descriptor` until this is closed or forgotten.

    Several may have taken it at once; the number is the program's own again after the last of them.
    One that is closed is left alone, and so are all on Windows. `for_good`: it is never given back,
    and what libraries in C have printed and not written out goes to standard error too.
    """

    def __init__(self, number: int, *, for_good: bool = False) -> None:
        self.descriptor = number
        self._number = number
        # A forked process has a copy of this object, and its parent's standard streams.
        self._owner = 0
        if sys.platform != "win32":
            with _lock, suppress(OSError):
                self.descriptor = _take(number, for_good=for_good)
                self._owner = 0 if for_good else os.getpid()

    @property
    def is_read_ahead(self) -> bool:
        """Whether `sys.stdin` has a part of it that the program has not used."""
        return self._number in _ahead

    def close(self) -> None:
        owner, self._owner = self._owner, 0
        if owner and owner == os.getpid():
            with _lock:
                _give_back(self._number)

    def __del__(self) -> None:
        # At the end of the process parts of this module may be gone, and nobody needs the stream.
        if not sys.is_finalizing():
            self.close()


@contextmanager
def taken(numbers: Iterable[int]) -> Generator[None]:
    """Inside the block these standard streams belong to those who take them."""
    with ExitStack() as own:
        for number in numbers:
            own.callback(Taken(number).close)
        yield


def keep(numbers: Iterable[int]) -> None:
    """Take these standard streams for as long as the process lasts."""
    for number in numbers:
        Taken(number, for_good=True)


def standing_for(number: int) -> int:
    """The descriptor that is now what this one was before it was taken."""
    return _copies.get(number, number)


if sys.platform != "win32":

    def _take(number: int, *, for_good: bool) -> int:
        """Raises OSError if it is closed."""
        if number not in _copies:
            if number == 1:
                _write_out(of_c=not for_good)
            # Above the standard streams, as others of them may be closed.
            copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
            _replace(number)
            _copies[number], _takers[number] = copy, 0
            if number == 1:
                _print_by_line()
            elif _has_read_ahead():
                _ahead.add(number)
        _takers[number] += 1
        return _copies[number]


def _give_back(number: int) -> None:
    _takers[number] -= 1
    if not _takers[number]:
        if number == 1:
            _write_out()
        _ahead.discard(number)
        copy = _copies.pop(number)
        os.dup2(copy, number)
        os.close(copy)
        while number == 1 and _by_line:
            with suppress(ValueError):
                _by_line.pop().reconfigure(line_buffering=False)


def _replace(number: int) -> None:
    if number == 1:
        with suppress(OSError):
            os.dup2(2, 1)
            return
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, number)
    os.close(null)


def _has_read_ahead() -> bool:
    """Whether `sys.stdin` has more than an empty file could give it."""
    here = threading.current_thread()
    if any(
        one is not here and not one.name.startswith("penstock") for one in threading.enumerate()
    ):
        # It may be waiting for input, and would not let us look.
        return False
    stream: Any = sys.stdin
    with suppress(Exception):
        if type(stream) is io.TextIOWrapper and stream.fileno() == 0:
            return bool(stream.read())
    return False


def _printing() -> list[Any]:
    """The streams that `print` writes into, if they end in standard output."""
    found: list[Any] = []
    streams: list[Any] = [sys.stdout, sys.__stdout__]
    for stream in streams:
        # It may be None, closed, or an object of the program.
        with suppress(Exception):
            if type(stream) is io.TextIOWrapper and stream.fileno() == 1 and stream not in found:
                found.append(stream)
    return found


def _write_out(*, of_c: bool = True) -> None:
    """Write out what was printed, while it still goes where it was meant to go."""
    for stream in _printing():
        with suppress(OSError, ValueError):
            stream.flush()
    if of_c:
        write_out_of_c()


def write_out_of_c() -> None:
    """The same for libraries in C."""
    # Not all streams by `fflush(NULL)`: it would wait for a thread that reads one of them.
    with suppress(Exception):
        # Imported here: slow to import.
        import ctypes

        library: Any = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        library.fflush(ctypes.c_void_p.in_dll(library, name))


def _print_by_line() -> None:
    """Let `print` beside a pipeline write line by line, as to a log."""
    for stream in _printing():
        if not stream.line_buffering:
            stream.reconfigure(line_buffering=True)
            _by_line.append(stream)
