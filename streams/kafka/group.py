"""What a reader of a group has to do with: its settings, its client, its stage, and those that read
with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from penstock.streams.base.errors import PenstockError
from penstock.streams.delivery.marks import Marks
from penstock.streams.kafka.client import error_of
from penstock.streams.kafka.offsets.commits import Committing
from penstock.streams.kafka.offsets.partition import Partition, Token
from penstock.streams.protocol.event import Origin
from penstock.streams.protocol.partitions import PartitionsWatcher

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition

__all__ = ["Consumer", "Followed", "GroupSettings", "Reader", "Since", "reading_error"]

Since = Literal["first", "new"]

# ruff: noqa: ASYNC109 (these are the arguments of the client)


class Consumer(Committing, Protocol):
    """The methods of `confluent_kafka.aio.AIOConsumer` that are used."""

    async def list_topics(self, topic: str = ..., timeout: float = ...) -> Any: ...
    async def subscribe(self, topics: list[str], **callbacks: Any) -> None: ...
    async def poll(self, timeout: float) -> Message | None: ...
    async def consume(self, num_messages: int, timeout: float) -> list[Message]: ...
    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = ..., cached: bool = ...
    ) -> tuple[int, int] | None: ...
    async def incremental_assign(self, partitions: list[TopicPartition]) -> None: ...
    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None: ...
    async def pause(self, partitions: list[TopicPartition]) -> None: ...
    async def resume(self, partitions: list[TopicPartition]) -> None: ...
    async def close(self) -> None: ...


class GroupSettings(NamedTuple):
    """The arguments of `penstock.read_kafka` that concern the group."""

    topics: tuple[str, ...]
    group: str
    servers: str
    client: Mapping[str, Any]
    since: Since
    handover: float
    session: float
    attempts: int | None
    consumer: Callable[[dict[str, Any]], Consumer]
    offsets: Marks | None = None
    whole: Callable[[], object] | None = None
    """Called when what was there at the beginning is done, by a reader of all partitions."""


class Reader(Origin, PartitionsWatcher, Protocol):
    """The stage that reads as this member, which is told of its partitions."""

    @property
    def asks_for_ends(self) -> bool:
        """Whether it is to be told when there is nothing more of a partition."""
        ...

    @property
    def room(self) -> int:
        """How many records may be read now."""
        ...

    def came(self, records: list[Token], /) -> None:
        """Records were read. There may be none: then a partition is at its end."""
        ...

    def let_go(self) -> None:
        """Partitions go: take what has not begun out of the pipeline, and forget what is theirs."""
        ...

    def give_up(self, partition: Partition, offset: int, lost: int, /) -> bool:
        """Let a record that has ended so many processes end without beginning, if it is at hand."""
        ...

    def wake_soon(self) -> None:
        """Records may be emitted again."""
        ...

    def fail(self, error: BaseException, /) -> None:
        """The group cannot be read any more."""
        ...


class Followed(Protocol):
    """A reader of the same numbers of partitions of another topic: see `Follower`."""

    topic: str
    reader: Reader
    partitions: dict[tuple[str, int], Partition]

    def start(self) -> None: ...
    async def prepared(self, numbers: Sequence[int], /) -> list[TopicPartition]: ...
    def begin(self, places: list[TopicPartition], /) -> None: ...
    def let_go_of(self, numbers: Iterable[int], /) -> list[Partition]: ...
    def left(self, leaving: Iterable[Partition], /) -> None: ...
    def end(self, leaving: Iterable[Partition], /) -> None: ...


def reading_error(settings: GroupSettings, error: KafkaError, topic: str = "") -> PenstockError:
    """The error of a reader, about one of its topics if that is known."""
    from confluent_kafka import KafkaError as Code

    what = f"read_kafka({topic or ', '.join(settings.topics)!r})"
    # A fatal error names its cause only in its text.
    if error.code() == Code._FATAL and Code(Code.GROUP_ID_NOT_FOUND).str() in error.str():
        return PenstockError(
            f"{what}: the brokers have not let this reader into group "
            f"{settings.group!r} ({error.str()}): other readers use the classic protocol "
            "there. Stop them before you change group.protocol, or leave it out here; where "
            "brokers take both, start this reader again."
        )
    return error_of(error, what, settings.servers)
