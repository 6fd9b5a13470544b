"""What can be read or written, and how it is named in messages."""

from __future__ import annotations

import os

from streams.standard import actual_input, actual_output

__all__ = ["Path", "input_name", "output_name"]

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
