"""Membership in a group: partitions that come and go, and what is committed for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.delivery.lease import Lease
from penstock.streams.delivery.trial import Doubt
from penstock.streams.kafka.beginnings import ANSWER, SILENT, Beginnings, from_first
from penstock.streams.kafka.fetching import Fetching
from penstock.streams.kafka.group import Consumer, Followed, GroupSettings, Reader, reading_error
from penstock.streams.kafka.offsets.commits import Commits, OffsetCommits, passes
from penstock.streams.kafka.offsets.metadata import with_counts
from penstock.streams.kafka.offsets.moving import MovingOffsets
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.kafka.offsets.state import state_of
from penstock.streams.kafka.offsets.stored import StoredOffsets
from penstock.streams.kafka.offsets.suspects import Suspects
from penstock.streams.kafka.partition_counts import check_alike, look_for_more
from penstock.streams.kafka.producer import is_member
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

__all__ = ["CHUNK", "Membership"]

_Answer = TypeVar("_Answer")

CHUNK = 500
"""Records taken from the client at a time."""

# Seconds for which the client waits for a record. Commits and resumes wait for it to return.
_POLL = 0.1
# The same while records are begun in small parts, and at first for the last commit.
_TRIED = 0.01
# Seconds without demand after which partitions are paused: a pause drops what was fetched.
_PATIENCE = 0.5
# Seconds between two times that a member says what it does.
_SAY_EVERY = 1.0
# Seconds between two times that the client is asked in which generation of the group it is.
_ASK_EVERY = 0.2
# Seconds between two looks at the lag, and at the number of partitions.
_LOOK_EVERY = 1.0
# Seconds after which the number of partitions is asked for again if there was no answer.
_COUNT_AGAIN = 5.0
# Parts of the session for which a commit that was accepted says that the brokers have not given
# this member up, and after which it is made again. The heartbeat before it may be older by a third
# of the session, which is the longest interval that Kafka recommends.
_SURE, _RENEW = 2 / 3, 1 / 3


class Membership:
    """One member of a group, while it reads.

    One task drives the client: it asks for records while there is room, and else only serves the
    group; it commits; and within it the client announces partitions that come and go.
    """

    def __init__(
        self, run: Run, reader: Reader, settings: GroupSettings, stored: StoredOffsets | None
    ) -> None:
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.in_doubt = False
        """Whether the brokers may have given this member up, as far as was noticed."""
        self.is_connected = False
        """Whether brokers have answered."""
        self.stored = stored
        """Where it is kept what is done, if that is a store."""
        self.followers: list[Followed] = []
        """Those that read the same numbers of partitions of other topics."""
        self._knows_followers = False
        self._moving = stored if isinstance(stored, MovingOffsets) else None
        # Whether this reader has partitions for as long as the brokers say so, and not longer.
        self._is_member = self.stored is None or self.stored.is_shared
        self._error = partial(reading_error, settings)
        self.commits: Commits = stored or OffsetCommits(run, self._error)
        self.beginnings = Beginnings(run, settings, stored)
        self.skipped = self.lost = self.silences = 0
        self.left_out: set[tuple[str, int]] = set()
        """Partitions of which not all that was finished had room beside an offset, at a time."""
        self._run = run
        self._reader = reader
        self._settings = settings
        self.suspects: Suspects | None = None
        """Decides which records may begin, if records that end processes are to be found."""
        if settings.attempts is not None:
            self.suspects = Suspects(run, reader, settings.attempts, settings.handover)
        self._fetching = Fetching(self.partitions, reader, self.suspects)
        self._consumer: Consumer | None = None
        self._is_closed = False
        # Whether the client probably has records that it has fetched.
        self._has_more = False
        # When room ran out, if there is none.
        self._full_since: float | None = None
        # When the group is next told what this member does; never, unless others may ask.
        is_asked = run.overrides.is_on_cluster or self._moving is not None
        self._say_at = run.now() if is_asked else inf
        # What the group has committed of partitions whose states are being restored.
        self._not_begun: dict[tuple[str, int], TopicPartition] = {}
        # Whether refused credentials were reported, and no record has come since.
        self._is_refused = False
        # Partitions whose next record is not there any more.
        self._stranded: list[Partition] = []
        self._wanted = asyncio.Event()
        self._left = asyncio.Event()
        # When a commit may be made again for the session, which brokers may refuse at once.
        self._renew_at = -inf
        # Whether brokers have confirmed lately that this is a member.
        self._answer = True
        # Whether the group has told what partitions this member has.
        self._has_joined = False
        # When the client last returned, and when partitions came, as of the return before.
        self._polled_at = self._joined_at = run.now()
        # When the lag, and whether brokers are silent, are looked at next.
        self._look_at = run.now()
        # When the client is asked next in which generation it is, and how many partitions there
        # are; that only where states move with those.
        self._ask_at = run.now()
        self._count_at = inf if self._moving is None else run.now()
        # When brokers last said that this is a member, and whether it was reported to be long ago.
        self._seen_at, self._is_silent = run.now(), False
        # The lease of all partitions, for as long as the brokers have certainly not given this
        # member up.
        self._lease = Lease(run.now, run.now() + settings.session * _SURE)

    def start(self) -> None:
        """Join the group, and read until the running ends; nothing if that was done."""
        if self._consumer is None:
            client = {
                **self._settings.client,
                "on_commit": self.commits.answered,
                "error_cb": self._noticed,
            }
            if self._reader.asks_for_ends:
                client["enable.partition.eof"] = True
            self._consumer = self._settings.consumer(client)
            self._run.on_close(self._close)
            self._run.spawn(self._read(), "read_kafka", stage=self._reader)

    async def _noticed(self, fault: KafkaError) -> None:
        """The client has an error of a connection, which it makes again."""
        from confluent_kafka import KafkaError

        if fault.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) and not self._is_refused:
            self._is_refused = True
            self._run.errors.warn(f"{self._error(fault)} The client tries again.")
        given = self._settings.client.get("error_cb")
        if given is not None:
            await given(fault)

    def lead(self, follower: Followed, settings: GroupSettings) -> None:
        """Have another reader follow this one. Raises BuildError if it cannot."""
        own, names = self._settings, (self._settings.topics[0], settings.topics[0])
        what = f"read_kafka({names[1]!r}): the pipeline reads {names[0]!r} with the same store"
        if own.group != settings.group or own.servers != settings.servers:
            raise BuildError(
                f"{what}, in the group {own.group!r} on {own.servers}, and states move with the "
                "partitions of one group: read both topics there"
            )
        if self._knows_followers:
            raise BuildError(
                f"{what}, and has begun with that: states move with the partitions of all topics. "
                "Read them from the beginning, as by a join or by merge()"
            )
        self.followers.append(follower)

    @property
    def some_left(self) -> asyncio.Event:
        """Set when events have left the pipeline."""
        return self._left

    def wake(self) -> None:
        """There is room for records, or something to commit."""
        self._wanted.set()

    def hold(self, partition: Partition) -> None:
        """Read no more of a partition, which waits for others."""
        self._fetching.hold(partition)
        self.wake()

    def let_go(self, partition: Partition) -> None:
        """Read the partition again."""
        self._fetching.let_go(partition)
        self.wake()

    def finish(self, tokens: Sequence[Token]) -> None:
        """The events of records have ended, and have left the pipeline."""
        for token in tokens:
            token.partition.inside -= 1
        self.commits.finish(tokens)
        self._left.set()
        if self._is_tried:
            self._wanted.set()

    def take_back(self, token: Token) -> None:
        """The event of a record has left the pipeline, and is not finished."""
        token.partition.inside -= 1
        self.commits.take_back(token)
        self._left.set()

    def holds(self, partition: Partition) -> bool:
        """Whether it is certain that no other member has the partition, or that what it does is not
        committed in the same place."""
        return partition.held and self.is_sure()

    def is_sure(self) -> bool:
        """Whether it is certain that the brokers have not given this member up. If not, nothing may
        begin, and what has ended is returned, until they accept a commit. With a store that one
        run uses at a time, that does not matter."""
        if self._is_member and not self._lease.held:
            self.in_doubt = True
        return not self.in_doubt

    @property
    def may_begin(self) -> bool:
        """Whether anything may begin: with a store, if this member has had all partitions."""
        return self.stored is None or not self._has_joined or self.stored.is_alone

    @property
    def has_all(self) -> bool:
        """Whether this member has all partitions that belong to it."""
        if self._moving is not None:
            return not self._moving.is_restoring
        return self.stored is None or not self.stored.missing

    @property
    def unconfirmed_for(self) -> float:
        """Seconds since this member was certainly one of the group."""
        return self._run.now() - max(self.commits.accepted_at, self._joined_at)

    @property
    def _is_tried(self) -> bool:
        return self.suspects is not None and self.suspects.trial is not None

    def restoring(self) -> list[dict[str, Any]]:
        """The partitions whose states are being restored, each with its progress."""
        return [] if self._moving is None else self._moving.restoring()

    def standby_lag(self) -> int | None:
        """The records of states of other members that a copy here does not have yet."""
        return None if self._moving is None else self._moving.standby_lag()

    # The task.

    async def _read(self) -> None:
        from confluent_kafka import KafkaException

        consumer, settings = self._consumer, self._settings
        assert consumer is not None
        try:
            for topic in settings.topics:
                await self.beginnings.find(consumer, topic)
            self.is_connected = True
            await self._join(consumer)
            while True:
                await self._step(consumer)
                if self.suspects is not None:
                    held = self.partitions.values()
                    is_paused = self._fetching.is_paused
                    await self.suspects.step(consumer, self.commits, held, is_paused=is_paused)
        except KafkaException as raised:
            self._fails(self._error(raised.args[0]))
        except PenstockError as error:
            self._fails(error)

    async def _join(self, consumer: Consumer) -> None:
        """Become a member of the group, when all readers of the pipeline are known."""
        self._knows_followers = True
        for follower in self.followers:
            follower.start()
            await self.beginnings.find(consumer, follower.topic)
            check_alike(self.beginnings.counts, self._settings.topics[0], follower.topic)
        await consumer.subscribe(
            list(self._settings.topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lose,
        )

    async def _look_at_counts(self, consumer: Consumer) -> None:
        topics = [*self._settings.topics, *(follower.topic for follower in self.followers)]
        self._count_at = self._run.now() + _LOOK_EVERY
        if not await look_for_more(consumer, topics, self.beginnings.counts):
            self._count_at = self._run.now() + _COUNT_AGAIN

    def _fails(self, error: PenstockError) -> None:
        self._reader.fail(error)
        self.commits.stop(error)

    async def _step(self, consumer: Consumer) -> None:
        """Read what there is room for, or only serve the group; and commit now and then."""
        await self._begin_those_that_wait(consumer)
        room = self._reader.room
        if not room and not self._fetching.is_paused:
            if self._full_since is None:
                self._full_since = self._run.now()
            patience = self._full_since + _PATIENCE - self._run.now()
            self._wanted.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(patience, self._due_in()))):
                    await self._wanted.wait()
            room = self._reader.room
            if not room and self._run.now() < self._full_since + _PATIENCE:
                await self._commit_if_due(consumer)
                return
        if room:
            self._full_since = None
        if bool(room) == self._fetching.is_paused:
            await self._fetching.pause(consumer, not room)
        await self._fetching.look(consumer)
        messages = await self._messages(consumer)
        self._polled_at = self._run.now()
        self._look_for_others()
        self._look_at_doubt()
        await self._look_at_answers(consumer)
        if messages:
            self._is_refused = False
            self._came(messages)
        if self._stranded:
            await self._go_on(consumer)
        await self._commit_if_due(consumer)

    async def _messages(self, consumer: Consumer) -> list[Message]:
        """The messages that the client has, up to the room; if none, the first that comes, with
        others: a client that is asked for several waits until it has all of them."""
        room = min(CHUNK, self._reader.room)
        if room and self._has_more:
            messages = await consumer.consume(num_messages=room, timeout=0)
            self._has_more = len(messages) == room
            if messages:
                return messages
        longest = _TRIED if self._is_tried else _POLL
        message = await consumer.poll(timeout=max(0.0, min(longest, self._due_in())))
        if message is None:
            return []
        messages = [message]
        # The room may be less than before, by what was returned.
        room = min(CHUNK, self._reader.room) - 1
        if room > 0:
            messages += await consumer.consume(num_messages=room, timeout=0)
            self._has_more = len(messages) > room
        return messages

    def _due_in(self) -> float:
        """Seconds until the next commit."""
        return self.commits.due_in()

    @property
    def _all(self) -> list[Partition]:
        """The partitions here and of those that follow."""
        others = (one for follower in self.followers for one in follower.partitions.values())
        return [*self.partitions.values(), *others]

    async def _commit_if_due(self, consumer: Consumer) -> None:
        if self._run.now() >= self._say_at:
            self._say_at = self._run.now() + _SAY_EVERY
            await self._say(consumer)
        if self._run.now() >= self._count_at:
            await self._look_at_counts(consumer)
        now = self._run.now()
        if self._moving is not None and now >= self._ask_at:
            self._ask_at = now + _ASK_EVERY
            await self._moving.renew(consumer)
        renew = self.unconfirmed_for > self._settings.session * _RENEW
        renew |= any(one.is_new for one in self._all)
        renew &= now >= self._renew_at
        if renew:
            self._renew_at = now + _POLL
        if self.commits.due_in() <= 0 or renew:
            await self.commits.commit(consumer, self._all, renew=renew)
        if now >= self._look_at:
            self._look_soon()
            if self.stored is not None and not self._has_joined:
                # The client says nothing of an assignment without partitions.
                self._has_joined = is_member(await consumer.consumer_group_metadata())
            await self._look_at_lag(consumer)
            await self._look_at_silence(consumer)
            self._look_at_room()

    def _look_soon(self) -> None:
        self._look_at = self._run.now() + _LOOK_EVERY

    async def _look_at_silence(self, consumer: Consumer) -> None:
        """Say it once when brokers have not confirmed for long that this is a member."""
        now, held = self._run.now(), self.partitions.values()
        if any(one.floor is not None for one in held):
            self._seen_at = now - self.unconfirmed_for
        elif held or is_member(await consumer.consumer_group_metadata()):
            self._seen_at = now
        quiet = now - self._seen_at
        was_silent = self._is_silent
        self._is_silent = quiet > max(SILENT, self._settings.session / 2)
        if self._is_silent and not was_silent:
            self.silences += 1
            what = "accepted no commit of" if held else "not accepted"
            why = f" ({self.commits.why})" if self.commits.why else ""
            self._run.errors.warn(
                f"read_kafka: the brokers of group {self._settings.group!r} have {what} this "
                f"reader for {quiet:.0f} s{why}. It tries again; nothing begins that could not be "
                "committed"
            )

    def _look_at_room(self) -> None:
        """Say it once when not all that is finished fits beside an offset."""
        for partition in self.partitions.values():
            if not partition.left_out or partition.key in self.left_out:
                continue
            if not self.left_out:
                self._run.errors.warn(
                    f"read_kafka: {partition.left_out:,} finished records of {partition.topic}, "
                    f"partition {partition.number}, do not fit into the metadata beside its "
                    f"offset {partition.ledger.floor}, because too many separate ones before "
                    "them are not finished: they are repeated if this process is killed before "
                    "that changes"
                )
            self.left_out.add(partition.key)

    async def _say(self, consumer: Consumer) -> None:
        """Commit this member's counts, beside its first partition, for the other members."""
        numbers = self._run.root.numbers
        held = {
            key: one for key, one in self.partitions.items() if one.held and one.floor is not None
        }
        first = min([*held, *self._not_begun], default=None)
        if numbers is None or first is None or self.in_doubt:
            return
        name = self._settings.client["client.id"]
        counts = str(state_of(name, numbers(), self.restoring(), self.standby_lag()))
        if first in held and counts == held[first].counts:
            return
        for key, partition in held.items():
            partition.counts = counts if key == first else ""
        if first in held:
            await self.commits.say(consumer, held[first])
        else:
            await self._say_beside(consumer, first, counts)

    async def _say_beside(self, consumer: Consumer, key: tuple[str, int], counts: str) -> None:
        """Commit counts beside what is committed of a partition that has not begun."""
        from confluent_kafka import KafkaException

        place = with_counts(self.beginnings.cluster, self._not_begun[key], counts)
        # While members join brokers refuse it, and the next one says the same.
        with suppress(KafkaException):
            await consumer.commit(offsets=[place], asynchronous=False)

    async def _look_at_answers(self, consumer: Consumer) -> None:
        """While brokers are away it is not known what partitions have. Then they are asked."""
        if not self._reader.asks_for_ends:
            return
        answer = self.unconfirmed_for <= self._settings.session * _SURE
        if self._answer and not answer:
            self._fetching.ask_again(self.partitions.values())
        elif answer and not self._answer:
            for partition in self.partitions.values():
                # Its silence was none.
                self._reader.joined(partition, partition.name)
            if not self._fetching.is_paused:
                await self._fetching.pause(consumer, paused=True)
        self._answer = answer

    def _came(self, messages: Iterable[Message]) -> None:
        from confluent_kafka import KafkaError

        tokens: list[Token] = []
        find = self.partitions.get
        for message in messages:
            partition = find((message.topic() or "", message.partition() or 0))
            fault = message.error()
            if fault is not None:
                if fault.code() == KafkaError._PARTITION_EOF:
                    if partition is not None and partition.held:
                        partition.at_end = True
                        self._reader.emptied(partition)
                elif fault.code() == KafkaError._MAX_POLL_EXCEEDED:
                    # The loop was blocked, or a commit waited for brokers that were away. The
                    # partitions are lost, as the client tells next, and it joins again.
                    continue
                elif fault.code() == KafkaError._AUTO_OFFSET_RESET:
                    if partition is not None and partition.held:
                        self._stranded.append(partition)
                elif fault.fatal() or not passes(fault):
                    raise self._error(fault, message.topic() or "")
            elif partition is None or not partition.held:
                continue
            elif (offset := message.offset() or 0) < (partition.position or 0):
                # The client went to the first record, for which it was asked when the partition was
                # here before: brokers have answered late.
                continue
            elif partition.ledger.read(offset, None):
                if partition.at_end:
                    partition.at_end = False
                    self._reader.filled(partition)
                tokens.append(Token(partition, message, offset))
            else:
                self.skipped += 1
        self._reader.came(tokens)

    async def _look_at_lag(self, consumer: Consumer) -> None:
        for partition in list(self.partitions.values()):
            marks = await consumer.get_watermark_offsets(partition.place(), cached=True)
            if marks is not None:
                partition.end = marks[1]

    def _look_for_others(self) -> None:
        """Refuse other members, where states depend on all records."""
        if self.stored is None or not self._has_joined:
            return
        might_begin = self.may_begin
        self.stored.look_for_others(self.beginnings.counts, self.partitions, self._polled_at)
        if self.may_begin and not might_begin:
            self._reader.wake_soon()

    # This process was frozen, its loop was blocked, or brokers are away.

    def _look_at_doubt(self) -> None:
        """Go on when the brokers have confirmed that the partitions are still ours. They refuse a
        commit to a member that they have given up."""
        confirmed = self._run.now() - self.unconfirmed_for
        self._lease.until = confirmed + self._settings.session * _SURE
        if not self.in_doubt:
            if any(partition.floor is not None for partition in self.partitions.values()):
                self.is_sure()
        elif self._lease.held:
            # What was returned goes out first, before others of its keys that wait in the pipeline.
            readers = [self._reader, *(follower.reader for follower in self.followers)]
            for reader in readers:
                reader.let_go()
            self.in_doubt = False
            for reader in readers:
                reader.wake_soon()

    # Rebalances, within `poll`.

    async def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions have come: begin where the group has finished."""
        if self._is_closed:
            # The client, which is being closed, gets no answers any more.
            return
        self._joined_at, self._has_joined = self._polled_at, True
        if self._moving is not None and places:
            # Once no transaction of an earlier owner is open, and nothing of it can come any more,
            # their states are restored, which may take long.
            keys = [(place.topic, place.partition) for place in places]
            if any(number >= self.beginnings.counts[topic] for topic, number in keys):
                await self._look_at_counts(consumer)
            waiting = [self.beginnings.place(key) for key in keys]
            topics = [follower.topic for follower in self.followers]
            others = [
                self.beginnings.place((topic, number)) for topic in topics for _, number in keys
            ]
            for place in await self.beginnings.committed(consumer, [*places, *others]):
                if place.offset >= 0 and place.topic in self._settings.topics:
                    self._not_begun[place.topic, place.partition] = place
            await consumer.incremental_assign(waiting)
            await consumer.pause(waiting)
            self._moving.begin_restoring(keys, self.beginnings.counts, self.wake)
        else:
            await self._begin_all(consumer, places)

    async def _begin_those_that_wait(self, consumer: Consumer) -> None:
        """Begin the partitions whose states are there now."""
        keys = [] if self._moving is None else self._moving.restored()
        if not keys:
            return
        places = [self.beginnings.place(key) for key in keys]
        assert self._moving is not None
        for key in keys:
            self._not_begun.pop(key, None)
        await self._moving.renew(consumer)
        await consumer.incremental_unassign(places)
        await self._begin_all(consumer, places)
        if not self._fetching.is_paused:
            # The client remembers that they were paused.
            await consumer.resume(places)

    async def _begin_all(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        begins = await self._prepare(consumer, places)
        numbers = [place.partition for place in begins]
        others = [(one, await one.prepared(numbers)) for one in self.followers]
        # All at once: nothing may happen by the times of some before others are known.
        self._announce(begins)
        for follower, places_there in others:
            follower.begin(places_there)
        if self._moving is not None:
            self._moving.begin(numbers)
        await self._fetching.begin(consumer, begins)

    async def _prepare(
        self, consumer: Consumer, places: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Hold partitions; returns where to begin in each."""
        committed = await self.beginnings.committed(consumer, places) if places else []
        await self.beginnings.identify({place.topic for place in places})
        for place in committed:
            if place.error is not None:
                raise self._error(place.error, place.topic)
        return [await self._begin(consumer, place) for place in committed]

    def _announce(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            partition = self.partitions[place.topic, place.partition]
            self._reader.joined(partition, partition.name)

    async def _begin(self, consumer: Consumer, committed: TopicPartition) -> TopicPartition:
        """Hold a partition, with the offset that the group has committed, if any; returns where to
        begin."""
        key = committed.topic, committed.partition
        before = None if self.stored is None else self.stored.again(key)
        if before is None:
            beginning = await self.beginnings.of(consumer, committed)
            self._hold(beginning.partition, beginning.doubt, beginning.end)
            return beginning.place
        self.partitions[key] = before
        before.is_ours, before.committed, before.at_end = True, None, False
        return before.place(from_first(before.position))

    def _hold(self, partition: Partition, doubt: Doubt | None, end: int | None) -> None:
        self.partitions[partition.key] = partition
        if self.stored is not None:
            self.stored.hold(partition)
        if self.suspects is not None:
            self.suspects.take(partition, doubt, end)

    async def _go_on(self, consumer: Consumer) -> None:
        """Go on with the first record that is there, where the one to be fetched is not."""
        stranded, self._stranded = self._stranded, []
        for partition in stranded:
            key, position = partition.key, partition.position
            if not partition.held:
                continue
            first, end = await self.beginnings.bounds(consumer, key)
            await consumer.incremental_unassign([partition.place()])
            if position is None or position <= first:
                self.beginnings.expire(key, first if position is None else position, first)
            else:
                # The records that the group has finished are not there any more.
                self._hold_back([key])
                if self._moving is not None:
                    self._reader.left(partition)
                self._forget([partition])
                await self.beginnings.identify_anew(key[0])
                partition = self.beginnings.partition(key, first)
                partition.begins = self.stored is not None
                self._hold(partition, None, end)
                self._reader.joined(partition, partition.name)
                self._run.errors.warn(
                    f"read_kafka: offset {position} of {key[0]}, partition {key[1]}, is not there: "
                    "the topic was created again, or has lost records. Reading goes on with its "
                    f"first record, {first}"
                )
            await self._fetching.begin(consumer, [partition.place(first)])

    async def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions go to others: finish what has begun, commit, and only then let them go."""
        leaving = self._let_go(places)
        if self._moving is not None:
            await self._moving.renew(consumer)
        if self._is_member:
            await self._until_left(consumer, leaving)
        await self._give_up(places, leaving)
        await self.commits.hand_over(consumer, leaving)
        await self._take_notes_out(consumer, leaving)
        await self._unassign(consumer, places, leaving)

    async def _unassign(
        self, consumer: Consumer, places: list[TopicPartition], leaving: list[Partition]
    ) -> None:
        self._forget(leaving)
        for follower in self.followers:
            follower.end(leaving)
        if places:
            await consumer.incremental_unassign(places)

    async def _give_up(
        self,
        places: Iterable[TopicPartition],
        leaving: Sequence[Partition],
        *,
        is_lost: bool = False,
    ) -> None:
        """Give up the states of partitions, if others may get them."""
        if self._moving is None:
            return
        if not self._is_closed:
            keys = [(place.topic, place.partition) for place in places]
            await self._moving.give_up(keys, is_lost=is_lost)
        # Only now: as long as their states are here, the watermark must not pass theirs.
        for partition in leaving:
            if partition.topic in self._settings.topics:
                self._reader.left(partition)
        for follower in self.followers:
            follower.left(leaving)

    async def _take_notes_out(self, consumer: Consumer, leaving: Iterable[Partition]) -> None:
        """Partitions are given up in order: that is not a loss."""
        noted = [partition for partition in leaving if partition.has_note]
        if self.suspects is not None:
            self.suspects.take_out(noted)
        for partition in noted:
            partition.counts = ""
        if noted:
            await self.commits.confirm(consumer, noted)

    async def _lose(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Partitions were taken away, since this member was silent for too long."""
        lost = self._let_go(places)
        if self._moving is not None:
            self._moving.metadata = None
        for partition in lost:
            partition.is_ours = False
        await self._give_up(places, lost, is_lost=True)
        self.lost += len(lost)
        if lost:
            inside = sum(partition.inside for partition in lost)
            outcome = "is not committed" if self._is_member else "is committed in the store only"
            self._run.errors.warn(
                f"read_kafka lost {len(lost)} partitions, because it was silent for too long; "
                f"{inside} of their events are still processed here, and their outcome {outcome}"
            )
        await self._unassign(consumer, places, lost)

    def _let_go(self, places: Iterable[TopicPartition]) -> list[Partition]:
        """Let nothing of these partitions, and of those that go with them, begin any more; returns
        them all. With a store that does not move, what was read still does, and ends here."""
        keys = [(place.topic, place.partition) for place in places]
        for key in keys:
            self._not_begun.pop(key, None)
        leaving = self._hold_back(keys)
        for follower in self.followers:
            leaving += follower.let_go_of([number for _, number in keys])
        return leaving

    def _hold_back(self, keys: Iterable[tuple[str, int]]) -> list[Partition]:
        found = [self.partitions.get(key) for key in keys]
        leaving = [partition for partition in found if partition is not None]
        if self._is_member:
            for partition in leaving:
                partition.held = False
            self._reader.let_go()
            for partition in leaving if self._moving is None else ():
                self._reader.left(partition)
        return leaving

    async def _until_left(self, consumer: Consumer, leaving: Sequence[Partition]) -> None:
        """Wait for what has begun, for a little less than the brokers do."""
        patience = self._settings.handover * 0.8
        until = self._run.now() + patience
        while any(partition.inside for partition in leaving):
            self._left.clear()
            left = until - self._run.now()
            if left <= 0:
                inside = sum(partition.inside for partition in leaving)
                self._run.errors.warn(
                    f"read_kafka hands partitions over while {inside} of their events are still "
                    f"being processed, after {patience:g} s: other readers begin them again. If "
                    "events may take that long, raise handover="
                )
                return
            renewal = self._settings.session * _RENEW
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, renewal)):
                    await self._left.wait()
            if self.unconfirmed_for > renewal:
                await self.commits.confirm(consumer, leaving)
                self._look_at_doubt()

    def _forget(self, leaving: Iterable[Partition]) -> None:
        for partition in leaving:
            partition.is_ours = False
            if self.partitions.get(partition.key) is partition:
                del self.partitions[partition.key]

    # The end.

    async def _commit_the_rest(self, consumer: Consumer) -> bool:
        """Commit what is finished. The answer comes while the client is asked for records. While
        members join, brokers refuse commits of members that have not joined again; the client joins
        again only while it is asked for records too. Returns False if there is no answer in time.
        """
        until, wait = self._run.now() + ANSWER, _TRIED
        while not await self.commits.close(consumer, self._all):
            if self._run.now() >= until:
                return False
            await self._fetching.pause(consumer, paused=True)
            await consumer.poll(timeout=wait)
            wait = min(2 * wait, _POLL)
        return True

    async def _close(self) -> None:
        from confluent_kafka import KafkaException

        consumer = self._consumer
        assert consumer is not None
        try:
            with suppress(PenstockError, KafkaException):
                if await self._commit_the_rest(consumer):
                    await self._take_notes_out(consumer, self.partitions.values())
        finally:
            # The client asks for what is to be handed over, which is done, or had its time.
            self._is_closed = True
            self._forget(self._all)
            for follower in self.followers:
                follower.partitions.clear()
            await consumer.close()
