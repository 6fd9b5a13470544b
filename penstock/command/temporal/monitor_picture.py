"""The live picture of `penstock monitor --draw`: where the keys stand in the automaton."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.command.output import mention
from penstock.streams.base.errors import CannotOpen
from penstock.streams.monitoring.watching import Watched
from penstock.streams.pictures.automaton import Live, live_svg
from penstock.streams.pipelines.running import Running
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict

__all__ = ["MonitorPicture"]

_EVERY = 1.0


class MonitorPicture:
    """Writes the picture of a watch once a second and at the end.

    Each is written to a new file beside `path`, which then takes its name, so a reader finds a
    whole one. Time: O(keys) for each. Raises BuildError for an automaton too large to draw, and
    CannotOpen if the first cannot be written; a later failure is reported once.
    """

    def __init__(self, path: str, monitor: Monitor, title: str) -> None:
        self._path = path
        self._monitor = monitor
        self._title = title
        self._watch: Watched | None = None
        self._failed = False
        try:
            self._write()
        except OSError as error:
            raise CannotOpen(f"Cannot write {path}: {error.strerror}.") from error

    def begin(self, watch: Watched) -> None:
        """Draw this watch from now on."""
        self._watch = watch

    def has_seen(self, keys: Iterable[Any]) -> bool:
        """Whether an event had one of these keys, which are among the marked ones."""
        return self._watch is not None and any(self._watch.walked[key] for key in keys)

    @contextmanager
    def kept(self, running: Running) -> Generator[None]:
        """Draw once a second inside the block, on the running loop, and when it ends."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def draw() -> None:
            nonlocal timer
            self._try()
            timer = loop.call_later(_EVERY, draw)

        timer = loop.call_later(_EVERY, draw)
        try:
            yield
        finally:
            timer.cancel()
            self._try()

    def _try(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._failed:
                mention(f"cannot write {self._path}: {error.strerror}")
            self._failed = True

    def _write(self) -> None:
        text = live_svg(self._monitor, _seen(self._watch), self._title)
        beside = f"{self._path}.new"
        Path(beside).write_text(text, encoding="utf-8")
        os.replace(beside, self._path)


def _seen(watch: Watched | None) -> Live:
    if watch is None:
        return Live({}, {}, {})
    counts = Counter[int | Verdict]()
    names: dict[int | Verdict, list[str]] = {}
    for key, where in watch.standing():
        counts[where] += 1
        if key in watch.walked:
            names.setdefault(where, []).append(_name(key))
    walked: dict[str, set[tuple[int, int | Verdict]]] = {}
    for key, steps in watch.walked.items():
        if steps:
            walked.setdefault(_name(key), set()).update(steps)
    return Live(counts, names, walked)


def _name(key: Any) -> str:
    text = str(key)
    return text if text.isprintable() else repr(key)
