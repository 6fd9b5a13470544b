"""The files that had a name before the one that has it now, found again after a rotation.

Nobody writes down what log rotation does, so the names and the contents have to tell. The file that
was read is found by its inode, or, if it was copied or decompressed, by the bytes before the place
up to which it was read. Those that had the name after it have names of the same shape as its new
one, with other digits: `app.log.2` and `app.log.1`, `app.log-20261127` and `app.log-20261128`.
Small numbers may count up or down, which the times of the last changes tell. Where names and times
disagree, or one of the files is compressed, nothing is guessed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from penstock.streams.io.paths import OPEN_FLAGS

__all__ = ["Untraceable", "Version", "rotated"]

# How often a folder is read that is changed meanwhile.
_ATTEMPTS = 10

_DIGITS = re.compile(r"[0-9a-f]*\d[0-9a-f]*")

# As many digits are a date or a time, and count up.
_DATE = 4

_COMPRESSED = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".lzma", ".zip", ".Z")


class Untraceable(Exception):
    """The files that had a name cannot be told for sure; says why, and what to do."""


class Version(NamedTuple):
    """An open file that had a name, and its present name. Its reader closes the descriptor."""

    name: str
    descriptor: int


class _Entry(NamedTuple):
    inode: int
    changed: int
    size: int


def rotated(
    name: str, inode: int, is_read: Callable[[int], bool] | None, others: Iterable[str]
) -> list[Version]:
    """The file that was read under this name, and those that had it later, in this order.

    `is_read` says of a descriptor whether the file has what was read; it is None if nothing was.
    `others` are paths that are none of them. Empty if the file has its name still. Raises
    Untraceable, and OSError. Time: O(n log n) for n names in the folder.
    """
    folder, base = os.path.split(os.path.abspath(name))
    others = {os.path.basename(path) for path in others if os.path.dirname(path) == folder}
    for _ in range(_ATTEMPTS):
        before = _entries(folder, others)
        opened: list[Version] = []
        try:
            for found in _in_order(folder, base, before, inode, is_read):
                descriptor = _open(os.path.join(folder, found))
                if descriptor is None:
                    break
                opened.append(Version(os.path.join(folder, found), descriptor))
                if os.fstat(descriptor).st_ino != before[found].inode:
                    break
            else:
                if _inodes(_entries(folder, others)) == _inodes(before):
                    last, opened = opened, []
                    return last
        finally:
            for version in opened:
                os.close(version.descriptor)
    raise Untraceable(f"{folder} is changed all the time. Start again.")


def _entries(folder: str, others: set[str]) -> dict[str, _Entry]:
    """The regular files in a folder, by their names."""
    entries: dict[str, _Entry] = {}
    with os.scandir(folder) as found:
        for entry in found:
            # One that is gone meanwhile.
            with suppress(FileNotFoundError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and entry.name not in others:
                    entries[entry.name] = _Entry(status.st_ino, status.st_mtime_ns, status.st_size)
    return entries


def _inodes(entries: dict[str, _Entry]) -> dict[str, int]:
    return {name: entry.inode for name, entry in entries.items()}


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except FileNotFoundError:
        return None


def _in_order(
    folder: str,
    base: str,
    entries: dict[str, _Entry],
    inode: int,
    is_read: Callable[[int], bool] | None,
) -> list[str]:
    first = _first(folder, base, entries, inode, is_read)
    if first == base:
        return []
    shape = _shape(base, first)
    # One file may have several names.
    known = {entries[name].inode for name in (first, base) if name in entries}
    others = (name for name in entries if shape.fullmatch(name) and name != base)
    versions = [first, *(name for name in others if entries[name].inode not in known)]
    after = _after(base, first, versions, entries, folder)
    _check_strangers(base, first, versions, shape, entries, folder)
    return [first, *after, *([base] if base in entries else [])]


def _first(
    folder: str,
    base: str,
    entries: dict[str, _Entry],
    inode: int,
    is_read: Callable[[int], bool] | None,
) -> str:
    """The present name of the file that was read."""

    def has_it(name: str) -> bool:
        if is_read is None:
            return entries[name].inode == inode and _is_related(base, name)
        try:
            descriptor = _open(os.path.join(folder, name))
        except OSError:
            # Other files of the folder may not be readable.
            return False
        if descriptor is None:
            return False
        try:
            return is_read(descriptor)
        finally:
            os.close(descriptor)

    # The name itself first: a file may have several.
    same = sorted(
        (name for name, entry in entries.items() if entry.inode == inode),
        key=lambda name: (name != base, name),
    )
    for name in same:
        if has_it(name):
            return name
    related = [name for name in entries if _is_related(base, name)]
    plain = [name for name in related if not name.endswith(_COMPRESSED)]
    copies = {entries[name].inode: name for name in plain if has_it(name)}
    if len(copies) == 1:
        return next(iter(copies.values()))
    if copies:
        raise Untraceable(
            f"{_listed(folder, copies.values())} all have what was read. Leave only one of them in "
            "the folder, and start again"
        )
    packed = [name for name in related if name.endswith(_COMPRESSED)]
    if packed:
        raise Untraceable(
            f"no file beside it has what was read, but {_listed(folder, packed)} may have it, "
            "compressed. Decompress there what was read, and all that was rotated after it, as by "
            "`gunzip`, and start again"
        )
    raise Untraceable(
        "no file beside it has what was read. If it was moved to another folder, move it back"
    )


def _is_related(base: str, name: str) -> bool:
    return name.startswith((base, os.path.splitext(base)[0]))


def _shape(base: str, name: str) -> re.Pattern[str]:
    """A pattern for names that differ from this one only in their digits, not in base's digits."""
    stem, suffix = os.path.splitext(base)
    if name.startswith(base):
        before, after = base, ""
    elif name.startswith(stem) and name.endswith(suffix) and len(name) >= len(base):
        before, after = stem, suffix
    else:
        before, after = stem if name.startswith(stem) else "", ""
    middle = name[len(before) : len(name) - len(after)]
    pattern = _DIGITS.pattern.join(map(re.escape, _DIGITS.split(middle)))
    return re.compile(f"{re.escape(before)}{pattern}{re.escape(after)}")


