"""When an output file is ended and the next one begun, and the names of files that were ended.

The file that is written has the name that was given. One that is ended is renamed, and the UTC
time of that comes before its ending: `out.jsonl.gz` becomes `out-2026-11-30T21-00-00.000.jsonl.gz`,
as lumberjack names files, and by it the audit log of Kubernetes. The times in the names never go
back, also where the clock does, so the files are in order by their names. A number would be given
again after the files were moved elsewhere, and could be of two files there.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from penstock.streams.base.errors import BuildError

__all__ = ["FinalNames", "Rotation", "rotation_of"]

_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}

_MEASURE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")

_STAMP = "%Y-%m-%dT%H-%M-%S.%f"
_ONE = timedelta(milliseconds=1)


class Rotation(NamedTuple):
    """A file is ended before it has more than `size` bytes, and when a period of `seconds` ends.

    Periods are counted from 1970, in UTC: one of an hour ends at each full hour.
    """

    size: int | None = None
    seconds: float | None = None

    def period(self, wall: float) -> int:
        """The number of the period that has this time; 0 if there are none."""
        return 0 if self.seconds is None else int(wall // self.seconds)


def rotation_of(option: str, given: Any, end: str = "") -> Rotation:
    """What a text such as "100MB", "1h" or "100MB,1h" says. Raises BuildError, which names the
    option as it was written, up to the `end` behind its value."""
    found = Rotation()
    for part in given.split(",") if isinstance(given, str) else (given,):
        number, unit = _measured(part)
        if unit in _SIZES and number * _SIZES[unit] >= 1 and found.size is None:
            found = found._replace(size=int(number * _SIZES[unit]))
        elif unit in _TIMES and number and found.seconds is None:
            found = found._replace(seconds=number * _TIMES[unit])
        else:
            raise BuildError(
                f"{option}{given!r}{end}: give a size such as 100MB or 64KiB, a time such as 30m, "
                "1h or 1d, or both, as in '100MB,1h'"
            )
    return found


def _measured(text: Any) -> tuple[float, str]:
    found = _MEASURE.fullmatch(text.strip()) if isinstance(text, str) else None
    return (float(found[1]), found[2]) if found else (0.0, "")


class FinalNames:
    """The names for files that had the name `path`, each after all that are there. Time: a folder
    is listed once. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._folder, base = os.path.split(path)
        compressed = next((one for one in _COMPRESSED if base.endswith(one)), "")
        self._stem, suffix = os.path.splitext(base.removesuffix(compressed))
        self._ending = suffix + compressed
        self._last = max(map(self._time_of, os.listdir(self._folder or ".")), default=datetime.min)

    def next(self, wall: float) -> str:
        """The name for a file that is ended at this time, in seconds since 1970."""
        now = datetime.fromtimestamp(wall, UTC).replace(tzinfo=None)
        self._last = max(now, self._last + _ONE)
        stamp = self._last.strftime(_STAMP)[:-3]
        return os.path.join(self._folder, f"{self._stem}-{stamp}{self._ending}")

    def _time_of(self, name: str) -> datetime:
        """The time in the name of a file that was ended; the first of all for any other."""
        before = f"{self._stem}-"
        if not name.startswith(before):
            return datetime.min
        # Another program may have compressed the file since.
        stamp = name.removeprefix(before)[: len("2026-11-30T21-00-00.000")]
        try:
            return datetime.strptime(stamp, _STAMP)
        except ValueError:
            return datetime.min
