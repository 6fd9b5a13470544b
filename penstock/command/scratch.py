"""The temporary folder of a run with workers, which a later run removes if this one could not."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.streams.nats.client.server import is_free

__all__ = ["scratch"]

_PREFIX = "penstock-"
# A marker in folders that may be removed: a user's folder may have such a name too.
_MARK = "temporary"


@contextmanager
def scratch() -> Generator[Path]:
    """A folder for servers, as long as the block lasts.

    Removes those of other runs that were killed together with their watching process.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        (folder / _MARK).touch()
        yield folder


def _is_abandoned(folder: Path) -> bool:
    if sys.platform == "win32":
        return False
    with suppress(OSError):
        status = folder.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        return ours and (folder / _MARK).is_file() and is_free(folder)
    return False
