"""The live status line, and a bar where the end is in sight: on a terminal, four times a second."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from math import ceil
from typing import IO, Any, TextIO, cast

from penstock.command.output import is_json, mention
from penstock.streams.base import clock
from penstock.streams.pipelines.running import Running
from penstock.streams.running.report import done_with

__all__ = ["Remaining", "line", "on_a_terminal", "status"]

_EVERY = 0.25
# Events per second are averaged over this many readings: current, yet steady enough to read.
_READINGS = 8


@contextmanager
def status(running: Running) -> Generator[None]:
    """Show the status line inside the block, if standard error is a terminal and rich is installed.

    Needs the running loop; costs one snapshot of the statistics each quarter of a second, and
    nothing where nothing is shown.
    """
    if not on_a_terminal():
        yield
        return
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        from penstock.streams.base.extras import install_command

        mention(f"no status line without rich: {install_command('terminal')}")
        yield
        return
    console = Console(file=cast(IO[str], _Terminal(sys.stderr)))
    loop = asyncio.get_running_loop()
    readings: deque[tuple[float, int]] = deque(maxlen=_READINGS)
    timers: deque[asyncio.TimerHandle] = deque(maxlen=1)
    remaining = Remaining()

    def show() -> None:
        numbers = running.statistics()
        now, part = clock.monotonic(), numbers["progress"]
        readings.append((now, done_with(numbers)))
        lines = Table.grid(expand=True)
        if part is not None:
            lines.add_row(ProgressBar(total=1.0, completed=part))
        lines.add_row(Text(line(numbers, _rate(readings), remaining.seconds(now, part))))
        live.update(lines, refresh=True)
        timers.append(loop.call_later(_EVERY, show))

    timers.append(loop.call_later(_EVERY, show))
    # Refreshed by the loop, not by a thread of rich. It disappears at the end, when the report is
    # printed; other output to standard error appears above it.
    with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False) as live:
        try:
            yield
        finally:
            timers.pop().cancel()


class _Terminal:
    """A stream whose failures to write are ignored: the terminal may be closed meanwhile."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Remaining:
    """The seconds to the end of the input, at the average speed since the first reading."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def seconds(self, now: float, part: float | None) -> float | None:
        """`part` of the input is done with, from 0 to 1; None while the rest is not known."""
        if part is None:
            return None
        if self._first is None:
            self._first = now, part
        began, before = self._first
        return (1 - part) * (now - began) / (part - before) if part > before else None


def line(numbers: dict[str, Any], rate: float, remaining: float | None = None) -> str:
    """The statistics as one line; `rate` is the events per second that ended well."""
    limit = "-" if numbers["limit"] is None else f"{numbers['limit']:,}"
    parts = [] if numbers["progress"] is None else [f"{int(100 * numbers['progress'])}%"]
    if remaining is not None:
        parts.append(f"{_span(remaining)} left")
    parts += [
        f"{rate:,.0f}/s",
        f"in flight {numbers['in_flight']:,}/{limit}",
        f"waiting {numbers['waiting']:,}",
    ]
    if numbers["groups"] is not None:
        parts.append(f"groups {numbers['groups']:,}")
    if duplicates := numbers["dropped"].get("duplicate", 0):
        parts.append(f"duplicates {duplicates:,}")
    if numbers["failed"] or numbers["bad_lines"]:
        parts.append(f"failed {numbers['failed']:,}, bad lines {numbers['bad_lines']:,}")
    if numbers["latency"] is not None and numbers["latency"]["waiting"]["count"]:
        waiting = numbers["latency"]["waiting"]
        parts.append(f"p50 {waiting['median'] * 1000:,.1f} p99 {waiting['p99'] * 1000:,.1f} ms")
    if numbers["state"] != "running":
        parts.append(numbers["state"])
    # Last, because it is long, and on a narrow terminal goes into a line of its own.
    return "  ".join(parts) + _why(numbers["limit_reason"])


def _span(seconds: float) -> str:
    """`0:07`, `1:02:03`."""
    minutes, rest = divmod(ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _why(reason: str) -> str:
    # A limit chosen by the user needs no explanation.
    is_own = set(reason.split("; ")) <= {"", "fixed"}
    return "" if is_own else f"  ({reason})"


def _rate(readings: deque[tuple[float, int]]) -> float:
    (first, before), (last, after) = readings[0], readings[-1]
    return (after - before) / (last - first) if last > first else 0.0


def on_a_terminal() -> bool:
    """Whether standard error is a terminal to which text is written, not JSON."""
    try:
        return not is_json() and sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
