from __future__ import annotations

import threading
from itertools import pairwise

from penstock.command.kata.load.pause import hold, paused
from penstock.streams.base import clock


def longest_gap(hold_the_others: threading.Event, until: threading.Event) -> float:
    """The longest time for which this thread did not run."""
    times: list[float] = []
    hold_the_others.set()
    while not until.is_set():
        times.append(clock.monotonic())
    return max(later - earlier for earlier, later in pairwise(times))


# The gap takes as long as the pause; on a busy machine it is longer, and never shorter.


def test_no_other_thread_runs_during_a_pause() -> None:
    ready, over = threading.Event(), threading.Event()
    gaps: list[float] = []
    thread = threading.Thread(target=lambda: gaps.append(longest_gap(ready, over)))
    thread.start()
    assert ready.wait(10)
    hold(0.2)
    over.set()
    thread.join()
    assert gaps[0] > 0.15


def test_a_pause_comes_once_and_not_after_the_block() -> None:
    with paused(60, 60):
        pass
    threads = threading.active_count()
    began = clock.monotonic()
    with paused(0, 0.02):
        while clock.monotonic() < began + 0.03:
            pass
    assert threading.active_count() == threads
