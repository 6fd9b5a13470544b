"""The lines of a TOML file in which its tables and keys begin, for messages about them."""

from __future__ import annotations

import re

__all__ = ["toml_lines"]

_Place = tuple[str | int, ...]
_PART = r'(?:"[^"]*"|\'[^\']*\'|[\w-]+)'
_PATH = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*\[\s*({_PATH})\s*\]\s*(?:#.*)?$")
_ITEM = re.compile(rf"\s*\[\[\s*({_PATH})\s*\]\]\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_PATH})\s*=")


def toml_lines(text: str) -> dict[_Place, int]:
    """The number of the line, from 1 on, for the path of each table and each key.

    Tables that are written in one line are not looked into. In a text of several lines, what looks
    like a key is taken for one, which can only make a message less exact.
    """
    lines: dict[_Place, int] = {}
    # How many tables each list of tables has so far.
    counts: dict[_Place, int] = {}
    above: _Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if item := _ITEM.match(line):
            *before, last = _parts(item[1])
            path = (*_in_lists(before, counts), last)
            counts[path] = counts.get(path, 0) + 1
            above = (*path, counts[path] - 1)
            lines.setdefault(path, number)
        elif table := _TABLE.match(line):
            above = _in_lists(_parts(table[1]), counts)
        elif key := _KEY.match(line):
            lines.setdefault((*above, *_parts(key[1])), number)
            continue
        else:
            continue
        lines.setdefault(above, number)
    return lines


def _parts(path: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, path)]


def _in_lists(parts: list[str], counts: dict[_Place, int]) -> _Place:
    """The path, with the number of the last table of each list that it names."""
    path: _Place = ()
    for part in parts:
        path = (*path, part)
        if path in counts:
            path = (*path, counts[path] - 1)
    return path
