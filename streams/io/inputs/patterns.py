"""Paths that mean several files: lists of paths, and patterns such as `logs/*.gz`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeGuard

__all__ = ["Order", "files_of", "is_several", "is_url", "listed", "path_of"]

Order = Literal["name", "time"]
"""By names, whose digits are compared as numbers, or by the times of the last changes."""

# What the module glob, which is slow to import, takes for a pattern.
_MAGIC = re.compile(r"[*?[]")

# A scheme (RFC 3986, 3.1), or a chain of several, as in `simplecache::s3://bucket/name`.
_URL = re.compile(r"[a-zA-Z][\w+.:-]*://")

_DIGITS = re.compile(r"(\d+)")

# Of many paths, so many are named.
_NAMED = 3


def is_url(path: Any) -> TypeGuard[str]:
    """Whether this is the URL of an object, which is read through fsspec."""
    return isinstance(path, str) and _URL.match(path) is not None


def path_of(name: str) -> str:
    """The absolute path of a file, the URL of an object."""
    return name if is_url(name) else os.path.abspath(name)


def is_several(path: Any) -> bool:
    """Whether this is a list of paths, or a pattern. A file whose own name is a pattern is none,
    and no URL is, which may have a question mark."""
    if is_url(path):
        return False
    if isinstance(path, str):
        return _MAGIC.search(path) is not None and not os.path.exists(path)
    return isinstance(path, Sequence) and not isinstance(path, bytes)


def files_of(path: Any, order: Order | None = None) -> list[str]:
    """The names of the files, each once: in the order of the list, those of a pattern by name,
    unless all are in one order. Folders match no pattern. Time: O(n log n)."""
    import glob

    paths: Iterable[Any] = [path] if isinstance(path, str) else path
    names: list[str] = []
    for one in map(os.fspath, paths):
        if is_several(one):
            found = glob.glob(one, recursive=True)
            names += sorted((name for name in found if not os.path.isdir(name)), key=_by_name)
        else:
            names.append(one)
    names = list(dict.fromkeys(names))
    if order is not None:
        names.sort(key=_by_name)
    if order == "time":
        names.sort(key=_changed)
    return names


def listed(path: Any) -> str:
    """The paths of a list, or the pattern, in words."""
    if isinstance(path, str):
        return path
    names = list(map(os.fspath, path))
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _by_name(name: str) -> list[tuple[int, str]]:
    """A key that compares digits as numbers: `log.2` comes before `log.10`."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in _DIGITS.split(name)
    ]


def _changed(name: str) -> int:
    try:
        return os.stat(name).st_mtime_ns
    except OSError:
        # Its reader reports that it cannot be read.
        return 0
