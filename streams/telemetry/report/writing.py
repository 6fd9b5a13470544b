"""Writes the report page of a run when that has ended, whatever ended it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.streams.base.errors import BuildError
from penstock.streams.io.paths import is_same_file
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.telemetry.report.history import History
from penstock.streams.telemetry.report.page import report_page

if TYPE_CHECKING:
    from penstock.streams.running.handle import Handle

__all__ = ["PageWriter", "check_path", "write_page"]


class PageWriter:
    """The page of one run, at its path. Raises BuildError if it could not be written there."""

    def __init__(
        self,
        running: Handle,
        path: str | os.PathLike[str],
        title: str | None,
        *,
        show_values: bool,
    ) -> None:
        self._running = running
        self._path = os.fspath(path)
        self._title = title
        self._show_values = show_values
        self._history = History()
        check_path(self._path, running.describe())
        recorder = running.record()
        recorder.on_sample.append(self._add)
        self._recorder = recorder

    def _add(self) -> None:
        self._history.add(self._recorder.samples[-1])

    def write(self) -> None:
        """Write it, in place of one that is there. Raises OSError."""
        self._history.end()
        page = report_page(
            self._running.report(),
            self._running.describe(),
            self._recorder,
            self._history,
            self._title,
            show_values=self._show_values,
        )
        write_page(page, self._path)


def check_path(path: str, stages: Iterable[StageInfo] = ()) -> None:
    """Raise BuildError if no page can be written there, or it is a file of one of the stages."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise BuildError(f"cannot write {path}: it is a folder")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BuildError(f"cannot write {path}: it is not a file, which a page would replace")
    if not os.path.isdir(folder):
        raise BuildError(f"cannot write {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise BuildError(f"cannot write {path}: {folder} is not writable")
    for stage in all_stages(stages):
        for file in (stage, *stage.routed):
            is_input = file.is_source
            if file.files.path is not None and is_same_file(
                path, file.files.path, is_input=is_input
            ):
                raise BuildError(
                    f"cannot write a report page to {path}: it is a file of the pipeline, of {file}"
                )


def write_page(page: str, path: str) -> None:
    """Write a page so that a reader sees all of it or what was there before. Raises OSError."""
    # A link stays one.
    path = os.path.realpath(path)
    new = f"{path}.{os.getpid()}.new"
    try:
        Path(new).write_text(page, encoding="utf-8")
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
