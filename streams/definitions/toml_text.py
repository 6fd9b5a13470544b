"""Writes definitions as TOML: a table for each part of a pipeline, and a line for each option."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.streams.definitions.names import is_a

__all__ = ["toml_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(data: dict[str, Any]) -> str:
    """A definition as TOML. None, which TOML does not have, is `{ none = true }`."""
    parts: list[str] = []
    for key, value in data.items():
        name = _key(key)
        if is_a(value, list):
            parts += [f"[[{name}]]\n{_lines(one)}" for one in value]
        elif key == "shared":
            parts += [f"[{name}.{_key(one)}]\n{_lines(value[one])}" for one in value]
        elif is_a(value, dict):
            parts.append(f"[{name}]\n{_lines(value)}")
        else:
            # Those that are not tables come before the first table.
            parts.insert(0, f"{name} = {_value(value)}\n")
    return "\n".join(parts)


def _lines(table: dict[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(one)}\n" for key, one in table.items())


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if value is None:
        return "{ none = true }"
    if is_a(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if is_a(value, dict):
        inside = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, str):
        return _text(value)
    # As Python has them, but for true and false.
    return json.dumps(value)


def _text(text: str) -> str:
    # A text of JSON is one of TOML, except for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
