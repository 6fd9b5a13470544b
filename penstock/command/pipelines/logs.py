"""The log of `penstock run`: lines of text, or of JSON for machines that collect logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from penstock.command import output
from penstock.streams.errors import BuildError

__all__ = ["LEVELS", "set_up"]

LEVELS = ("debug", "info", "warning", "error")


def set_up(form: str | None, level: str | None) -> None:
    """Write the log in this form, from this level on; None: as the pipeline's file has set it up.

    Each line of JSON has `time`, `level`, `logger` and `message`; one about an event that failed
    also has `stage`, `stage_name`, `token` and `error`, the type of the error. The command's own
    lines are among them. Raises BuildError if the file has set up logging itself.
    """
    if form is None and level is None:
        return
    root = logging.getLogger()
    if root.handlers:
        raise BuildError(
            "the file of the pipeline sets up logging itself: leave --log-format and --log-level "
            "out, or the set-up under `if __name__ == '__main__':`"
        )
    least = logging.getLevelNamesMapping()[(level or "info").upper()]
    root.setLevel(least)
    root.addHandler(_ToStandardError(as_json=form == "json"))
    output.use(form == "json", least)


class _ToStandardError(logging.Handler):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
        if not self._as_json:
            output.say(f"{record.name}: {text}")
            return
        fields: Mapping[str, Any] = cast(Any, record).__dict__.get("penstock", {})
        moment = datetime.fromtimestamp(record.created, UTC)
        output.say(output.line(moment, record.levelname.lower(), record.name, text, fields))
