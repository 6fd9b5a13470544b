"""A backend in a JetStream stream whose states move with partitions from run to run.

    adopt(3) ──> head of 3 ──> restore ──> 3 in the copy ──> reads
    commit ──> one batch: states, marks, and a head for each partition ──> stream, then the copy

Each partition has a head of its own, which who adopts it writes. A batch expects the last head of
each of its partitions, so it is refused as a whole if another run has adopted one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from threading import Event, Lock
from time import monotonic

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import (
    MOST_OVER,
    KeptStage,
    Moved,
    Restoring,
    Unit,
)
from penstock.streams.state.jetstream.backend import WHOLE, Streaming
from penstock.streams.state.jetstream.batch import MOST
from penstock.streams.state.jetstream.messages import New, Subjects, stage_in
from penstock.streams.state.jetstream.partition import Followed, Partition, in_parts
from penstock.streams.state.jetstream.reading import stored

__all__ = ["MovingJetStream"]


class _Adopting:
    """A partition that is being restored."""

    def __init__(self) -> None:
        self.is_released = False
        self.ended = Event()
        self.began = monotonic()
        self.done = self.left = 0


class MovingJetStream(Streaming):
    """States of the partitions that were adopted, with a copy in the folder `local`, or in a
    temporary one."""

    def __init__(self, url: str, local: str | None = None) -> None:
        super().__init__(url, local)
        self._stages: list[KeptStage] = []
        # Partitions come at the same time: of the connection, and of those that are here.
        self._one, self._showing = Lock(), Lock()
        self._is_connected = False
        # Replaced, never changed: others read them meanwhile.
        self._partitions: dict[int, Partition] = {}
        self._adopting: dict[int, _Adopting] = {}

    @property
    def most_rows(self) -> int:
        # Each partition has a head and a mark.
        return MOST - 2 * max(1, len(self._partitions))

    def open(self) -> None:
        """Nothing is asked of the servers before a partition comes: they may be away."""
        self._begin()

    def _connect(self) -> None:
        """Connect, and compare the stages with those that are stored. Raises CannotConnect, and
        other BuildErrors for what does not pass."""
        with self._one:
            if self._is_connected:
                return
            self._call(self._stream.close())
            self._call(self._stream.open(makes=True))
            if self._file is None:
                self._open_copy(is_one_of_several=True)
            self._copy.expect(self._stream.born)
            if WHOLE in self._call(self._stream.heads()):
                raise CannotOpen(
                    f"The states in {self._stream.where} are those of a pipeline in one process, "
                    "and do not move with partitions: give the pipeline on many machines another "
                    "store."
                )
            stored_ = {one.name: one for one in self._call(self._read_stages())}
            for stage in self._stages:
                self._check(stage, stored_.get(stage.name, stage))
            self._is_connected = True
            new = [one for one in self._stages if stored_.get(one.name) != one]
            self._stages = list({**stored_, **{one.name: one for one in self._stages}}.values())
            self._store_stages(new)
            self._copy.declare(self._stages)

    def _check(self, stage: KeptStage, before: KeptStage) -> None:
        if before.by != stage.by or before.version > stage.version:
            raise CannotOpen(
                f"The store {self._stream.where} has states of the stage {stage.name!r} by "
                f"{before.by}, version {before.version}, and now it keeps them by {stage.by}, "
                f"version {stage.version}: run the program that wrote them, or give the stage "
                "another name="
            )

    async def _read_stages(self) -> list[KeptStage]:
        subjects = [f"{self._stream.name}.stage.*"]
        messages = stored(self._stream.client, self._stream.name, subjects, 1)
        found = [stage_in(one.body) async for some in messages for one in some]
        return [stage for stage in found if stage is not None]

    def _store_stages(self, new: list[KeptStage]) -> None:
        subjects = Subjects(self._stream.name, WHOLE)
        self._call(self._stream.publish([subjects.stage(one) for one in new]))

    def close(self) -> None:
        for adopting in list(self._adopting.values()):
            # It ends when there is no connection any more.
            adopting.is_released = True
        for number in list(self._partitions):
            self._let_go(number)
        super().close()
        self._is_connected = False
        self._stages = []

    def stages(self) -> list[KeptStage]:
        return list(self._stages)

    def declare(self, stages: Iterable[KeptStage]) -> None:
        new = [stage for stage in stages if stage not in self._stages]
        self._stages = list({one.name: one for one in (*self._stages, *new)}.values())
        if self._is_connected:
            self._store_stages(new)
            self._copy.declare(self._stages)

    def forget(self, stage: str) -> None:
        self._delete(stage, [(row.partition or 0, row.key) for row in self._copy.scan(stage)])
        subjects = Subjects(self._stream.name, WHOLE)
        self._call(self._stream.publish([subjects.forget(stage)]))
        self._stages = [one for one in self._stages if one.name != stage]
        self._copy.forget(stage)

    # Partitions.

    def adopt(self, partition: int, count: int) -> None:
        adopting = self._adopting[partition] = _Adopting()

        def progress(done: int, left: int) -> None:
            adopting.done, adopting.left = done, left
            if adopting.is_released:
                raise Moved([partition])

        try:
            self._connect()
            adopted = Partition(self._stream, str(partition), self._copy, partition, count)
            progress(0, 0)
            self._call(adopted.claim())
            self._call(adopted.restore(progress))
            progress(adopting.done, 0)
            with self._showing:
                self._copy.declare(self._stages)
                self._show({**self._partitions, partition: adopted})
        except BaseException as error:
            if isinstance(error, Followed) or adopting.is_released:
                # The next owner has begun.
                raise Moved([partition]) from error
            raise
        finally:
            if self._adopting.get(partition) is adopting:
                del self._adopting[partition]
            adopting.ended.set()

    def release(self, partition: int) -> None:
        if (adopting := self._adopting.get(partition)) is not None:
            adopting.is_released = True
            # Or it might still take the place of the next owner.
            adopting.ended.wait()
        self._let_go(partition)

    def _let_go(self, partition: int) -> None:
        with self._showing:
            self._show({n: one for n, one in self._partitions.items() if n != partition})

    def _show(self, partitions: dict[int, Partition]) -> None:
        self._partitions = partitions
        if self._file is not None:
            self._file.partitions = frozenset(partitions)

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return self._copy.marks_of(partition)

    def restoring(self) -> list[Restoring]:
        now = monotonic()
        return [
            Restoring(number, one.done, one.done + one.left, now - one.began)
            for number, one in sorted(self._adopting.items())
        ]

    def standby_lag(self) -> int | None:
        return None

    def backup(self, path: str) -> None:
        """Raises CannotOpen: no run has all of it."""
        raise CannotOpen(f"Cannot copy the store {self._stream.where}: no run has all of it.")

    # Writing.

    def commit(self, unit: Unit) -> None:
        self._refuse_parts(unit)
        if unit.partitions:
            self._write(unit.partitions)
        for stage, until in unit.over.items() if self._partitions else ():
            # Whatever is not deleted now is over at the next commit too.
            self._delete(stage, self._copy.over(stage, until, MOST_OVER))

    def _delete(self, stage: str, keys: list[tuple[int, bytes]]) -> None:
        of: defaultdict[int, list[bytes]] = defaultdict(list)
        for number, key in keys:
            of[number].append(key)
        for number, gone in of.items():
            for part in in_parts(gone):
                self._write({number: Unit(gone={stage: part})})

    def _write(self, units: dict[int, Unit]) -> None:
        moved = [number for number in units if number not in self._partitions]
        if moved:
            raise Moved(moved)
        parts: list[tuple[Partition, list[New]]] = []
        for number, unit in units.items():
            partition = self._partitions[number]
            parts.append((partition, partition.messages(unit)))
        written = self._written(parts)
        if isinstance(written, list):
            moved = [one.number for one in written]
            for number in moved:
                self._let_go(number)
            raise Moved(moved)
        self._copy.write(units, written)
