"""Finds or creates the consumer of a stream that others own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.streams.errors import StreamDiffers, StreamMissing
from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import jetstream

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo

    from penstock.streams.nats.client.client import Client

__all__ = ["Since", "consumer_of"]

Since = Literal["first", "new"]

# Seconds after which the server deletes an unnamed consumer without readers.
_FORGOTTEN = 60.0


async def consumer_of(
    client: Client, what: str, durable: str | None, lease: float, since: Since
) -> ConsumerInfo:
    """The consumer that reads `what`, the name of a stream or a subject that may have wildcards.

    One with the name `durable` is used as it is, or made; without a name a new one is made.
    Raises StreamMissing, StreamDiffers for one of another kind, CannotConnect without JetStream.
    """
    from nats.js.errors import APIError, NotFoundError

    try:
        return await answered(lambda: _consumer_of(jetstream(client), what, durable, lease, since))
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
    js: JetStreamContext, what: str, durable: str | None, lease: float, since: Since
) -> ConsumerInfo:
    from nats.js.api import ConsumerConfig, DeliverPolicy
    from nats.js.errors import NotFoundError

    stream, subject = await _stream_of(js, what)
    if durable is not None:
        try:
            info: ConsumerInfo = await js.consumer_info(stream, durable)
        except NotFoundError:
            pass
        else:
            _compare(info, subject)
            return info
    untyped: Any = js
    made: ConsumerInfo = await untyped.add_consumer(
        stream,
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
    return made


async def _stream_of(js: JetStreamContext, what: str) -> tuple[str, str | None]:
    """The stream, and which of its subjects to read."""
    from nats.js.errors import NotFoundError

    if not set(what) & set(".*>"):
        try:
            await js.stream_info(what)
        except NotFoundError:
            pass
        else:
            return what, None
    found: str = await js.find_stream_name_by_subject(what)
    return found, what


def _compare(info: ConsumerInfo, subject: str | None) -> None:
    from nats.js.api import AckPolicy

    config = info.config
    assert config is not None
    differences: list[str] = []
    if config.deliver_subject:
        differences.append("it pushes its messages")
    if config.ack_policy != AckPolicy.EXPLICIT:
        differences.append(f"its acknowledgements are '{config.ack_policy}', not 'explicit'")
    if subject is not None and (config.filter_subject or subject) != subject:
        differences.append(f"it reads '{config.filter_subject}', not '{subject}'")
    if differences:
        raise StreamDiffers(
            f"the consumer '{info.name}' of the stream '{info.stream_name}' is of another kind: "
            f"{'; '.join(differences)}. Nothing was changed; give another durable name."
        )
