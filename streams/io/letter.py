"""The JSON encoding of a dead letter in its stream."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b, sha256
from typing import Any

from orjson import OPT_NON_STR_KEYS, JSONDecodeError, dumps, loads

from penstock.streams.base.errors import BadLine, EventOmitted, describe, message_of, printable
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.io.body import text_of
from penstock.streams.io.encoding import encoded
from penstock.streams.protocol.identity import shown

__all__ = ["Letter", "id_of", "stub", "whole"]

# The most characters of an error's text, and of a value that is not JSON.
_LONGEST_MESSAGE, _LONGEST_REPR = 10_000, 65_536
# The most characters of each if the value is too large to be stored.
_SHOWN = 500
_KEY = re.compile(r"[A-Za-z0-9_=-]*")


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead-lettered event; `sequence` is its number among the dead letters, `key` its key as
    written in subjects, `origin` the message it came from, `identities` the identities of all
    events that it was made of.

    `body` is the base64 of an event that is not JSON; `value` is then its readable form. `omitted`
    is the size and the SHA-256 of an event that was too large; `value` is then its beginning.
    """

    sequence: int
    value: Any
    error: str
    message: str
    stage: str
    attempts: int
    key: str
    origin: str
    body: str | None = None
    omitted: dict[str, Any] | None = None
    identities: list[str] | None = None

    @classmethod
    def of(cls, sequence: int, data: bytes) -> Letter:
        """The letter in a message. Raises BadLine for a message that is not a letter."""
        try:
            found: Any = loads(data)
            # Fields that a later version adds are ignored.
            return cls(
                sequence, **{name: found[name] for name in _FIELDS if name in found}
            )._checked()
        except (JSONDecodeError, TypeError, ValueError) as error:
            raise BadLine(f"{describe(text_of(data))} ({error})") from None

    def _checked(self) -> Letter:
        # Another program may have written the message.
        texts: tuple[Any, ...] = (
            *(self.error, self.message, self.stage, self.key, self.origin),
            self.body or "",
        )
        if not all(isinstance(text, str) for text in texts) or not _KEY.fullmatch(self.key):
            raise ValueError("a field is of another type")
        b64decode(self.body or "", validate=True)
        return self

    def as_dict(self) -> dict[str, Any]:
        """Its non-empty fields by name, the value last."""
        filled = {name: value for name, value in asdict(self).items() if value is not None}
        return {**filled, "value": filled.pop("value", None)}

    def event(self) -> bytes:
        """The event as it was published; raises EventOmitted."""
        if self.omitted is not None:
            raise EventOmitted(
                f"dead letter {self.sequence} holds only the beginning of its event, which had "
                f"{self.omitted.get('bytes')} bytes (SHA-256 {self.omitted.get('sha256')}) and "
                f"came from {self.origin}: publish it from where it is kept"
            )
        return dumps(self.value) if self.body is None else b64decode(self.body)


_FIELDS = tuple(field.name for field in fields(Letter) if field.name != "sequence")


def whole(letter: DeadLetter) -> bytes:
    """A letter with its event."""
    value = letter.value
    if isinstance(value, bytes):
        return _encoded(letter, text_of(value), body=b64encode(value).decode("ascii"))
    try:
        return _encoded(letter, value)
    except TypeError:
        pass
    try:
        data = encoded(value, OPT_NON_STR_KEYS)
    except TypeError:
        return _encoded(letter, _shown(value))
    # It is only too deep to be a part of the letter.
    return _encoded(letter, text_of(data), body=b64encode(data).decode("ascii"))


def stub(letter: DeadLetter) -> bytes:
    """A letter with only the beginning of its event, which is too large."""
    data = _bytes_of(letter.value)
    omitted = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    return _encoded(letter, text_of(data[:_SHOWN]), longest=_SHOWN, omitted=omitted)


def id_of(stream: str, letter: DeadLetter) -> str:
    """The id of a letter: the same if the same event of a message fails again in the same stage
    after a take-over. Several events from one message have different ids, unless they are equal."""
    digest = blake2b(_bytes_of(letter.value) + letter.stage.encode(), digest_size=8).hexdigest()
    return f"{stream}:{shown(letter.identities) or letter.token}:{digest}"


def _encoded(letter: DeadLetter, value: Any, longest: int = _LONGEST_MESSAGE, **more: Any) -> bytes:
    written = {
        "value": value,
        "error": type(letter.error).__name__,
        "message": message_of(letter.error, longest),
        "stage": letter.stage,
        "attempts": letter.attempts,
        "key": getattr(letter.token, "key", ""),
        "origin": str(letter.token),
    }
    if letter.identities:
        written["identities"] = list(map(str, letter.identities))
    return encoded({**written, **more}, OPT_NON_STR_KEYS)


def _bytes_of(value: Any) -> bytes:
    """An event as it was published, or else its repr."""
    if isinstance(value, bytes):
        return value
    try:
        return encoded(value, OPT_NON_STR_KEYS)
    except TypeError:
        return _shown(value).encode()


def _shown(value: Any) -> str:
    return printable(describe(value, _LONGEST_REPR))
