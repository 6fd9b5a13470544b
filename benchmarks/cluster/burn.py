"""Burn CPU seconds for a number of jobs, and print the jobs per second."""

from __future__ import annotations

import sys
import time

__all__ = ["burn"]


def burn(seconds: float) -> None:
    """Use so much of the processor, whoever else uses it meanwhile."""
    end = time.thread_time() + seconds
    while seconds and time.thread_time() < end:
        pass


if __name__ == "__main__":
    each, count = float(sys.argv[1]), int(sys.argv[2])
    began = time.perf_counter()
    for _ in range(count):
        burn(each)
    print(count / (time.perf_counter() - began))
