"""The source stage that reads topics: demand, events and their outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal, NamedTuple

from penstock.streams.base.errors import BadLine, WorkerLost
from penstock.streams.base.take_front import taken
from penstock.streams.delivery.leased_source import LeasedSource
from penstock.streams.failures.policy import Route
from penstock.streams.io.body import text_of
from penstock.streams.kafka.following import membership
from penstock.streams.kafka.group import GroupSettings
from penstock.streams.kafka.offsets.commits import Commits
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.kafka.record import TOMBSTONE, KafkaRecord, headers_of, value_of
from penstock.streams.kafka.transactions import Transactions
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.partitions import PartitionsWatcher
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["OnBadRecord", "Reading", "ReadingSettings"]

OnBadRecord = Literal["report", "stop"] | Route


class ReadingSettings(NamedTuple):
    """The arguments of `penstock.read_kafka`, which documents each."""

    group: GroupSettings
    decode: Callable[[bytes], Any]
    records: bool
    follow: bool
    retry_after: float
    on_bad_record: OnBadRecord


class Reading(LeasedSource[Token]):
    """One run of `penstock.read_kafka`.

    `_again` are records that were returned, and go out before those that have arrived.
    """

    _withdrawing = False

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: ReadingSettings
    ) -> None:
        # First: it may raise, and then nothing of the source is there to be undone.
        self._membership = membership(run, self, settings.group)
        super().__init__(downstream, run, info, settings.on_bad_record, settings.retry_after)
        self.ack = self._acknowledge
        # With a store of its own, what failed comes again in the next run: its states are those of
        # before.
        store = settings.group.offsets
        self.nack = self._take_back if store is None or store.moves else None
        self._settings = settings
        self._again: list[Token] = []
        # Who is told of partitions and holds them, and of which partitions nothing more was there,
        # since what was read of them before is still here.
        self._watchers: list[PartitionsWatcher] = []
        self._holders: dict[Partition, set[object]] = {}
        self._ends: dict[Partition, None] = {}

    def open(self) -> None:
        self._membership.start()

    def holds(self, token: Token, /) -> bool:
        return self._membership.holds(token.partition)

    def identity(self, token: Token, /) -> Identity | None:
        partition = token.partition
        if not partition.generation:
            return None
        return Identity(partition.name, partition.generation, token.offset)

    @property
    def is_connected(self) -> bool:
        return self._membership.is_connected and not self._membership.in_doubt

    # Records into the pipeline.

    @property
    def may_send(self) -> bool:
        # A call with one of the last records may have taken longer than the brokers wait.
        membership = self._membership
        return not self._withdrawing and membership.is_sure() and membership.may_begin

    def has_room(self) -> None:
        if not self.may_send:
            return
        if self._ends and not self.arrived and not self._again:
            self._tell_ends()
        if self._is_caught_up:
            self.complete()
        else:
            self._membership.wake()

    def next_of(self, most: int) -> list[Token]:
        """Only the first of all that are unfinished, if the others could not be remembered when
        they are finished."""
        again, suspects = self._again, self._membership.suspects
        if self._membership.commits.is_full or (suspects is not None and suspects.withholds):
            return self._take_if(self._may_begin, most)
        tokens = again[:most]
        del again[:most]
        return tokens + taken(self.arrived, most - len(tokens))

    def _take_if(self, may_begin: Callable[[Token], bool], most: int) -> list[Token]:
        tokens: list[Token] = []
        kept: list[list[Token]] = []
        for waiting in (self._again, self.arrived):
            rest: list[Token] = []
            kept.append(rest)
            for token in waiting:
                (tokens if len(tokens) < most and may_begin(token) else rest).append(token)
        self._again, self.arrived = kept[0], deque(kept[1])
        return tokens

    def _may_begin(self, token: Token) -> bool:
        membership = self._membership
        if membership.commits.is_full and token.offset != token.partition.ledger.floor:
            return False
        return membership.suspects is None or membership.suspects.may_begin(token)

    @property
    def _is_caught_up(self) -> bool:
        partitions = self._membership.partitions.values()
        return (
            not self._settings.follow
            and bool(partitions)
            and self._membership.has_all
            and not self._again
            and not self.arrived
            and all(partition.at_end for partition in partitions)
        )

    @property
    def room(self) -> int:
        """How many records may be read now."""
        membership = self._membership
        if self.state or self.failure is not None or membership.commits.is_full:
            return 0
        if not membership.may_begin:
            return 0
        suspects = membership.suspects
        if suspects is not None and suspects.trial is not None:
            # What waits of the others is not begun, so that some of these can be.
            waiting = (*self._again, *self.arrived)
            return max(0, self.demand - sum(one.partition is suspects.trial for one in waiting))
        return max(0, self.demand - len(self.arrived) - len(self._again))

    def came(self, records: list[Token], /) -> None:
        """Records were read, or a partition is at its end."""
        self.arrived += records
        self.wake()

    def events(self, tokens: Collection[Token], now: float) -> list[Event[Any]]:
        self.failed.difference_update(tokens)
        events: list[Event[Any]] = []
        decode, records, since = self._settings.decode, self._settings.records, self.from_wall
        for token in tokens:
            message = token.message
            stamp = message.timestamp()[1] / 1000
            created = stamp + since
            if created > now:
                created = now
            try:
                value = value_of(message, decode, token)
            except BadLine as bad:
                if self.letters is not None:
                    token.partition.inside += 1
                self.bad(token, bad, text_of(message.value()), created)
                if self.failure is not None:
                    break
                continue
            if records:
                value = self._record(token, value, stamp)
            elif value is None and message.value() is None:
                self.received += 1
                self.drops[TOMBSTONE] = self.drops.get(TOMBSTONE, 0) + 1
                self._membership.commits.finish((token,))
                continue
            token.partition.inside += 1
            events.append(Event(value, created, self, token))
        return events

    def _record(self, token: Token, value: Any, stamp: float) -> KafkaRecord[Any]:
        message, partition = token.message, token.partition
        return KafkaRecord(
            value,
            message.key(),
            headers_of(message),
            partition.topic,
            partition.number,
            token.offset,
            stamp,
        )

    def give_back(self, tokens: Iterable[Token], /) -> None:
        """They are not committed, and so the group reads them again."""

    def refuse(self, token: Token, /) -> None:
        self._membership.commits.finish((token,))

    # Outcomes.

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._membership.finish([event.token for event in events])

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        tokens: list[Token] = [event.token for event in events]
        for token in tokens:
            self._membership.take_back(token)
        if error is not None:
            self.retry(tokens)
        elif not self.state:
            self._emit_again(tokens)

    def given_again(self, tokens: list[Token], /) -> None:
        self._emit_again(tokens)

    def _emit_again(self, tokens: list[Token]) -> None:
        self._again += [token for token in tokens if token.partition.held]
        self._again.sort(key=_place)
        self.wake_soon()

    def commit_by(self, transactions: Transactions) -> None:
        """Commit what is finished in these transactions, and in no other way. To be called before
        the first request."""
        self._membership.commits = transactions
        transactions.serve(self._look, self._emit_again)

    @property
    def commits(self) -> Commits:
        """Where it is recorded what is finished."""
        return self._membership.commits

    @property
    def servers(self) -> str:
        """The addresses of the brokers."""
        return self._settings.group.servers

    def _look(self) -> None:
        self._membership.wake()
        self.wake_soon()

    # Partitions, for those who watch them.

    def partition_of(self, token: Token, /) -> Partition:
        return token.partition

    def sequence_of(self, token: Token, /) -> int:
        return token.offset

    def watch(self, watcher: PartitionsWatcher, /) -> None:
        self._watchers.append(watcher)

    @property
    def asks_for_ends(self) -> bool:
        whole = self._settings.group.whole is not None
        return bool(self._watchers) or not self._settings.follow or whole

    def hold(self, partition: Partition, by: object, /) -> None:
        self._holders.setdefault(partition, set()).add(by)
        self._membership.hold(partition)

    def let_go_of(self, partition: Partition, by: object, /) -> None:
        holders = self._holders.pop(partition, set()) - {by}
        if holders:
            self._holders[partition] = holders
        else:
            self._membership.let_go(partition)

    def joined(self, partition: Partition, name: str, /) -> None:
        for watcher in self._watchers:
            watcher.joined(partition, name)

    def left(self, partition: Partition, /) -> None:
        self._ends.pop(partition, None)
        for watcher in self._watchers:
            watcher.left(partition)

    def emptied(self, partition: Partition, /) -> None:
        self._ends[partition] = None

    def filled(self, partition: Partition, /) -> None:
        if partition in self._ends:
            del self._ends[partition]
            return
        for watcher in self._watchers:
            if self._settings.follow:
                watcher.filled(partition)
            else:
                watcher.joined(partition, partition.name)

    def _tell_ends(self) -> None:
        """All that was read before is out."""
        ends, self._ends = self._ends, {}
        for partition in ends:
            for watcher in self._watchers:
                if self._settings.follow:
                    watcher.emptied(partition)
                else:
                    # It ends there.
                    watcher.left(partition)

    # Partitions go.

    def let_go(self) -> None:
        """Take what has not begun out of the pipeline; what is still ours goes in again."""
        self.arrived = deque(token for token in self.arrived if token.partition.held)
        self._again = [token for token in self._again if token.partition.held]
        self.failed = {token for token in self.failed if token.partition.held}
        self._withdrawing = True
        try:
            self.run.withdraw()
        finally:
            self._withdrawing = False
        self.wake_soon()

    def give_up(self, partition: Partition, offset: int, lost: int, /) -> bool:
        """Send a record that has ended so many processes to the dead letters, if it is here."""
        assert self.letters is not None

        def is_it(token: Token) -> bool:
            return token.partition is partition and token.offset == offset

        tokens = self._take_if(is_it, 1)
        for event in self.events(tokens, self.run.now()):
            self.received += 1
            error = WorkerLost(
                f"{event.token} was alone in each of {lost} processes that were lost while they "
                "worked on it: they were killed, or blocked for longer than the brokers wait"
            )
            self.letters.send(event, error, str(self.info), lost)
        return bool(tokens)

    # The end.

    def release(self) -> None:
        super().release()
        self._again.clear()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and the group's.

        `partitions` are read here, `lag` is the number of their offsets that are not finished;
        `read_ahead` records wait during a pause; `known` ones had been finished above a floor
        before the last restart; `expired` offsets were deleted before they were read; `ignored`
        texts beside offsets were not written for them; `lost` counts partitions that brokers took
        away, `restoring` are those whose states are not all there yet, `standby_lag` the records of
        states of other members that the copy here does not have; `silences` is how often brokers
        have not confirmed for long that this is a member, `left_out` those of which not all that
        was finished had room beside an offset.
        """
        membership = self._membership
        return {
            **super().statistics(),
            "partitions": len(membership.partitions),
            "lag": sum(partition.lag for partition in membership.partitions.values()),
            "read_ahead": len(self.arrived) + len(self._again),
            "known": membership.skipped,
            "expired": membership.beginnings.expired,
            "ignored": membership.beginnings.ignored,
            "lost": membership.lost,
            "silences": membership.silences + membership.beginnings.silences,
            "left_out": len(membership.left_out),
            "restoring": membership.restoring(),
            "standby_lag": membership.standby_lag(),
        }


def _place(token: Token) -> tuple[str, int, int]:
    return token.place
