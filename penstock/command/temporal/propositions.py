"""The options `--prop NAME=FIELD:VALUE`, which say what the names in a formula mean."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from penstock.command.output import mention
from penstock.streams.base.errors import BuildError

__all__ = ["Propositions", "as_text"]

_Event = dict[str, Any]


class Propositions:
    """The test of an event's field that each name stands for, in `tests`.

    Raises BuildError for an option that cannot be read, and for a second one of the same name.
    Memory: an event for each of them.
    """

    def __init__(self, options: Iterable[str]) -> None:
        self.tests: dict[str, Callable[[_Event], bool]] = {}
        self._options: dict[str, str] = {}
        self._seen: set[str] = set()
        self._lacking: dict[str, _Event] = {}
        for text in options:
            name, test = self._read(text)
            if name in self.tests:
                raise BuildError(f"--prop {text}: there is a --prop of that name already")
            self.tests[name] = test

    def mention_unseen(self, event_tested: str) -> None:
        """Report those that were tested on events, none of which had the field. `event_tested` is
        what such an event is called."""
        for field, event in self._lacking.items():
            if field not in self._seen:
                fields = ", ".join(event)
                mention(
                    f"--prop {self._options[field]}: no {event_tested} has the field "
                    f"{field!r}; the first has: {fields}"
                )

    def _read(self, text: str) -> tuple[str, Callable[[_Event], bool]]:
        name, equals, what = text.partition("=")
        field, colon, value = what.partition(":")
        if not name or not equals or not field:
            raise BuildError(f"--prop {text}: it should be NAME=FIELD:VALUE, or NAME=FIELD")
        self._options[field] = text

        def has_value(event: _Event) -> bool:
            return self._has(field, event) and as_text(event[field]) == value

        def is_true(event: _Event) -> bool:
            return self._has(field, event) and bool(event[field])

        return name, has_value if colon else is_true

    def _has(self, field: str, event: _Event) -> bool:
        if field in event:
            self._seen.add(field)
            return True
        self._lacking.setdefault(field, event)
        return False


def as_text(value: object) -> str:
    """The value of a field as it is written in `--prop NAME=FIELD:VALUE`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
