"""The log of `penstock run`: lines of text, or of JSON for machines that collect logs."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, cast

from penstock.command import output
from penstock.streams.base.errors import BuildError

__all__ = ["kept", "set_up"]


_SET_UP = (
    "the file of the pipeline sets up logging itself: leave out --log-format and --log-level, or "
    "put the set-up under `if __name__ == '__main__':`"
)


def set_up(form: str | None, level: str | None) -> None:
    """Write the log in this form, from this level on; None: as the pipeline's file sets it up.

    Each line of JSON has `time`, `level`, `logger` and `message`; one about an event that failed
    also has `stage`, `stage_name`, `token` and `error`, the type of the error. The command's own
    lines are among them, and Python's: warnings, and errors that nothing has caught. Raises
    BuildError if logging is set up already.
    """
    if form is None and level is None:
        return
    root = logging.getLogger()
    least = logging.getLevelNamesMapping()[(level or "info").upper()]
    output.use(form == "json", least)
    if root.handlers:
        raise BuildError(_SET_UP)
    root.setLevel(least)
    # The server of the live page logs that it begins and ends, as `uvicorn.error`.
    logging.getLogger("uvicorn").setLevel(max(least, logging.WARNING))
    root.addHandler(_ToStandardError(as_json=form == "json"))
    if form == "json":
        logging.captureWarnings(True)
        _log_uncaught()


@contextmanager
def kept() -> Generator[None]:
    """Keep what `set_up` has done while the block loads the file.

    Raises BuildError if the file has set up logging itself.
    """
    root = logging.getLogger()
    ours = [one for one in root.handlers if isinstance(one, _ToStandardError)]
    if not ours:
        yield
        return
    before, calls = logging.basicConfig, 0

    def basic_config(**options: Any) -> None:
        nonlocal calls
        calls += 1
        before(**options)

    # It does nothing if there is a handler, so the handlers do not show that it was called.
    logging.basicConfig = basic_config
    try:
        yield
    finally:
        logging.basicConfig = before
    if calls or root.handlers != ours:
        raise BuildError(_SET_UP)


def _log_uncaught() -> None:
    """Write to the log what Python would write to standard error itself."""
    log = logging.getLogger("penstock")

    def ending(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        log.error("ended by an error", exc_info=(kind, error, traceback))

    def in_a_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = "" if args.thread is None else f" {args.thread.name}"
            found = (args.exc_type, args.exc_value, args.exc_traceback)
            log.error("the thread%s ended by an error", name, exc_info=found)

    def ignored(args: sys.UnraisableHookArgs) -> None:
        found = (args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback)
        log.error("%s: %r", args.err_msg or "Exception ignored in", args.object, exc_info=found)

    sys.excepthook, threading.excepthook, sys.unraisablehook = ending, in_a_thread, ignored


class _ToStandardError(logging.Handler):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        # A warning of Python ends with a line break.
        text = record.getMessage().rstrip("\n")
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        if not self._as_json:
            output.say(f"{record.name}: {text}")
            return
        fields: Mapping[str, Any] = cast(Any, record).__dict__.get("penstock", {})
        moment = datetime.fromtimestamp(record.created, UTC)
        output.say(output.line(moment, record.levelname.lower(), record.name, text, fields))
