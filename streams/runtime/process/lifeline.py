"""Child processes that end with their parent, even when it is killed.

The kernel kills a child when its parent dies, but only on Linux. Elsewhere a thread of the child
waits for the parent's end.

Run as a script, with only the standard library, this file makes the request to the kernel and then
executes another program.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

__all__ = [
    "bound",
    "end_with_parent",
    "end_with_pipe",
    "end_with_this_process",
    "ending_of",
]

# prctl(2).
_PR_SET_PDEATHSIG = 1


def bound(command: Sequence[str]) -> list[str]:
    """A command that does the same, and is killed by the kernel when the calling thread ends.

    It keeps its process number. Where the kernel cannot do that, `command` is returned unchanged.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def ending_of(status: int) -> str:
    """How a process ended, in words. `status` is its exit status, or minus a signal's number."""
    if status >= 0:
        return f"exit status {status}"
    if -status == getattr(signal, "SIGKILL", None):
        return "SIGKILL, as the system sends when memory runs out"
    return f"signal {-status}"


def end_with_parent() -> None:
    """End this process, started by multiprocessing, when its parent ends."""
    _ask_the_kernel()
    threading.Thread(target=_end_after_parent, name="penstock parent", daemon=True).start()


def end_with_pipe(pipe: int) -> None:
    """End this process when its parent ends, which has the other end of `pipe`."""
    _ask_the_kernel()
    arguments = (os.dup(pipe),)
    threading.Thread(None, _end_after_pipe, "penstock parent", arguments, daemon=True).start()


def end_with_this_process() -> None:
    """Have the kernel end a process that was just forked when the process that forked it ends.

    Only on Linux; elsewhere it has to notice by itself.
    """
    _ask_the_kernel()


def _end_after_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end_after_pipe(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(1)


def _ask_the_kernel() -> None:
    """Have the kernel kill this process when the thread that started it ends, if it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(parent: int, command: list[str]) -> None:
    _ask_the_kernel()
    # Its parent ends it by this one, even if itself it was started to ignore it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getppid() == parent:
        os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
