"""A backend with its states in a changelog of Kafka, and a copy of them in a local file.

A commit is one transaction: the changes of states, the marks, the results of sinks, and the offsets
of the group, by which the brokers refuse a member that has lost its partitions (KIP-447). The copy
is written after it. A partition that comes is read from where the copy ends: from the beginning, if
there is no copy of it. Source: KIP-447, and the state stores of Kafka Streams.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from tempfile import TemporaryDirectory
from threading import Event, Lock
from time import monotonic
from typing import Any, cast
from uuid import uuid4

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.file_lock import locked
from penstock.streams.state.backend import (
    MOST_OVER,
    KeptStage,
    Moved,
    NotNow,
    OfMany,
    Restoring,
    Unit,
)
from penstock.streams.state.copied import Copied
from penstock.streams.state.copy import Copy
from penstock.streams.state.kafka.changelog import Change
from penstock.streams.state.kafka.standby import Standby
from penstock.streams.state.kafka.topic import Topic
from penstock.streams.state.kafka.transactions import Transactions

__all__ = ["Kafka"]


class Kafka(Copied):
    """States in the changelog `topic` on these `servers`, with a copy in the folder `local`;
    without one they can only be read."""

    most_rows: int | None = None

    def __init__(
        self,
        servers: str,
        topic: str,
        local: str | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        standby: bool = False,
    ) -> None:
        self.database: tuple[Any, ...] | None = ("kafka", servers)
        self._topic = Topic(servers, topic, config or {}, is_looked_at=local is None)
        # Who only reads has a folder for as long as it is open.
        self._temporary = None if local else TemporaryDirectory(prefix="penstock-")
        self._folder = local or cast(TemporaryDirectory[str], self._temporary).name
        super().__init__(Copy(os.path.join(self._folder, "states"), "Kafka"))
        self._lock: int | None = None
        self._is_prepared = False
        # Of the above, which several partitions need that come together.
        self._preparing = Lock()
        self._stages: dict[str, KeptStage] = {}
        self._adopted: set[int] = set()
        # Those and the ones that are being adopted.
        self._own: set[int] = set()
        self._keeps_standby = standby
        self._standby: Standby | None = None
        # Adopted partitions whose stages are written.
        self._told: set[int] = set()
        self._stops: dict[int, Event] = {}
        self._progress: dict[int, Restoring] = {}
        self._transactions = Transactions(self._topic, self._has_commit)

    def open_to_read(self) -> None:
        """Read all that is committed, of all partitions. Raises CannotOpen if there is no topic."""
        topic, count = self._topic.prepare(None)
        self._copy.open(topic)
        for partition in range(count):
            self._catch_up(partition, lambda: False)
        self._progress.clear()
        self._adopted = set(range(count))
        self._show()

    def open(self) -> None:
        if self._temporary is not None:
            raise OfMany(
                f"The states in the topic {self._topic.name!r} are those of the members of a group."
            )
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise CannotOpen(f"Cannot make the folder {self._folder}: {error.strerror}.") from error
        self._lock = locked(
            os.path.join(self._folder, "lock"),
            "another run has its copy there. Give each member a folder of its own by local=.",
        )
        self._transactions.id = self._read_id()
        self._transactions.begin()
        self._adopted.clear()
        self._told.clear()
        self._is_prepared = False
        found = self._topic_known()
        self._copy.open(found)
        self._show()

    def _topic_known(self) -> str:
        """The id of the topic that is there, or "" if it is to be made."""
        try:
            return self._topic.prepare(None)[0]
        except CannotOpen as error:
            if "There is no topic" in str(error):
                return ""
            raise

    def _read_id(self) -> str:
        """The transactional id of this folder: the start of a run ends what the one before it has
        left open."""
        path = os.path.join(self._folder, "id")
        try:
            with open(path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            made = f"penstock-{self._topic.name}-{uuid4().hex}"
            with open(path, "w", encoding="ascii") as file:
                file.write(made)
            return made

    def close(self) -> None:
        for stop in list(self._stops.values()):
            stop.set()
        if self._standby is not None:
            self._standby.close()
            self._standby = None
        self._transactions.close()
        self._adopted.clear()
        self._own.clear()
        self._copy.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Stages.

    def stages(self) -> list[KeptStage]:
        return self._copy.stages()

    def declare(self, stages: Iterable[KeptStage]) -> None:
        for stage in stages:
            self._stages[stage.name] = stage
        self._copy.declare(self._stages.values())
        self._told.clear()

    def forget(self, stage: str) -> None:
        keys: dict[int, list[bytes]] = {}
        for row in self._copy.scan(stage):
            if row.partition is not None:
                keys.setdefault(row.partition, []).append(row.key)
        units = {number: Unit(gone={stage: gone}) for number, gone in keys.items()}
        self._stages.pop(stage, None)
        if units:
            self._write(Unit(partitions=units))
        self._copy.forget(stage)

    # Partitions.

    def adopt(self, partition: int, count: int) -> None:
        stop = self._stops[partition] = Event()
        try:
            with self._preparing:
                if not self._is_prepared:
                    topic = self._topic.prepare(count, stop.is_set)[0]
                    self._copy.expect(topic)
                    self._is_prepared = True
                self._own.add(partition)
                if self._keeps_standby and self._standby is None:
                    self._standby = Standby(self._topic, self._copy, count, self._own)
            if self._standby is not None:
                self._standby.leave()
            self._catch_up(partition, stop.is_set)
            self._check_stages(partition)
            if stop.is_set():
                raise Moved([partition])
            self._adopted.add(partition)
            self._told.discard(partition)
            self._show()
        except BaseException:
            self._own.discard(partition)
            raise
        finally:
            if self._stops.get(partition) is stop:
                del self._stops[partition]
            self._progress.pop(partition, None)

    def _catch_up(
        self, partition: int, is_stopped: Callable[[], bool], commit: bytes | None = None
    ) -> bool:
        """Read what the copy does not have of a partition; returns whether this commit is in it."""
        began, found = monotonic(), False
        first, end = self._topic.end(partition, is_stopped)
        at = self._copy.next(partition)
        if at is None or not first <= at <= end:
            # What it had was deleted, or is of another topic of this name.
            self._copy.clear(partition)
            at = first
        total = end - at
        start = at

        def apply(change: Change, next_: int) -> None:
            nonlocal found
            found = found or commit in change.commits
            self._copy.change(partition, change, next_)
            self._progress[partition] = Restoring(
                partition, next_ - start, total, monotonic() - began
            )

        self._progress[partition] = Restoring(partition, 0, total, 0.0)
        self._topic.read(partition, at, end, apply, is_stopped)
        return found

    def _check_stages(self, partition: int) -> None:
        """Raise CannotOpen for states of a stage that this run does not have."""
        for stage in self._copy.stages_in(partition):
            # Nothing was declared by who only looks into it.
            if self._stages and stage not in self._stages:
                raise CannotOpen(
                    f"The topic {self._topic.name!r} has states of the stage {stage!r}, which the "
                    "pipeline does not have: its stages with state are "
                    f"{', '.join(map(repr, self._stages))}. If the stage has another name now, "
                    "give it the old one by name=; or use another topic."
                )

    def release(self, partition: int) -> None:
        self._adopted.discard(partition)
        if partition not in self._stops:
            self._own.discard(partition)
        stop = self._stops.get(partition)
        if stop is not None:
            stop.set()
        self._show()

    def _show(self) -> None:
        self._copy.partitions = frozenset(self._adopted)

    def marks_of(self, partition: int) -> list[tuple[str, bytes]]:
        return self._copy.marks_of(partition)

    def restoring(self) -> list[Restoring]:
        return sorted(self._progress.values())

    def standby_lag(self) -> int | None:
        return None if self._standby is None else self._standby.lag

    def backup(self, path: str) -> None:
        """Write a copy of the current state to a new file. Raises CannotOpen."""
        if os.path.exists(path):
            raise CannotOpen(
                f"Cannot copy the states in the topic {self._topic.name!r} to {path}: it exists."
            )
        self._copy.backup(path)

    # Committing.

    def give_up(self) -> None:
        self._transactions.give_up()

    def _is_given_up(self) -> bool:
        return self._transactions.is_given_up

    def commit(self, unit: Unit) -> None:
        moved = [number for number in unit.partitions if number not in self._adopted]
        if moved:
            raise Moved(moved)
        self._add_over(unit)
        if not unit.partitions:
            if not unit.parts:
                return
            if not self._adopted:
                raise NotNow("this member has no partition now")
            # By its record in the changelog it is known whether it has happened.
            unit.partitions[min(self._adopted)] = Unit()
        if not any(places for _, places in unit.fences):
            raise NotNow("this member is not in the group now")
        self._write(unit)

    def _add_over(self, unit: Unit) -> None:
        """Delete rows that are over, except for those that the unit writes."""
        for stage, until in unit.over.items():
            written = {
                columns[0]
                for one in unit.partitions.values()
                for columns in one.rows.get(stage, ())
            }
            for number, key in self._copy.over(stage, until, MOST_OVER):
                if key not in written:
                    of_it = unit.partitions.setdefault(number, Unit())
                    of_it.gone.setdefault(stage, []).append(key)

    def _write(self, unit: Unit) -> None:
        new = unit.partitions.keys() - self._told
        next_ = self._transactions.write(unit, self._stages.values(), new)
        self._copy.write(unit.partitions, next_)
        self._told |= unit.partitions.keys()

    def _has_commit(self, partitions: Collection[int], commit: bytes) -> bool:
        """Whether the changelog has a commit, which is in the copy then. Raises Moved if nobody
        waits for the brokers any longer."""
        first, *others = partitions
        found = self._catch_up(first, self._is_given_up, commit)
        if found:
            for other in others:
                self._catch_up(other, self._is_given_up)
        for number in partitions:
            self._progress.pop(number, None)
        return found
