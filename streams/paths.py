"""What can be read or written, and how it is named in messages."""

from __future__ import annotations

import os
import stat

from streams.errors import BuildError
from streams.standard import actual_input, actual_output

__all__ = ["Path", "input_name", "output_name", "refuse_same_file"]

Path = str | os.PathLike[str] | int
"""A file's name, "-" for a standard stream, or an open descriptor, which stays open."""


def input_name(path: Path) -> str:
    """An input's name; its suffix tells how it is compressed."""
    path = actual_input(path)
    return "standard input" if path == "-" else _name(path)


def output_name(path: Path) -> str:
    """An output's name; its suffix tells how it is compressed."""
    path = actual_output(path)
    return "standard output" if path == "-" else _name(path)


def _name(path: Path) -> str:
    return f"descriptor {path}" if isinstance(path, int) else os.fspath(path)


def refuse_same_file(read: Path | None, written: Path | None) -> None:
    """BuildError if what is written would destroy what is read: they are one regular file."""
    if read is None or written is None:
        return
    try:
        source, target = _status(actual_input(read), 0), _status(actual_output(written), 1)
    except OSError:
        return
    if stat.S_ISREG(source.st_mode) and os.path.samestat(source, target):
        raise BuildError(
            f"{input_name(read)} and {output_name(written)} are the same file: writing would "
            "destroy it before it is read. Write to another one."
        )


def _status(path: Path, standard: int) -> os.stat_result:
    return os.stat(standard if path == "-" else path)
