"""Read topics of Apache Kafka as a member of a group, in order per partition or per key.

Items:   the object of each record, as a dict, or what `decode` returns; with `records`, a
         `KafkaRecord` with key, headers and place as well. Records of a partition come in order.
         Behind `group_by` those of a key do too, while many keys of a partition are processed at
         once.
Time:    as they come; an event counts as created at the record's timestamp.
Memory:  as many records as there is demand for, and about 16 MiB that the client has fetched. For
         each partition a number for each unfinished record.
Demand:  connects at the first request, and then takes as many records as there is demand. Without
         demand for half a second the partitions are paused.
Ends:    never, or with `follow=False` when it has caught up. Once a second, and at the end, the
         group's offsets are committed up to the floor below which everything is finished; what is
         finished above it is noted beside the offset, and not repeated after a restart.
         A record that failed is emitted again after `retry_after` seconds. A partition that goes to
         another reader begins nothing more, finishes what has begun within `handover` seconds, and
         commits, before it is given up.
Errors:  CannotConnect, StreamMissing for a topic that does not exist or is deleted, and
         RightsMissing end the stream. A value that cannot be decoded is reported and counted
         (`on_bad_record="report"`), ends the stream ("stop"), or goes to a sink of dead letters
         (`route(sink)`). Records that the topic deleted before they were read are reported and
         counted (`expired`). A topic that was created again, or has lost the record to be read, is
         reported and read from its first record on.

    partition 0  a--b----c-
    partition 1  -d----e---
    request      3----2----
    read_kafka   ad-b--ec--

Kafka's group protocols: KIP-429 (cooperative rebalances), KIP-848 with
`config={"group.protocol": "consumer"}`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from penstock.streams.base.duration import is_duration
from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import (
    is_at_least,
    is_text,
    require_count,
    texts_of,
)
from penstock.streams.failures.policy import OnBadInput, Route, check_bad_input, routed_by
from penstock.streams.io.body import json_object
from penstock.streams.io.line_format import decoding
from penstock.streams.kafka.client import (
    Servers,
    awaited,
    checked_config,
    client_settings,
    needs_client,
    servers_of,
    settings_refused,
)
from penstock.streams.kafka.group import GroupSettings
from penstock.streams.kafka.reading import Reading, ReadingSettings
from penstock.streams.kafka.record import KafkaRecord
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.state.store import Store

__all__ = ["read_kafka"]

T = TypeVar("T")

# The client keeps so many KiB of fetched records, for all partitions together. It fetches again
# below so many records, and then looks every so many milliseconds whether to. By default it looks
# once a second, in which a quick pipeline has long processed what was there.
_FETCHING = {
    "queued.max.messages.kbytes": 16 * 1024,
    "queued.min.messages": 10_000,
    "fetch.queue.backoff.ms": 10,
}
_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb")
# Milliseconds after which brokers give up a reader that does not answer; their own default.
_SESSION = 45_000


class _Options(TypedDict, total=False):
    """The options of all overloads; `read_kafka` says what they mean."""

    follow: bool
    since: Literal["first", "new"]
    handover: float
    retry_after: float
    on_bad_record: OnBadInput
    attempts: int
    offsets: Store | None
    config: Mapping[str, Any] | None


@overload
def read_kafka(
    topics: str | Sequence[str],
    group: str,
    servers: Servers = ...,
    *,
    decode: None = ...,
    records: Literal[False] = ...,
    **options: Unpack[_Options],
) -> Flowable[dict[str, Any]]: ...


@overload
def read_kafka(
    topics: str | Sequence[str],
    group: str,
    servers: Servers = ...,
    *,
    decode: None = ...,
    records: Literal[True],
    **options: Unpack[_Options],
) -> Flowable[KafkaRecord[dict[str, Any] | None]]: ...


@overload
def read_kafka(
    topics: str | Sequence[str],
    group: str,
    servers: Servers = ...,
    *,
    decode: type[T] | Callable[[bytes], T],
    records: Literal[False] = ...,
    **options: Unpack[_Options],
) -> Flowable[T]: ...


@overload
def read_kafka(
    topics: str | Sequence[str],
    group: str,
    servers: Servers = ...,
    *,
    decode: type[T] | Callable[[bytes], T],
    records: Literal[True],
    **options: Unpack[_Options],
) -> Flowable[KafkaRecord[T | None]]: ...


@recorded
@source
def read_kafka(
    topics: str | Sequence[str],
    group: str,
    servers: Servers = "localhost:9092",
    *,
    decode: Any = None,
    records: bool = False,
    follow: bool = True,
    since: Literal["first", "new"] = "first",
    handover: float = 60.0,
    retry_after: float = 5.0,
    on_bad_record: OnBadInput = "report",
    attempts: int = 3,
    offsets: Store | None = None,
    config: Mapping[str, Any] | None = None,
) -> Flowable[Any]:
    """Read one topic or several; one that begins with `^` is a regular expression.

    Readers of one `group` share the partitions. A new group begins with the `first` record, or with
    `new` ones: those that are written after its start, also while no reader runs. `decode` is a
    function of the value's bytes, a msgspec Struct or a pydantic model; without it a value is a
    JSON object. Without `records`, a record that has no value (a tombstone) is dropped, and
    counted. With `on_bad_record=route(sink)` a record that was alone in `attempts` processes when
    each ended goes there as well, as WorkerLost; so does one that blocks them for as long as the
    brokers wait.

    With `offsets`, a Store, it is kept there what is done, in one transaction with the states that
    it has changed; the group's offsets follow, and are not read. Such a reader must have all
    partitions: it begins when it has them, is refused while other members have some, and does not
    look for records that end processes.

    `config` has other settings of the client by their names in librdkafka, such as
    `security.protocol`, `sasl.*`, `ssl.*` or `group.protocol`. Raises BuildError for invalid
    options and settings, MissingExtra without confluent-kafka.

    >>> from penstock import for_each, read_kafka
    >>> print(read_kafka("orders", group="billing").to(for_each(print)))
    <Pipeline read_kafka > for_each>
    """
    names = texts_of(topics)
    if not names or not all(names):
        raise BuildError(f"read_kafka({topics!r}): give a topic, or a list of topics")
    if not is_text(group):
        raise BuildError(f"read_kafka(group={group!r}): give the name of the readers' group")
    if since not in ("first", "new"):
        raise BuildError(f'read_kafka(since={since!r}): use "first" or "new"')
    if not (is_duration(handover) and is_at_least(handover, 1) and is_duration(retry_after)):
        raise BuildError(
            f"read_kafka(handover={handover!r}, retry_after={retry_after!r}): at least 1 and 0 "
            "seconds"
        )
    check_bad_input(on_bad_record, "read_kafka", "on_bad_record")
    require_count("read_kafka", attempts=attempts)
    _check_offsets(offsets, names)
    needs_client("read_kafka")
    client = client_settings(
        servers,
        {
            # By it members are told apart where a group is looked at.
            "client.id": f"penstock-{gethostname()}-{os.getpid()}",
            "isolation.level": "read_committed",
            **_FETCHING,
            **checked_config(config, "read_kafka"),
        },
        {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": not follow,
            # Where to begin, and to go on when a record is not there any more, is decided here.
            "auto.offset.reset": "error",
            "max.poll.interval.ms": round(handover * 1000),
        },
        "read_kafka",
    )
    client |= {name: awaited(client[name]) for name in _CALLBACKS if name in client}
    session = min(_SESSION, round(handover * 1000))
    if client.get("group.protocol", "classic") == "classic":
        client["partition.assignment.strategy"] = "cooperative-sticky"
        session = client.setdefault("session.timeout.ms", session)
    else:
        # The brokers', of which the client does not know: it does not take the setting.
        session = client.pop("session.timeout.ms", _SESSION)
    # Any: a function of bytes, and a type.
    decoded: Any = json_object
    values: Any = Mapping
    if decode is not None:
        line_format = decoding("read_kafka", decode, False)
        decoded, values = line_format.decode, line_format.values
    settings = ReadingSettings(
        GroupSettings(
            names,
            group,
            servers_of(servers, "read_kafka"),
            client,
            since,
            handover,
            session / 1000,
            attempts if type(on_bad_record) is Route and offsets is None else None,
            _consumer,
            offsets,
        ),
        decoded,
        records,
        follow,
        retry_after,
        on_bad_record,
    )
    kept = "" if offsets is None else f", offsets in {offsets.name}"
    info = StageInfo(
        "read_kafka",
        f"{', '.join(names)}, group {group}{kept}",
        0,
        "requests as many records as there is demand",
        routed=routed_by(on_bad_record),
        delivery=Delivery(acknowledges=True, store=offsets, whole=partial(_whole, settings)),
    )

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        Reading(downstream, run, flowable.info, settings).start()

    flowable: Flowable[Any] = Flowable(attach, info, values=None if records else values)
    return flowable


def _whole(settings: ReadingSettings, come: Callable[[], object]) -> Flowable[Any]:
    """The topics, of which one reader has all partitions, in no group."""
    what = f"read_kafka({', '.join(settings.group.topics)!r}"
    if settings.group.offsets is not None:
        raise BuildError(
            f"{what}, offsets=...): with whole=True the table is read from its first record in "
            "every run: leave out offsets="
        )
    if settings.group.since == "new":
        raise BuildError(
            f"{what}, since='new'): with whole=True the table is read from its first record in "
            "every run: leave out since="
        )
    if any(topic.startswith("^") for topic in settings.group.topics):
        raise BuildError(f"{what}): name the topics of a table with whole=True, without `^`")
    group = settings.group._replace(whole=come, attempts=None)
    topics = ", ".join(settings.group.topics)
    info = StageInfo("read_kafka", f"{topics}, all partitions", is_source=True)

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        Reading(downstream, run, info, settings._replace(group=group)).start()

    return Flowable(attach, info)


def _check_offsets(offsets: Any, names: Sequence[str]) -> None:
    if offsets is None:
        return
    if not hasattr(offsets, "marks_in"):
        raise BuildError(f"read_kafka(offsets={offsets!r}): give a Store(path)")
    if any(name.startswith("^") for name in names):
        raise BuildError(
            f"read_kafka({', '.join(names)!r}, offsets=Store(...)): name the topics. Which of them "
            "match an expression only the brokers know, and this reader has to have all of their "
            "partitions"
        )
    if len(names) > 1 and offsets.moves:
        raise BuildError(
            f"read_kafka({', '.join(names)!r}, offsets={offsets!r}): states there move with the "
            "partitions of one topic. Read each by a read_kafka of its own with the same store, "
            "and put them together with ops.merge; or join them"
        )


def _consumer(settings: dict[str, Any]) -> Any:
    from confluent_kafka import KafkaException
    from confluent_kafka.aio import AIOConsumer

    try:
        # One worker reads, and one serves the calls of its callbacks.
        return AIOConsumer(settings, max_workers=3)
    except KafkaException as error:
        raise settings_refused(error, "read_kafka") from None