def _after(
    base: str, first: str, versions: list[str], entries: dict[str, _Entry], folder: str
) -> list[str]:
    """The versions that had the name after the first, in order."""
    versions = sorted(versions, key=_numbers)
    # An empty file has no lines; the one before it may have been written later.
    filled = [name for name in versions if entries[name].size or name == first]
    times = [entries[name].changed for name in filled]
    up = sum(one < other for one, other in pairwise(times))
    down = sum(one > other for one, other in pairwise(times))
    is_dated = any(len(digits) >= _DATE for digits in _DIGITS.findall(first.removeprefix(base)))
    if up < down or (up == down and not is_dated):
        versions.reverse()
        filled.reverse()
    by_time = sorted(filled, key=lambda name: entries[name].changed)
    after = filled[filled.index(first) :]
    if by_time[by_time.index(first) :] != after:
        raise Untraceable(
            f"the names and the times of {_listed(folder, filled)} disagree about their order. "
            "`touch` them in the order in which they were written, and start again"
        )
    return [name for name in versions[versions.index(first) + 1 :] if entries[name].size]


def _numbers(name: str) -> list[tuple[int, str]]:
    """A key that compares digits as numbers, also of base 16."""
    return [(len(digits.lstrip("0")), digits.lstrip("0")) for digits in _DIGITS.findall(name)]


def _check_strangers(
    base: str,
    first: str,
    versions: list[str],
    shape: re.Pattern[str],
    entries: dict[str, _Entry],
    folder: str,
) -> None:
    """Raise Untraceable if another file was changed after the first that may have had the name."""
    beside = re.compile(rf"{re.escape(base)}[^\w].*\d.*", re.DOTALL)
    for name, entry in entries.items():
        if name in versions or name == base or entry.changed <= entries[first].changed:
            continue
        plain = os.path.splitext(name)[0]
        is_packed = name.endswith(_COMPRESSED)
        if not (beside.fullmatch(name) or (is_packed and shape.fullmatch(plain))):
            continue
        path = os.path.join(folder, name)
        if not is_packed:
            raise Untraceable(
                f"{_listed(folder, [first])} has what was read, but nothing tells whether {path} "
                "was written after it, under the same name. Move what was not out of the folder; "
                "rename what was like the first; and start again"
            )
        if plain not in entries:
            raise Untraceable(
                f"{_listed(folder, [first])} has what was read, but {path}, which was rotated "
                "after it, is compressed. Decompress it there, as by `gunzip`, and start again"
            )


def _listed(folder: str, names: Iterable[str]) -> str:
    paths = sorted(os.path.join(folder, name) for name in names)
    return " and ".join([", ".join(paths[:-1]), paths[-1]] if len(paths) > 1 else paths)
