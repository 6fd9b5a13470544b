"""The child processes of a process, on Linux."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["children_of", "wait_until_gone"]


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def wait_until_gone(processes: Sequence[int]) -> None:
    """Until they have ended and somebody has waited for them."""
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)
