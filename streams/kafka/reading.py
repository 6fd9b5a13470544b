"""The source stage that reads topics: demand, events and their outcomes."""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from penstock.streams import clock
from penstock.streams.errors import BadLine
from penstock.streams.failures.policy import Route
from penstock.streams.io.body import text_of
from penstock.streams.kafka.commits import Commits
from penstock.streams.kafka.membership import CHUNK, GroupSettings, Membership
from penstock.streams.kafka.partition import Partition, Token
from penstock.streams.kafka.record import TOMBSTONE, KafkaRecord, headers_of, value_of
from penstock.streams.kafka.transactions import Transactions
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.source_stage import SourceStage
from penstock.streams.protocol.stage import StageInfo, Subscriber
from penstock.streams.runtime.context import Run

__all__ = ["OnBadRecord", "Reading", "ReadingSettings", "Since"]

OnBadRecord = Literal["report", "stop"] | Route
Since = Literal["first", "new"]


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
        self._letters = run.letters.open(on_bad.sink) if isinstance(on_bad, Route) else None
        self._membership = Membership(run, self, settings.group)
        self._arrived: deque[Token] = deque()
        self._again: list[Token] = []
        # Timers of those that have failed.
        self._later: deque[TimerHandle] = deque()
        # From wall time, which stamps records, to the loop's clock.
        self._offset = run.now() - clock.wall()
        run.lessors.append(self)

    def holds(self, token: Token, /) -> bool:
        return self._membership.holds(token.partition)

    # Records into the pipeline.

    def produce(self) -> None:
        self._membership.start()
        if self._withdrawing or self._membership.in_doubt:
            return
        while self.demand and (self._again or self._arrived) and self._failure is None:
            events: list[Event[Any]] = []
            while len(events) < min(self.demand, CHUNK) and (token := self._next()) is not None:
                event = self._event(token)
                if self._failure is not None:
                    break
                if event is not None:
                    token.partition.progress.inside += 1
                    events.append(event)
            if not events and self._failure is None and self._membership.commits.is_full:
                self._membership.wake()
                return
            self.send(events)
            if self._slice.is_over(self.run.now()):
                return
        if self._failure is not None:
            self.error(self._failure)
        elif self._is_caught_up:
            self.complete()
        else:
            self._membership.wake()

    def _next(self) -> Token | None:
        """The next record to emit; only the first of all that are unfinished, if the others could
        not be remembered when they are finished."""
        if self._membership.commits.is_full:
            for tokens in (self._again, self._arrived):
                for place, token in enumerate(tokens):
                    if token.offset == token.partition.progress.floor:
                        del tokens[place]
                        return token
            return None
        if self._again:
            return self._again.pop(0)
        return self._arrived.popleft() if self._arrived else None

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
        if self.done or self._failure is not None or self._membership.commits.is_full:
            return 0
        return max(0, self.demand - len(self._arrived) - len(self._again))

    def came(self, records: list[Token], /) -> None:
        """Records were read, or a partition is at its end."""
        self._arrived += records
        self.wake()

    def _event(self, token: Token) -> Event[Any] | None:
        """The event of a record; None for one that has ended here."""
        message = token.message
        stamp = message.timestamp()[1] / 1000
        created = min(stamp + self._offset, self.run.now())
        try:
            value = value_of(message, self._settings.decode, token)
        except BadLine as bad:
            self._bad(token, bad, created)
            return None
        if self._settings.records:
            value = KafkaRecord(
                value,
                message.key(),
                headers_of(message),
                message.topic() or "",
                message.partition() or 0,
                message.offset() or 0,
                stamp,
            )
        elif message.value() is None:
            self.received += 1
            self.drops[TOMBSTONE] = self.drops.get(TOMBSTONE, 0) + 1
            self._membership.commits.finish(token)
            return None
        return Event(value, created, self, token)

    def _bad(self, token: Token, bad: BadLine, created: float) -> None:
        self.run.errors.count_bad_line(bad)
        if self._letters is not None:
            self.received += 1
            token.partition.progress.inside += 1
            letter = Event(text_of(token.message.value()), created, self, token)
            self._letters.send(letter, bad, str(self.info), 1)
        elif self._settings.on_bad_record == "stop":
            self._failure = bad
        else:
            self._membership.commits.finish(token)

    # Outcomes.

    def _acknowledge(self, events: list[Event[Any]]) -> None:
        for event in events:
            self._membership.finish(event.token)

    def _take_back(self, events: list[Event[Any]], error: BaseException | None) -> None:
        again: list[Token] = []
        for event in events:
            self._membership.take_back(event.token)
            if not self.done:
                again.append(event.token)
        if again and error is not None:
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
        current = [Token(token.partition.current, token.message) for token in tokens]
        self._again += [token for token in current if token.partition.held]
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
        self._withdrawing = True
        try:
            for withdraw in reversed(self.run.withdrawals):
                withdraw()
        finally:
            self._withdrawing = False
        self.wake_soon()

    def renew(self, renewed: Mapping[Partition, Partition], /) -> None:
        """Partitions are held anew: what waits here belongs to the new ones."""
        tokens = [*self._again, *self._arrived]
        self._arrived.clear()
        self._again = [Token(renewed[token.partition], token.message) for token in tokens]
        self._again.sort(key=_place)

    # The end.

    def release(self) -> None:
        self._arrived.clear()
        self._again.clear()
        for timer in self._later:
            timer.cancel()

    def statistics(self) -> dict[str, Any]:
        """The statistics of every source, and those of the group.

        `partitions` are read here, `lag` is the number of their offsets that are not finished;
        `read_ahead` records wait during a pause; `known` ones had been finished above a floor
        before the last restart; `expired` offsets were deleted before they were read; `lost` counts
        partitions that brokers took away.
        """
        membership = self._membership
        return {
            **super().statistics(),
            "partitions": len(membership.partitions),
            "lag": sum(partition.lag for partition in membership.partitions.values()),
            "read_ahead": len(self._arrived) + len(self._again),
            "known": membership.skipped,
            "expired": membership.expired,
            "lost": membership.lost,
        }


def _place(token: Token) -> tuple[str, int, int]:
    return token.place
