"""The trial of a partition whose last holder was lost: see `penstock.streams.delivery.trial`.

The note is stored beside the offset that a member commits. One partition is tried at a time; of the
others nothing is fetched, and nothing begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf
from typing import TYPE_CHECKING, Protocol

from penstock.streams.delivery.trial import HELD, Doubt, Trial
from penstock.streams.kafka.offsets.commits import Commits, Committing
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

__all__ = ["Suspects"]

# Seconds without a record after which there is none below the end of the partition: what is there
# may be the marks of transactions. And seconds without a call of a handler after which what is in
# the pipeline does not end its process: operators hold it, perhaps until the end of the stream.
# Of the time between two looks only so much counts: the loop may have been blocked.
_QUIET, _LOOK = 3.0, 0.5


class Client(Committing, Protocol):
    """The methods of a consumer that are used."""

    async def pause(self, partitions: list[TopicPartition]) -> None: ...
    async def resume(self, partitions: list[TopicPartition]) -> None: ...


class Reader(Protocol):
    """The stage that emits the records."""

    def let_go(self) -> None:
        """Take what has not begun out of the pipeline, to be emitted again when it may be."""
        ...

    def give_up(self, partition: Partition, offset: int, lost: int, /) -> bool:
        """Let the record of this offset end without beginning: it has ended so many processes.
        Returns False if the record is not at hand now."""
        ...

    def wake_soon(self) -> None:
        """Records may be emitted."""
        ...


class Suspects:
    """The notes of one member about its partitions, and what of them may begin.

    `patience` is the seconds after which more may begin beside records that take longer, and that
    are in a call of a handler.
    """

    def __init__(self, run: Run, reader: Reader, attempts: int, patience: float) -> None:
        self.trial: Partition | None = None
        """The only partition whose records may begin, if there is one."""
        self.withholds = False
        """Whether there are records that may not begin."""
        self._run = run
        self._now = run.now
        self._reader = reader
        self._attempts = attempts
        self._patience = patience
        # Partitions that are not read during the trial.
        self._silent: set[Partition] = set()
        self._given_up: tuple[Partition, int] | None = None
        self._search: Trial | None = None
        # Since when some of its records have begun.
        self._began = inf
        # The seconds that were looked at, until the last look; and at which of them a handler was
        # called last, and there was no record to begin.
        self._seen, self._looked_at = 0.0, run.now()
        self._called_at = self._quiet_since = inf

    def take(self, partition: Partition, note: Doubt | None, end: int | None) -> None:
        """A partition has come, with the note of its last holder if that has left one. Nothing of
        it begins before it is noted that it is held."""
        partition.reach, partition.is_noted, self.withholds = 0, False, True
        if note is None:
            partition.note = HELD
        else:
            partition.note, partition.doubted_until = note.after(), inf if end is None else end

    def may_begin(self, token: Token) -> bool:
        """Whether the record may be emitted."""
        partition = token.partition
        return token.offset < partition.reach and self.trial in (None, partition)

    def may_be_fetched(self, partition: Partition) -> bool:
        """Whether records of this partition are wanted from the client."""
        return self.trial in (None, partition)

    def take_out(self, partitions: Iterable[Partition]) -> None:
        """These partitions are given up: only what is in doubt is left for the next holder."""
        for partition in partitions:
            note = partition.note
            if note is not None and not partition.inside:
                partition.note = note._replace(reach=-1, begun=0) if note.lost else None

    async def step(
        self,
        client: Client,
        commits: Commits,
        partitions: Collection[Partition],
        *,
        is_paused: bool,
    ) -> None:
        """Note what may begin next, if anything is waiting for it. `is_paused`: nothing is fetched
        of any partition."""
        now = self._now()
        self._seen += min(_LOOK, now - self._looked_at)
        self._looked_at = now
        held = [one for one in partitions if one.held]
        # What the first offset is of a group that is new is known when there is a record.
        new = [one for one in held if not one.is_noted and one.mark() is not None]
        if new and await commits.confirm(client, new):
            for partition in new:
                partition.is_noted = True
                if partition.note == HELD:
                    partition.reach = inf
                    self._reader.wake_soon()
        doubted = [one for one in held if one.is_noted and one.note is not None and one.note.lost]
        if self.trial is not None and self.trial not in doubted:
            # Its partition has gone to another member: the others may go on.
            self.trial = None
            self._reader.wake_soon()
        if self.trial is None and doubted:
            # First the partition that most is known about.
            self._begin(min(doubted, key=lambda one: one.note.suspects or inf if one.note else inf))
        await self._silence(client, held, is_paused=is_paused)
        if self.trial is not None:
            await self._go_on(client, commits, self.trial, held)
        self.withholds = any(one.reach < inf for one in partitions)

    def _begin(self, partition: Partition) -> None:
        assert partition.note is not None
        self.trial = partition
        self._search = Trial(
            partition.ledger, partition.note, self._attempts, partition.doubted_until
        )
        self._began, self._called_at, self._quiet_since = self._now(), self._seen, inf
        self._reader.let_go()

    async def _silence(self, client: Client, held: list[Partition], *, is_paused: bool) -> None:
        """Fetch nothing of the others during a trial."""
        others = {one for one in held if self.trial not in (None, one)}
        if more := [one.place() for one in others - self._silent]:
            await client.pause(more)
        less = [one.place() for one in self._silent - others if one in held]
        if less and not is_paused:
            await client.resume(less)
        self._silent = others

    async def _go_on(
        self, client: Client, commits: Commits, partition: Partition, held: list[Partition]
    ) -> None:
        search = self._search
        assert search is not None
        if self._run.calls:
            self._called_at = self._seen
        # What began before the trial would not be alone either.
        is_done = search.have_ended if search.reach else not any(one.inside for one in held)
        is_quiet = self._seen >= self._called_at + _QUIET
        if not (is_done or is_quiet or self._now() >= self._began + self._patience):
            return
        if (guilty := search.guilty) is not None:
            it = partition, guilty
            if self._given_up != it and self._reader.give_up(*it, search.note.lost):
                self._given_up = it
            return
        note = search.more()
        if note is None:
            await self._end_if_over(client, commits, partition, search)
            return
        self._quiet_since = inf
        partition.note = note
        if await commits.confirm(client, [partition]) and partition.held:
            search.begin(note)
            partition.reach = search.reach
            self._began, self._called_at = self._now(), self._seen
            self._reader.wake_soon()

    async def _end_if_over(
        self, client: Client, commits: Commits, partition: Partition, search: Trial
    ) -> None:
        """End the trial when all that may have been the cause is finished."""
        if search.may_have_more:
            self._quiet_since = min(self._quiet_since, self._seen)
            if self._seen < self._quiet_since + _QUIET:
                return
        partition.note = HELD
        if await commits.confirm(client, [partition]):
            partition.reach, self.trial = inf, None
            self._reader.wake_soon()
