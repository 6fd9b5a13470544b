"""A line for each second of a run, in which latency is seen to grow.

The lines are those of the article's reporter of metrics, except that each is about the events that
started in its second alone: numbers about the whole run so far would hide a growth.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from penstock.command.kata.observe import Interval, Observer

__all__ = ["each_second", "tell_each_second"]


@contextmanager
def each_second(name: str, observer: Observer, say: Callable[[str], None]) -> Generator[None]:
    """Inside the block, say a line for each second of the run; at the end, one for the rest.

    A thread does it, because a variant may block the thread that calls it.
    """
    left = threading.Event()
    thread = threading.Thread(
        target=tell_each_second, args=(name, observer, say, left.wait), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def tell_each_second(
    name: str, observer: Observer, say: Callable[[str], None], wait: Callable[[float], bool]
) -> None:
    """Say the lines until `wait(seconds)` returns True.

    A second in which it could not run, such as one of a pause, has no line of its own: its events
    are in the next one.
    """
    width = max(len(name), len("wait-on-concurrent"))
    say(f"{name:<{width}}  second  count     mean   median      p99   queue")
    second, is_over = 0, False
    while not is_over:
        second = max(second + 1, int(observer.now() - observer.start) + 1)
        is_over = wait(observer.start + second - observer.now())
        interval = observer.interval()
        if not is_over or interval.latency.count:
            say(f"{'':{width}}  {second:>6}{_numbers(interval)}")


def _numbers(interval: Interval) -> str:
    latency = interval.latency
    times = (latency.mean, latency.median, latency.p99)
    return (
        f"  {latency.count:>5}"
        + "".join(f"  {seconds * 1000:>7.1f}" for seconds in times)
        + f"  {interval.queue:>6}"
    )
