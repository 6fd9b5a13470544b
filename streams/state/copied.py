"""What a backend reads from the copy of its states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.streams.state.backend import Row
from penstock.streams.state.copy import Copy

__all__ = ["Copied"]


class Copied:
    """The rows and marks of the partitions in a copy; none before there is one."""

    in_thread = True
    reads_in_thread = False

    def __init__(self, copy: Copy | None = None) -> None:
        self._file = copy

    @property
    def _copy(self) -> Copy:
        assert self._file is not None
        return self._file

    @property
    def _shown(self) -> Copy | None:
        # While it is being opened it has none yet.
        return self._file if self._file and self._file.partitions else None

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        return copy.read(stage, keys) if (copy := self._shown) else []

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return copy.due(stage, after, until, most) if (copy := self._shown) else []

    def mark(self, partition: str) -> bytes | None:
        return dict(self.marks()).get(partition)

    def marks(self) -> list[tuple[str, bytes]]:
        return copy.marks() if (copy := self._shown) else []

    def scan(self, stage: str) -> Iterator[Row]:
        return copy.scan(stage) if (copy := self._shown) else iter(())

    def size(self, stage: str) -> tuple[int, int]:
        return copy.size(stage) if (copy := self._shown) else (0, 0)
