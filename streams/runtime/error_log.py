"""The error log of a running pipeline: counts errors, and reports the first ones as warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BadLine, message_of, notes_of

if TYPE_CHECKING:
    from penstock.streams.protocol.event import Event
    from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["ErrorLog", "in_a_line"]

# Errors of each kind that are reported; the rest are only counted.
_SHOWN = 10
# Types of errors that are counted by themselves.
_KINDS = 100
# Characters of an error's text in a warning.
_SHOWN_TEXT = 2_000


class ErrorLog:
    """The errors of a running pipeline.

    Each report is a line of text, a warning of the logger `penstock` whose record has fields for
    programs in its attribute `penstock`; `on_warning`, if it is set, gets both instead,
    and the event that a report is about.
    """

    def __init__(self) -> None:
        self.on_warning: Callable[[str, dict[str, Any], Event[Any] | None], None] | None = None
        # Called when a stage stops because of an error, before its calls in flight have ended.
        self.on_stopping: Callable[[BaseException], None] | None = None
        self.ended_by: BaseException | None = None
        """The error that ends the running pipeline, once it is known."""
        self.on_failure: Callable[[BaseException], None] | None = None
        """Called with the error of each event that failed in a stage that goes on."""
        self.on_bad_line: Callable[[BadLine], None] | None = None
        """Called with each line of the input that is not an event."""
        self.on_letter: Callable[[Any], None] | None = None
        """Called with each `DeadLetter`, before its sink has accepted it."""
        self.failed_events = 0
        self.kinds: dict[str, int] = {}
        """The events that failed so, by the type of the error."""
        self.bad_lines = 0
        self.recoveries: dict[str, int] = {}
        """Errors after which a stage goes on, by the stage."""
        self.closed_early: dict[str, int] = {}
        """Groups that were ended early, by cause."""

    def warn(self, text: str, event: Event[Any] | None = None, **fields: Any) -> None:
        """Report a line of text, with what programs should know of it.

        Line breaks become spaces: errors quote events, and a part of one must not look like a line
        of the log.
        """
        text = _one_line(text)
        if self.on_warning is None:
            # Any text may have a percent sign, which a logger would take for a format.
            logging.getLogger("penstock").warning("%s", text, extra={"penstock": fields})
        else:
            self.on_warning(text, fields, event)

    def count(self, error: BaseException, event: Event[Any] | None = None, **fields: Any) -> None:
        """Count an event that failed in a stage that goes on; the first ones are reported."""
        self.failed_events += 1
        self.noted(error)
        if self._shows(self.failed_events, "more events have failed; they"):
            notes = "; ".join(notes_of(error))
            self.warn(
                f"{type(error).__name__}: {message_of(error, _SHOWN_TEXT)} ({notes})",
                event,
                error=type(error).__name__,
                **fields,
            )

    def recovered(self, error: BaseException, info: StageInfo) -> None:
        """Count an error after which the stage `info` goes on; the first ones of it are reported.

        A stage of a stream that is read for each event counts as one.
        """
        name = str(info)
        count = self.recoveries[name] = self.recoveries.get(name, 0) + 1
        if self._shows(count, f"more errors after which {name} goes on"):
            self.warn(
                f"{name} goes on after an error: {in_a_line(error)}",
                error=type(error).__name__,
                stage=info.number,
            )

    def noted(self, error: BaseException, events: int = 1) -> None:
        """Count events that failed so, which have been reported elsewhere."""
        kind = type(error).__name__
        if kind not in self.kinds and len(self.kinds) >= _KINDS:
            kind = "other"
        self.kinds[kind] = self.kinds.get(kind, 0) + events
        if self.on_failure is not None:
            self.on_failure(error)

    def count_bad_line(self, error: BadLine) -> None:
        """Count a line of the input that is not an event; the first ones are reported."""
        self.bad_lines += 1
        if self.on_bad_line is not None:
            self.on_bad_line(error)
        if self._shows(self.bad_lines, "there are more bad lines; they"):
            self.warn(str(error), error=type(error).__name__, place=error.place)

    def _shows(self, count: int, rest: str) -> bool:
        if count == _SHOWN + 1:
            self.warn(f"{rest} are counted and no longer shown")
        return count <= _SHOWN


def in_a_line(error: BaseException) -> str:
    """The error in one line of text: its type, its message and its notes."""
    notes = "".join(f" ({note})" for note in notes_of(error))
    return _one_line(f"{type(error).__name__}: {message_of(error, _SHOWN_TEXT)}{notes}")


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())
