"""The encoding of a database's texts: what it has no character for is written as an escape."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from json import dumps as dumps_ascii
from typing import Any, cast

__all__ = ["Encoding"]

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class Encoding:
    """The encoding that a server has for a database, by its name; texts of `SQL_ASCII` may be any
    bytes (`is_ascii`)."""

    def __init__(self, name: str | None = None) -> None:
        self.is_ascii = name == "SQL_ASCII"
        # None if its texts are Unicode, or any bytes.
        self._codec: str | None = None
        if name and name not in ("UTF8", "SQL_ASCII"):
            self._codec = "ascii"
            with suppress(LookupError):
                self._codec = codecs.lookup(name.replace("WIN", "cp")).name

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Parameters, with escapes for the characters that the database has not."""
        codec = self._codec
        if codec is None:
            return values
        return {name: _storable(value, codec) for name, value in values.items()}

    def json(self, text: str) -> str:
        """JSON with escapes for the characters that the database has not."""
        if self._codec is not None:
            try:
                text.encode(self._codec)
            except UnicodeEncodeError:
                return _NOT_ASCII.sub(lambda found: dumps_ascii(found[0])[1:-1], text)
        return text


def _storable(value: Any, codec: str) -> Any:
    if isinstance(value, list):
        return [_storable(one, codec) for one in cast("Iterable[Any]", value)]
    if isinstance(value, str):
        return value.encode(codec, "backslashreplace").decode(codec)
    return value
