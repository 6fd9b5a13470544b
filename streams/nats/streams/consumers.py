"""Finds or creates the consumer of a stream that others own, and knows its settings."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.streams.base.errors import StreamDiffers, StreamMissing
from penstock.streams.nats.client.answers import answered, born_of, info_of
from penstock.streams.nats.client.connection import jetstream

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import StreamInfo

    from penstock.streams.nats.client.client import Client

__all__ = ["Since", "Standing", "consumer_of", "refusals_of", "standing_of", "stream_of"]

Since = Literal["first", "new"]

# Seconds after which the server deletes an unnamed consumer without readers.
_FORGOTTEN = 60.0
_NANOSECONDS = 1_000_000_000


class Standing(NamedTuple):
    """A consumer, its settings, and where it stands: messages `pending`, which have not been
    delivered, and those `out`, delivered and not acknowledged.

    The length of a lease is in seconds. `most_out` messages may be out, and each is delivered
    `most_deliveries` times at most; 0 is no bound.
    """

    stream: str
    name: str
    created: str
    pending: int
    out: int
    lease: float
    most_out: int
    most_deliveries: int
    paused: float
    """For so many more seconds it delivers nothing."""
    born: str = ""
    """When its stream was created, which tells it from an earlier one of that name."""


async def consumer_of(
    client: Client, what: str, durable: str | None, lease: float, since: Since
) -> Standing:
    """The consumer that reads `what`, the name of a stream or a subject that may have wildcards.

    One with the name `durable` is used as it is, or made; without a name a new one is made.
    Raises StreamMissing, StreamDiffers for one of another kind, CannotConnect without JetStream.
    """
    with refusals_of(what):
        return await answered(lambda: _consumer_of(client, what, durable, lease, since))


async def stream_of(client: Client, what: str) -> tuple[StreamInfo, str | None]:
    """The stream of `what`, as above, and the subject in it that is read, None for all of them.
    Raises StreamMissing, StreamDiffers, CannotConnect without JetStream."""
    with refusals_of(what):
        return await answered(lambda: _stream_of(jetstream(client), what))


@contextmanager
def refusals_of(what: str) -> Generator[None]:
    """Raise what a server refuses about a stream or a subject as StreamMissing or StreamDiffers."""
    from nats.js.errors import APIError, NotFoundError

    try:
        yield
    except NotFoundError as error:
        raise StreamMissing(
            f"no stream on the server is called '{what}' or takes that subject. Make it, or "
            "check the name: `nats stream ls` lists those that are there."
        ) from error
    except APIError as error:
        raise StreamDiffers(
            f"the server refuses a consumer for '{what}': {error.description}"
        ) from error


async def _consumer_of(
    client: Client, what: str, durable: str | None, lease: float, since: Since
) -> Standing:
    from nats.js.api import ConsumerConfig, DeliverPolicy
    from nats.js.errors import NotFoundError

    js = jetstream(client)
    stream, subject = await _stream_of(js, what)
    source, born = str(stream.config.name), born_of(stream)
    name = durable
    if name is not None:
        try:
            info = await info_of(client, source, name)
        except NotFoundError:
            pass
        else:
            _compare(info, subject, stream.config.subjects or ())
            return standing_of(info, born)
    untyped: Any = js
    made = await untyped.add_consumer(
        source,
        ConsumerConfig(
            durable_name=durable,
            filter_subject=subject,
            deliver_policy=DeliverPolicy.NEW if since == "new" else DeliverPolicy.ALL,
            ack_wait=lease,
            # The demand of its readers is the bound.
            max_ack_pending=-1,
            inactive_threshold=None if durable is not None else _FORGOTTEN,
        ),
    )
    return standing_of(await info_of(client, source, made.name), born)


def standing_of(info: dict[str, Any], born: str = "") -> Standing:
    """The standing in the server's answer; `born` is when its stream was created."""
    config: dict[str, Any] = info["config"]
    # The waits of the first deliveries, in the place of `ack_wait`.
    waits = config.get("backoff") or [config["ack_wait"]]
    return Standing(
        info["stream_name"],
        info["name"],
        info["created"],
        info["num_pending"],
        info["num_ack_pending"],
        min(waits) / _NANOSECONDS,
        max(0, config.get("max_ack_pending", 0)),
        max(0, config.get("max_deliver", 0)),
        info.get("pause_remaining", 0) / _NANOSECONDS,
        born,
    )


async def _stream_of(js: JetStreamContext, what: str) -> tuple[StreamInfo, str | None]:
    """The stream, and which of its subjects to read."""
    from nats.js.errors import NotFoundError

    if not set(what) & set(".*>"):
        with suppress(NotFoundError):
            return await js.stream_info(what), None
    return await js.stream_info(await js.find_stream_name_by_subject(what)), what


def _compare(info: dict[str, Any], subject: str | None, subjects: Sequence[str]) -> None:
    config: dict[str, Any] = info["config"]
    differences: list[str] = []
    if config.get("deliver_subject"):
        differences.append("it pushes its messages")
    if config["ack_policy"] != "explicit":
        differences.append(f"its acknowledgements are '{config['ack_policy']}', not 'explicit'")
    if config.get("headers_only"):
        differences.append("it delivers the headers of messages only (headers_only)")
    if config.get("priority_groups"):
        differences.append("it delivers to priority groups only (priority_groups)")
    if subject is not None:
        one = config.get("filter_subject")
        read: Sequence[str] = config.get("filter_subjects") or ([one] if one else subjects)
        if list(read) != [subject]:
            differences.append(f"it reads {' and '.join(map(repr, read))}, not '{subject}'")
    if differences:
        raise StreamDiffers(
            f"the consumer '{info['name']}' of the stream '{info['stream_name']}' is of another "
            f"kind: {'; '.join(differences)}. Nothing was changed; give another durable name."
        )
