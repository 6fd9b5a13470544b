"""Errors and warnings of a running: counted, and reported to people as they come."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.streams.errors import BadLine, message_of

__all__ = ["ErrorLog", "in_a_line"]

# Errors of a kind that are reported; the rest are only counted.
_SHOWN = 10
# Characters of an error's text in a warning.
_SHOWN_TEXT = 2_000


class ErrorLog:
    """What goes wrong in a running; `on_warning` gets each report, a line of text."""

    def __init__(self) -> None:
        self.on_warning: Callable[[str], None] = logging.getLogger("penstock").warning
        # Called when a stage stops because of an error, before its calls in flight have ended.
        self.on_stopping: Callable[[BaseException], None] | None = None
        self.ended_by: BaseException | None = None
        """The error that the running ends with, as far as it is known."""
        self.failed_events = 0
        self.bad_lines = 0
        self.closed_early: dict[str, int] = {}
        """Groups that ended before their time, by cause."""

    def warn(self, text: str) -> None:
        """Report something."""
        self.on_warning(text)

    def count(self, error: BaseException) -> None:
        """An event failed in a stage that carries on; the first few are reported at once."""
        self.failed_events += 1
        if self._shows(self.failed_events, "more events have failed; they"):
            notes = "; ".join(getattr(error, "__notes__", ()))
            self.warn(f"{type(error).__name__}: {message_of(error, _SHOWN_TEXT)} ({notes})")

    def count_bad_line(self, error: BadLine) -> None:
        """A line of the input was not an event; the first few are reported at once."""
        self.bad_lines += 1
        if self._shows(self.bad_lines, "there are more bad lines; they"):
            self.warn(str(error))

    def _shows(self, count: int, rest: str) -> bool:
        if count == _SHOWN + 1:
            self.warn(f"{rest} are counted and no longer shown")
        return count <= _SHOWN


def in_a_line(error: BaseException) -> str:
    """What happened, and in which stage."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    text = " ".join(message_of(error, _SHOWN_TEXT).splitlines())
    return f"{type(error).__name__}: {text}{notes}"
