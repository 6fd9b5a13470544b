"""Read a stream of NATS JetStream, which others may own, share and fill.

Items:   the object of each message, as a dict, or its bytes (`raw`); in the stream's order, except
         for redeliveries. Readers with the same `durable` share the messages.
Time:    as they come; an event counts as created when the server stored it. While an event is
         processed its lease is renewed, three times in its length. An event whose lease may be over
         is not begun, but returned.
Memory:  the messages that were requested but not delivered before a pause.
Demand:  connects at the first request, and then has exactly as many messages on request as there is
         demand, in long-lived requests that wait at the server.
Ends:    never, or with `follow=False` when nothing waits and no other reader is processing a
         message; while it waits for other readers, the log says so. An event that finished, or was
         dropped, skipped or routed, is acknowledged; one that failed is redelivered after
         `retry_after` seconds, one that was returned at once, to any reader. Drain and cancel
         withdraw the requests; messages delivered meanwhile are returned.
Errors:  CannotConnect, StreamMissing and StreamDiffers arrive as errors at the first request. A
         broken connection is re-established. A message that is not a JSON object is reported,
         counted and never delivered again (`on_bad_message="report"`), ends the stream ("stop"), or
         goes to a sink of dead letters (`route(sink)`).

    stream           a--b----c-
    request          2-------1-
    read_jetstream   a--b----c-
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from penstock.streams.base.duration import is_duration
from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import require
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_text
from penstock.streams.failures.policy import OnBadInput, check_bad_input, routed_by
from penstock.streams.nats.client.addresses import Servers, addresses_of
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import source

if TYPE_CHECKING:
    from penstock.streams.nats.streams.consumers import Since
    from penstock.streams.nats.streams.reading import ReadingSettings

__all__ = ["read_jetstream"]


class _Options(TypedDict, total=False):
    """The options of both overloads; `read_jetstream` says what they mean."""

    follow: bool
    since: Since
    lease: float
    retry_after: float
    on_bad_message: OnBadInput


@overload
def read_jetstream(
    subject_or_stream: str,
    durable: str | None = ...,
    servers: Servers = ...,
    *,
    raw: Literal[False] = ...,
    **options: Unpack[_Options],
) -> Flowable[dict[str, Any]]: ...


@overload
def read_jetstream(
    subject_or_stream: str,
    durable: str | None = ...,
    servers: Servers = ...,
    *,
    raw: Literal[True],
    **options: Unpack[_Options],
) -> Flowable[bytes]: ...


@recorded
@source
def read_jetstream(
    subject_or_stream: str,
    durable: str | None = None,
    servers: Servers = "nats://localhost:4222",
    *,
    raw: bool = False,
    follow: bool = True,
    since: Since = "first",
    lease: float = 30.0,
    retry_after: float = 5.0,
    on_bad_message: OnBadInput = "report",
) -> Flowable[Any]:
    """Read a stream by its name, or only its messages with a subject (`orders.*`).

    `durable` names a consumer that remembers acknowledgements; an existing one is used as it is.
    Without a name each run reads everything again. A new consumer begins with the `first` message
    or with `new` ones, and redelivers a message to another reader when its lease has not been
    renewed for `lease` seconds. `servers` may include user and password. Raises BuildError for
    invalid addresses, names and times, MissingExtra without nats-py.

    >>> from penstock import for_each, read_jetstream
    >>> print(read_jetstream("orders", durable="billing").to(for_each(print)))
    <Pipeline read_jetstream > for_each>
    """
    if not is_text(subject_or_stream) or (set(subject_or_stream) & set(" \t\r\n")):
        raise BuildError(f"read_jetstream({subject_or_stream!r}): give a stream or a subject")
    if durable is not None and (not is_text(durable) or set(durable) & set(" .*>/\\\t\r\n")):
        raise BuildError(
            f"read_jetstream(durable={durable!r}): a consumer's name must not contain dots, "
            "blanks, * or >"
        )
    if not (is_duration(lease) and lease and is_duration(retry_after)):
        raise BuildError(
            f"read_jetstream(lease={lease!r}, retry_after={retry_after!r}): must be positive"
        )
    check_bad_input(on_bad_message, "read_jetstream", "on_bad_message")
    require("nats", "read_jetstream needs nats-py", "cluster")
    # Slow to import, and few pipelines read there.
    from penstock.streams.nats.streams.reading import Reading, ReadingSettings

    settings = ReadingSettings(
        subject_or_stream,
        durable,
        addresses_of(servers),
        raw,
        follow,
        since,
        lease,
        retry_after,
        on_bad_message,
    )
    detail = subject_or_stream if durable is None else f"{subject_or_stream}, as {durable}"
    note = "requests as many messages as there is demand"
    routed = routed_by(on_bad_message)
    delivery = Delivery(acknowledges=True, whole=partial(_whole, settings))
    info = StageInfo("read_jetstream", detail, 0, note, routed=routed, delivery=delivery)

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        Reading(downstream, run, flowable.info, settings).start()

    flowable: Flowable[Any] = Flowable(attach, info, values=None if raw else Mapping)
    return flowable


def _whole(settings: ReadingSettings, come: Callable[[], object]) -> Flowable[Any]:
    """The stream, of which one reader has all messages, and shares no consumer."""
    from penstock.streams.nats.streams.whole import WholeReading

    if settings.since == "new":
        raise BuildError(
            f"read_jetstream({settings.what!r}, since='new'): with whole=True the table is read "
            "from its first message in every run: leave out since="
        )
    info = StageInfo("read_jetstream", f"{settings.what}, all messages", is_source=True)

    def attach(downstream: Subscriber[Any], run: Run) -> None:
        WholeReading(downstream, run, info, settings, come).start()

    return Flowable(attach, info)
