"""A view of a pipeline on the brokers: members, partitions, floors, lag, dead letters, keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.streams.delivery.text import Unusable
from penstock.streams.delivery.view import View
from penstock.streams.io.body import text_of
from penstock.streams.kafka.cluster.layout import Layout
from penstock.streams.kafka.cluster.letters import letters_of
from penstock.streams.kafka.cluster.records import ANSWER, committed, marks, place_of, records
from penstock.streams.kafka.offsets.metadata import Metadata, metadata_in
from penstock.streams.kafka.offsets.state import State

__all__ = ["GroupView", "Member", "Part", "groups_of", "look"]

# Unfinished records that are read, of all partitions together, to count their keys.
_SAMPLE = 10_000
_HOTTEST = 5


@dataclass(frozen=True, slots=True)
class Part:
    """A partition. Below offset `floor` everything is finished, and `above` more are above it;
    `end` is the offset of the next record, `unfinished` how many records are left."""

    floor: int
    above: int
    end: int
    unfinished: int


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the group: its id there, the name of its client, its host, its partitions, and
    the counts that it has written; None if it has written none, as a member without a partition."""

    id: str
    name: str
    host: str
    partitions: tuple[int, ...]
    state: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(View):
    """A snapshot of one group of a topic; `keys` are the most frequent keys of the first `sampled`
    unfinished records, with how many each has. `ignored` says of a partition why the text beside
    its offset is not used. `follows` is the topic of which the members have the partitions, if not
    of this one, as of the second topic of a join; "" else."""

    topic: str
    parts: dict[int, Part]
    members: list[Member]
    keys: list[tuple[str, int]]
    sampled: int
    ignored: dict[int, str]
    follows: str = ""


def groups_of(layout: Layout, patience: float) -> list[str]:
    """The groups that have committed an offset of the topic, by name."""
    count = layout.count(layout.topic, patience)
    with layout.admin() as admin:
        listed = layout.answered(
            lambda: admin.list_consumer_groups().result(ANSWER), "the list of groups"
        )
    names = sorted(one.group_id for one in listed.valid)
    return [name for name in names if committed(replace(layout, group=name), count)]


def look(layout: Layout, patience: float) -> GroupView:
    """Ask the brokers about the group, and read some of its unfinished records."""
    count = layout.count(layout.topic, patience)
    bounds = marks(layout, layout.topic, count)
    floors = [begin for begin, _ in bounds]
    metadata = [Metadata() for _ in bounds]
    ignored: dict[int, str] = {}
    cluster = layout.cluster(patience)
    places = committed(layout, count)
    for place in places:
        # What was deleted before it was read is not unfinished.
        floors[place.partition] = max(place.offset, floors[place.partition])
        beside = metadata_in(cluster, place)
        if isinstance(beside, Unusable):
            ignored[place.partition] = f"the metadata beside offset {place.offset}: {beside}"
        else:
            metadata[place.partition] = beside
    unread = [(floor, end) for floor, (_, end) in zip(floors, bounds, strict=True)]
    most = -(-_SAMPLE // max(1, sum(floor < end for floor, end in unread)))
    keys: Counter[bytes | None] = Counter()
    read: Counter[int] = Counter()
    left: Counter[int] = Counter()
    for message in records(layout, layout.topic, unread, most):
        number, offset = place_of(message)
        read[number] += 1
        if not any(begin <= offset < end for begin, end in metadata[number].finished):
            left[number] += 1
            keys[message.key()] += 1
    parts: dict[int, Part] = {}
    for number, (floor, end) in enumerate(unread):
        above = sum(last - first for first, last in metadata[number].finished)
        # Where not all were read: not each offset has a record, some belong to transactions.
        rest = max(0, end - floor - above) if read[number] >= most else left[number]
        parts[number] = Part(floor, above, end, rest)
    described = _described(layout)
    follows = _followed(layout.topic, described) if places else ""
    if follows and layout.count(follows, patience) != count:
        follows = ""
    if follows:
        leader = replace(layout, topic=follows)
        theirs = {one.partition: metadata_in(cluster, one) for one in committed(leader, count)}
        states = {n: one.state for n, one in theirs.items() if isinstance(one, Metadata)}
    else:
        states = {number: one.state for number, one in enumerate(metadata)}
    members = _members(follows or layout.topic, described, states)
    return GroupView(
        name=layout.group,
        topic=layout.topic,
        stored=sum(end - begin for begin, end in bounds),
        letters=sum(1 for _ in letters_of(layout, patience)),
        lag={number: part.unfinished for number, part in parts.items()},
        owners={number: member.id for member in members for number in member.partitions},
        workers={
            member.id: {"name": member.name} | ({} if member.state is None else member.state.counts)
            for member in members
        },
        parts=parts,
        members=members,
        keys=[(text_of(key), n) for key, n in keys.most_common(_HOTTEST) if key is not None],
        sampled=sum(left.values()),
        ignored=ignored,
        follows=follows,
    )


# Any: the stubs have no type for a description.
def _described(layout: Layout) -> list[Any]:
    """The members of the group, as brokers describe them."""
    from confluent_kafka import KafkaError, KafkaException

    def ask() -> Any:
        try:
            return admin.describe_consumer_groups([layout.group])[layout.group].result(ANSWER)
        except KafkaException as raised:
            if raised.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise

    with layout.admin() as admin:
        group = layout.answered(ask, f"group {layout.group!r}")
    return [] if group is None else group.members


def _assigned(member: Any) -> list[Any]:
    return member.assignment.topic_partitions if member.assignment else []


def _followed(topic: str, described: Iterable[Any]) -> str:
    """The only topic of which members have partitions, if it is another one than this; "" else. The
    readers of other topics of a join are in no group, and its members commit their offsets."""
    topics = {place.topic for member in described for place in _assigned(member)}
    return "" if topic in topics or len(topics) != 1 else topics.pop()


def _members(
    topic: str, described: Iterable[Any], states: Mapping[int, State | None]
) -> list[Member]:
    found: list[Member] = []
    for member in described:
        numbers = tuple(sorted(p.partition for p in _assigned(member) if p.topic == topic))
        name: str = member.client_id
        reported = (state for one in numbers if (state := states.get(one)) and state.is_of(name))
        host = member.host.removeprefix("/")
        found.append(Member(member.member_id, name, host, numbers, next(reported, None)))
    return sorted(found, key=lambda one: (one.name, one.partitions))
