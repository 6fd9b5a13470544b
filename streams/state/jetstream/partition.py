"""One partition of the states in a stream: its head, its commits, and its local copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import NamedTuple

from orjson import dumps, loads

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import (
    KeptStage,
    Row,
    Unit,
    another_count,
    another_run,
    other_format,
)
from penstock.streams.state.copy import Copy
from penstock.streams.state.jetstream.batch import MOST
from penstock.streams.state.jetstream.messages import (
    FORGOTTEN,
    Head,
    New,
    Subjects,
    kind_of,
    mark_in,
    row_in,
    stage_in,
)
from penstock.streams.state.jetstream.reading import Stored, stored
from penstock.streams.state.jetstream.stream import NewHead, Stream

__all__ = ["FORMAT", "MOST_ROWS", "Followed", "Partition", "in_parts", "write"]

FORMAT = 1

MOST_ROWS = MOST - 1
"""The most rows, deletions and marks of one commit: the head is the other message."""

# Seconds by which clocks of servers may differ, and more.
_MARGIN = 86_400

Progress = Callable[[int, int], None]
"""Called with how many messages were read, and how many are left."""


class At(NamedTuple):
    """How far a copy is: when the stream was created, which run's commits it has, the sequence of
    its last message, and when that was stored."""

    born: str
    run: str
    sequence: int
    stored: float


class Followed(CannotOpen):
    """Another run has followed this one."""


class Partition:
    """The states of a `partition`, for one run that writes them, or to be read, with the `number`
    of it in the copy; it is one of `count`, 0 if it is the only one.

    The commits are numbered: each expects the one before it to be the last, so a run that another
    one has followed writes nothing more.
    """

    def __init__(
        self, stream: Stream, partition: str, copy: Copy, number: int = 0, count: int = 0
    ) -> None:
        self.subjects = Subjects(stream.name, partition)
        self.number = number
        self._copy = copy
        # The names of stages by their tokens in subjects.
        self._by_token: dict[str, str] = {}
        self._stream = stream
        self._head = Head(FORMAT, "", 0, [], count)
        self._last = 0
        self._stored = 0.0

    async def claim(self) -> None:
        """Let this run be the one that writes, from now on. Raises CannotOpen, also if there was
        another number of partitions."""
        run = os.urandom(8).hex()
        found = await self._stream.head(self.subjects.head)
        while True:
            new, last = self._head._replace(run=run), 0
            if found is not None:
                head, last, _ = found
                self._check(head)
                new = head.followed(run, last)
            (written,) = await self._stream.commit([], [NewHead(self.subjects.head, new, last)])
            if isinstance(written, int):
                break
            found = written
        self.has_written(new, written)
        found = await self._stream.head(self.subjects.head)
        if found is None or found[1] != written:
            raise Followed(str(another_run(self._stream.where)))
        self._stored = found[2]

    def _check(self, head: Head) -> None:
        if head.format != FORMAT:
            raise other_format(self._stream.where, head.format, FORMAT)
        if head.partitions != self._head.partitions:
            raise another_count(self._stream.where, head.partitions, self._head.partitions)

    async def restore(self, progress: Progress = lambda read, left: None) -> None:
        """Read into the copy what the stream has and the copy has not."""
        first = self._continued()
        name, client = self._stream.name, self._stream.client
        stages = stored(client, name, [self.subjects.stages], 1)
        self._add_stages([one async for some in stages for one in some])
        read = 0
        async with aclosing(stored(client, name, self.subjects.of_partition, first)) as messages:
            async for some in messages:
                last = some[-1]
                at = self._at(last.sequence, last.stored)
                self._copy.write({self.number: self._unit_of(some)}, {self.number: at})
                read += len(some)
                progress(read, last.left)

    def _add_stages(self, messages: list[Stored]) -> None:
        """Have the stages of the stream in the copy, all of which are given, and no others."""
        stages: list[KeptStage] = []
        for message in messages:
            if (stage := stage_in(message.body)) is not None:
                stages.append(stage)
                self._by_token[self.subjects.stage_of(message.subject)] = stage.name
        names = {stage.name for stage in stages}
        for stage in self._copy.stages():
            if stage.name not in names:
                self._copy.forget(stage.name)
        self._copy.declare(stages)

    def _unit_of(self, messages: list[Stored]) -> Unit:
        """What messages of the stream write, in its order."""
        rows: dict[str, dict[bytes, Row | None]] = {}
        unit = Unit()
        for message in messages:
            kind = kind_of(message.subject)
            if kind == "state":
                stage = self._by_token.get(self.subjects.stage_of(message.subject))
                if stage is None:
                    # It is forgotten.
                    continue
                row = row_in(message.body)
                of_stage = rows.setdefault(stage, {})
                if isinstance(row, Row):
                    of_stage[row.key] = row
                else:
                    of_stage[row] = None
            elif kind == "mark":
                partition, mark = mark_in(message.body)
                unit.marks[partition] = mark
        for stage, of_stage in rows.items():
            unit.rows[stage] = [row for row in of_stage.values() if row is not None]
            unit.gone[stage] = [key for key, row in of_stage.items() if row is None]
        return unit

    def _at(self, sequence: int, when: float) -> str:
        """How far a copy is with a message, as text."""
        at = At(self._stream.born, self._head.run, sequence, when)
        return dumps(tuple(at)).decode()

    def _continued(self) -> int:
        """The sequence from which the copy is continued: 1 if it is not of this stream, or may be
        of what this has lost, or so old that deletions since then are forgotten."""
        found = self._copy.next(self.number)
        if found is not None:
            at = At(*loads(found))
            is_of_it = at.born == self._stream.born and self._head.has(at.run, at.sequence)
            if is_of_it and self._stored - at.stored < FORGOTTEN - _MARGIN:
                return at.sequence + 1
            self._copy.clear(self.number)
        return 1

    def messages(self, unit: Unit) -> list[New]:
        """The messages of a unit. Raises CannotOpen if they are more than one commit can have."""
        subjects = self.subjects
        found = [subjects.row(stage, row) for stage, rows in unit.rows.items() for row in rows]
        found += [subjects.gone(stage, key) for stage, keys in unit.gone.items() for key in keys]
        if len(found) + len(unit.marks) > MOST_ROWS:
            raise CannotOpen(
                f"A commit to the store {self._stream.where} has {len(found):,} states and "
                f"{len(unit.marks)} marks: more than {MOST_ROWS} are not stored as one fact."
            )
        found += [subjects.mark(*mark) for mark in unit.marks.items()]
        return found

    @property
    def run(self) -> str:
        """The id of the run that writes it."""
        return self._head.run

    def next_head(self) -> NewHead:
        """The head of the next commit."""
        head = self._head
        return NewHead(self.subjects.head, head._replace(commits=head.commits + 1), self._last)

    def has_written(self, head: Head, sequence: int) -> str:
        """Note that this head is stored; returns how far a copy with its commit is."""
        self._head, self._last = head, sequence
        return self._at(sequence, self._stored)

    def stages_as_new(self, stages: list[KeptStage]) -> list[New]:
        """The messages of stages that the copy has not, or not like that."""
        known = self._copy.stages()
        return [self.subjects.stage(one) for one in stages if one not in known]


async def write(
    stream: Stream, parts: Sequence[tuple[Partition, list[New]]]
) -> dict[int, object] | list[Partition]:
    """Store messages of partitions as one fact; returns how far the copy is with it, by partition,
    or which of them other runs have followed: then nothing is stored. Raises CannotOpen if the
    stream has lost what it had, and what `Stream.commit` raises."""
    heads = [partition.next_head() for partition, _ in parts]
    written = await stream.commit([one for _, messages in parts for one in messages], heads)
    ats: dict[int, object] = {}
    moved: list[Partition] = []
    for (partition, _), new, found in zip(parts, heads, written, strict=True):
        if isinstance(found, int):
            ats[partition.number] = partition.has_written(new.head, found)
        elif found is not None and found[0].run != partition.run:
            moved.append(partition)
    if len(ats) == len(parts):
        return ats
    if not moved:
        raise stream.lost()
    return moved


def in_parts(keys: list[bytes]) -> list[list[bytes]]:
    """Keys, as many at a time as one commit deletes."""
    rest = iter(keys)
    parts: list[list[bytes]] = []
    while part := list(islice(rest, MOST_ROWS)):
        parts.append(part)
    return parts
