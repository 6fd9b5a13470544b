"""The progress of a run in the cell of a notebook, and its report when it has ended."""

from __future__ import annotations

import sys
from asyncio import Future, TimerHandle
from collections.abc import Callable
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.validation import is_positive
from penstock.streams.running.report import Report

__all__ = ["Cell"]


class Cell:
    """Shows a run in the cell that started it, each `every` seconds, and then its report.

    `report` returns how it ended, or before the end its present state; `done` ends with it. An
    update is one snapshot of the statistics, in a timer of the loop, without a task. Raises
    BuildError outside the kernel of a notebook, and for seconds that are not positive.
    """

    def __init__(self, report: Callable[[], Report], done: Future[None], every: float) -> None:
        if not is_positive(every):
            raise BuildError(f"show_progress(every={every!r}): give seconds above 0")
        self._report = report
        self._loop = done.get_loop()
        self._every = every
        self._display = _display()(report(), display_id=True)
        self._timer: TimerHandle = self._loop.call_later(every, self._update)
        done.add_done_callback(self._end)

    def _update(self) -> None:
        self._display.update(self._report())
        self._timer = self._loop.call_later(self._every, self._update)

    def _end(self, _: object) -> None:
        self._timer.cancel()
        self._display.update(self._report())


def _display() -> Any:
    """The function that shows something in a cell."""
    # In a notebook it is loaded.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # A shell in a terminal cannot replace what it has shown.
    if not hasattr(shell, "kernel"):
        raise BuildError(
            "progress is shown in the cell of a notebook, and this is not one: `penstock run` "
            "shows it in a terminal, and running.statistics() has the numbers"
        )
    from importlib import import_module

    return import_module("IPython.display").display
