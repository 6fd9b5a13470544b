"""The JSON line of a dead letter, as `dead_letters` writes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from orjson import OPT_APPEND_NEWLINE, OPT_NON_STR_KEYS

from penstock.streams.base import clock
from penstock.streams.base.errors import describe, message_of, printable
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.io.encoding import as_json, encoded
from penstock.streams.protocol.blame import notes_about

__all__ = ["letter_line"]

_LONGEST_REPR = 65_536


def letter_line(now: Callable[[], float]) -> Callable[[DeadLetter], bytes]:
    """The function that makes the line of a letter; `now` is the time of its run."""
    offset = clock.wall() - now()

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(seconds + offset, UTC).isoformat(timespec="microseconds")

    def line(letter: DeadLetter) -> bytes:
        error = letter.error
        notes = notes_about(error, letter.stage, letter.value, letter.token)
        fields: dict[str, Any] = {
            "value": letter.value,
            "error": type(error).__name__,
            "message": message_of(error),
            "notes": [printable(str(note)) for note in notes],
            "stage": letter.stage,
            "attempts": letter.attempts,
            "created": moment(letter.created),
            "failed": moment(letter.failed),
            "token": letter.token,
        }
        if letter.identities:
            fields["identities"] = [one._asdict() for one in letter.identities]
        for name in ("value", "token"):
            try:
                return _dumps(fields)
            except TypeError:
                fields[name] = _text(fields[name])
        return _dumps(fields)

    return line


def _dumps(fields: dict[str, Any]) -> bytes:
    return encoded(fields, OPT_APPEND_NEWLINE | OPT_NON_STR_KEYS, default=_shown)


def _text(value: object) -> str:
    """The text of a value that cannot be part of the letter: its JSON if it is only too deep, or
    its repr."""
    try:
        return encoded(value).decode()
    except Exception:
        return _repr(value)


def _shown(value: object) -> Any:
    try:
        return as_json(value)
    except Exception:
        return _repr(value)


def _repr(value: object) -> str:
    return printable(describe(value, _LONGEST_REPR))
