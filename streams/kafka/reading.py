"""The source stage that reads topics: demand, events and their outcomes."""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

from penstock.streams import clock
from penstock.streams.errors import BadLine, WorkerLost
from penstock.streams.failures.dead_letters import channel_to
from penstock.streams.failures.policy import Route
from penstock.streams.io.body import text_of
from penstock.streams.kafka.membership import CHUNK, GroupSettings, Membership
from penstock.streams.kafka.offsets.commits import Commits
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.kafka.record import TOMBSTONE, KafkaRecord, headers_of, value_of
from penstock.streams.kafka.transactions import Transactions
from penstock.streams.keyed.taken import taken
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import Identity
from penstock.streams.protocol.source_stage import SourceStage
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


class Reading(SourceStage[Any]):
    """One run of `penstock.read_kafka`.

    `_arrived` records have not gone out; `_again` are those that were returned and go out before
    them.
    """

    _withdrawing = False
    # The record that ends the stream, once the events before it are out.
    _failure: BadLine | None = None

    def __init__(
        self, downstream: Subscriber[Any], run: Run, info: StageInfo, settings: ReadingSettings
    ) -> None:
        super().__init__(downstream, run, info)
        self.ack = self._acknowledge
        self.nack = self._take_back
        self._settings = settings
        on_bad = settings.on_bad_record
        self._letters = channel_to(on_bad.sink, run) if isinstance(on_bad, Route) else None
        self._membership = Membership(run, self, settings.group)
        self._arrived: deque[Token] = deque()
        self._again: list[Token] = []
        # Timers of records that have failed, and all of these that have not gone out again.
        self._later: deque[TimerHandle] = deque()
        self._failed: set[Token] = set()
        # From wall time, which stamps records, to the loop's clock.
        self._offset = run.now() - clock.wall()
        run.lessors.append(self)

    def holds(self, token: Token, /) -> bool:
        return self._membership.holds(token.partition)

    def identity(self, token: Token, /) -> Identity | None:
        partition = token.partition
        if not partition.generation:
            return None
        name = f"{partition.topic}/{partition.number}"
        return Identity(name, partition.generation, token.offset)

    @property
    def is_connected(self) -> bool:
        return self._membership.is_connected and not self._membership.in_doubt

    # Records into the pipeline.

    def produce(self) -> None:
        self._membership.start()
        if self._withdrawing or not self._membership.is_sure():
            return
        while self.demand and (self._again or self._arrived) and self._failure is None:
            tokens = self._take(min(self.demand, CHUNK))
            if not tokens:
                # Nothing may begin before a commit.
                self._membership.wake()
                return
            now = self.run.now()
            self.send_all(self._events(tokens, now))
            # A call with one of these may have taken longer than the brokers wait.
            if not self._membership.is_sure() or self._slice.is_over(now):
                return
        if self._failure is not None:
            self.fail(self._failure)
        elif self._is_caught_up:
            self.complete()
        else:
            self._membership.wake()

    def _take(self, most: int) -> list[Token]:
        """The next records to emit; only the first of all that are unfinished, if the others could
        not be remembered when they are finished."""
        again, arrived = self._again, self._arrived
        suspects = self._membership.suspects
        if self._membership.commits.is_full or (suspects is not None and suspects.withholds):
            return self._take_if(self._may_begin, most)
        tokens = again[:most]
        del again[:most]
        return tokens + taken(arrived, most - len(tokens))

    def _take_if(self, may_begin: Callable[[Token], bool], most: int) -> list[Token]:
        tokens: list[Token] = []
        kept: list[list[Token]] = []
        for waiting in (self._again, self._arrived):
            rest: list[Token] = []
            kept.append(rest)
            for token in waiting:
                (tokens if len(tokens) < most and may_begin(token) else rest).append(token)
        self._again, self._arrived = kept[0], deque(kept[1])
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
            and not self._again
            and not self._arrived
            and all(partition.at_end for partition in partitions)
        )

    @property
    def room(self) -> int:
        """How many records may be read now."""
        if self.state or self._failure is not None or self._membership.commits.is_full:
            return 0
        suspects = self._membership.suspects
        if suspects is not None and suspects.trial is not None:
            # What waits of the others is not begun, so that some of these can be.
            waiting = (*self._again, *self._arrived)
            return max(0, self.demand - sum(one.partition is suspects.trial for one in waiting))
        return max(0, self.demand - len(self._arrived) - len(self._again))

    def came(self, records: list[Token], /) -> None:
        """Records were read, or a partition is at its end."""
        self._arrived += records
        self.wake()

    def _events(self, tokens: Collection[Token], now: float) -> list[Event[Any]]:
        """The events of records but for those that end here; up to one that ends the stream."""
        if self._failed:
            self._failed.difference_update(tokens)
        events: list[Event[Any]] = []
        decode, records, since = self._settings.decode, self._settings.records, self._offset
        for token in tokens:
            message = token.message
            stamp = message.timestamp()[1] / 1000
            created = stamp + since
            if created > now:
                created = now
            try:
                value = value_of(message, decode, token)
            except BadLine as bad:
                self._bad(token, bad, created)
                if self._failure is not None:
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

    def _bad(self, token: Token, bad: BadLine, created: float) -> None:
        self.run.errors.count_bad_line(bad)
        if self._letters is not None:
            self.received += 1
            token.partition.inside += 1
            letter = Event(text_of(token.message.value()), created, self, token)
            self._letters.send(letter, bad, str(self.info), 1)
        elif self._settings.on_bad_record == "stop":
            self._failure = bad
        else:
            self._membership.commits.finish((token,))

    # Outcomes.

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        self._membership.finish([event.token for event in events])

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        again: list[Token] = []
        for event in events:
            self._membership.take_back(event.token)
            if not self.state:
                again.append(event.token)
        if again and error is not None:
            self._failed.update(again)
            self._later.append(
                self.run.call_later(self._settings.retry_after, self.info, self._emit_later, again)
            )
        elif again:
            self._emit_again(again)

    def _emit_later(self, tokens: list[Token]) -> None:
        # Timers of one delay run in the order in which they were set.
        self._later.popleft()
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

    # Partitions go.

    def let_go(self) -> None:
        """Take what has not begun out of the pipeline; what is still ours goes in again."""
        self._arrived = deque(token for token in self._arrived if token.partition.held)
        self._again = [token for token in self._again if token.partition.held]
        self._failed = {token for token in self._failed if token.partition.held}
        self._withdrawing = True
        try:
            self.run.withdraw()
        finally:
            self._withdrawing = False
        self.wake_soon()

    def give_up(self, partition: Partition, offset: int, lost: int, /) -> bool:
        """Send a record that has ended so many processes to the dead letters, if it is here."""
        assert self._letters is not None

        def is_it(token: Token) -> bool:
            return token.partition is partition and token.offset == offset

        tokens = self._take_if(is_it, 1)
        for event in self._events(tokens, self.run.now()):
            self.received += 1
            error = WorkerLost(
                f"{event.token} was alone in the last of {lost} processes that were lost while "
                "they worked on it: each was killed, or blocked for longer than the brokers wait"
            )
            self._letters.send(event, error, str(self.info), lost)
        return bool(tokens)

    # The end.

    def release(self) -> None:
        self.leave_to_others(len(self._failed))
        self._arrived.clear()
        self._again.clear()
        for timer in self._later:
            timer.cancel()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and those of the group.

        `partitions` are read here, `lag` is the number of their offsets that are not finished;
        `read_ahead` records wait during a pause; `known` ones had been finished above a floor
        before the last restart; `expired` offsets were deleted before they were read; `ignored`
        texts beside offsets were not written for them; `lost` counts partitions that brokers took
        away, `silences` how often brokers have not confirmed for long that this is a member,
        `left_out` those of which not all that was finished had room beside an offset.
        """
        membership = self._membership
        return {
            **super().statistics(),
            "partitions": len(membership.partitions),
            "lag": sum(partition.lag for partition in membership.partitions.values()),
            "read_ahead": len(self._arrived) + len(self._again),
            "known": membership.skipped,
            "expired": membership.expired,
            "ignored": membership.ignored,
            "lost": membership.lost,
            "silences": membership.silences,
            "left_out": len(membership.left_out),
        }


def _place(token: Token) -> tuple[str, int, int]:
    return token.place
