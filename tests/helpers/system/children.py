"""The processes that a process has started, on Linux."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["children_of", "freeze", "wait_until_gone"]


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def wait_until_gone(processes: Sequence[int]) -> None:
    """Until they have ended and somebody has waited for them."""
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a child of this process, and wait until it stands still (or has ended).

    On a busy machine a process runs on for tens of milliseconds after the signal was sent.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
