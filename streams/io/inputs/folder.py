"""Positions in several files: a folder, with one small file for each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.file_lock import locked
from penstock.streams.io.inputs.opened import Opened
from penstock.streams.io.inputs.patterns import path_of
from penstock.streams.io.kept_position import InFile, saved_in
from penstock.streams.runtime.context import Run

__all__ = ["InFolder"]

_SUFFIX = ".position"


class InFolder(InFile):
    """The positions in several files, one after another; each has a file of its own, named by the
    random id that the file was given when it was begun.

    A file is found again by its inode or its path, if `is_read` says that what was read is in it:
    so it may be renamed. One that has the path of another, which is gone, is a new file. Positions
    in files that are gone are removed. Memory: a position for each file.
    """

    def __init__(
        self,
        folder: str,
        run: Run,
        content: Callable[[], bytes],
        is_read: Callable[[dict[str, Any], Opened], bool],
    ) -> None:
        super().__init__(folder, run, content)
        self._folder = folder
        self._is_read = is_read
        self._known: dict[str, dict[str, Any]] | None = None

    def find(self, name: str, opened: Opened) -> dict[str, Any] | None:
        """The position in the file that has just been opened; None if there is none. What was noted
        of the file before is written first. Raises CannotOpen."""
        if self._known is None:
            self._begin_all()
        else:
            self._write()
        assert self._known is not None
        inode, path = opened.inode, path_of(name)
        known = sorted(self._known.values(), key=lambda one: one["inode"] != inode)
        for saved in known:
            # Of a file of which nothing was read, its path says nothing.
            if inode == saved["inode"] or (path == saved["path"] and saved["read"]):
                if self._is_read(saved, opened):
                    return saved
                if path == saved["path"] and inode == saved["inode"]:
                    self._say_changed(name)
        return None

    def called(self, generation: str) -> None:
        """Keep the next positions, which are of the file with this id, in a file of its own."""
        self._path = os.path.join(self._folder, generation + _SUFFIX)

    def again(self, name: str) -> str:
        return f"To read all from the start, remove the folder {self._folder}."

    def _begin_all(self) -> None:
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise CannotOpen(
                f"Cannot keep the positions of several files in {self._folder}: {error.strerror}. "
                "They need a folder."
            ) from error
        self._lock = locked(
            os.path.join(self._folder, "lock"),
            "another run keeps its positions there. Wait until it has ended, or give this one "
            "another folder.",
        )
        self._known = dict(self._saved_ones())

    def _saved_ones(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for entry in os.listdir(self._folder):
            path = os.path.join(self._folder, entry)
            if not entry.endswith(_SUFFIX) or (saved := saved_in(path)) is None:
                continue
            if os.path.exists(os.path.dirname(saved["path"])) and not _is_there(saved):
                with suppress(OSError):
                    os.unlink(path)
                continue
            yield saved["generation"], saved

    def _say_changed(self, name: str) -> None:
        self._run.errors.warn(
            f"{name} has other content than what was read of it before: it is read from its start."
        )


def _is_there(saved: dict[str, Any]) -> bool:
    """Whether the file may be in its folder still, under any name."""
    if os.path.exists(saved["path"]):
        return True
    with os.scandir(os.path.dirname(saved["path"])) as entries:
        return any(entry.inode() == saved["inode"] for entry in entries)
