"""The client of a cluster: its addresses, its settings, and what its errors mean.

The client is confluent-kafka, Confluent's own, on librdkafka. Order and exactly-once need its
rebalances, cooperative (KIP-429) or by the broker (KIP-848), and the group's metadata in
transactions (KIP-447).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.errors import (
    BuildError,
    CannotConnect,
    PenstockError,
    RightsMissing,
    StreamMissing,
)
from penstock.streams.base.extras import require
from penstock.streams.base.validation import texts_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = [
    "PARTITIONER",
    "Servers",
    "awaited",
    "client_settings",
    "connection_of",
    "error_of",
    "needs_client",
    "producer_of",
    "servers_of",
    "settings_refused",
]

Servers = str | Sequence[str]

PARTITIONER = "murmur2_random"
"""With this one the partition of a key is the same as that of Java's clients."""

# Settings that are arguments, or on which the promises depend.
_OWN = frozenset(
    {
        "auto.commit.enable",
        "auto.offset.reset",
        "bootstrap.servers",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "max.poll.interval.ms",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_commit",
        "on_delivery",
        "partition.assignment.strategy",
        "transactional.id",
    }
)

# The settings on which a connection depends begin so.
_CONNECTION = (
    "bootstrap.servers",
    "broker.address.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "oauth_cb",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)


def needs_client(who: str) -> None:
    """Raise MissingExtra if the client is not installed."""
    require("confluent_kafka", f"{who} needs confluent-kafka", "kafka")


def servers_of(servers: Servers, who: str) -> str:
    """The addresses `a:9092,b:9092`, without `kafka://`. Raises BuildError if there is none."""
    given = servers.split(",") if isinstance(servers, str) else texts_of(servers)
    addresses = [one.strip().removeprefix("kafka://").rstrip("/") for one in given]
    if not addresses or not all(addresses) or any(set(one) & set(" \t\r\n/") for one in addresses):
        raise BuildError(
            f"{who}(servers={servers!r}): give addresses of Kafka brokers, as in 'localhost:9092' "
            "or 'a:9092,b:9092'"
        )
    return ",".join(addresses)


def checked_config(config: Mapping[str, Any] | None, who: str) -> Mapping[str, Any]:
    """The settings that the user gives. Raises BuildError unless they are settings by name."""
    if config is not None and not isinstance(cast(Any, config), Mapping):
        raise BuildError(f"{who}(config={config!r}): give a dict of settings by their names")
    return config or {}


def client_settings(
    servers: Servers, config: Mapping[str, Any] | None, own: Mapping[str, Any], who: str
) -> dict[str, Any]:
    """The settings of a client: the user's `config`, which may not change our `own`.

    Raises BuildError for a setting that is not the user's to choose.
    """
    chosen: dict[str, Any] = dict(config or {})
    for name in chosen:
        if name in _OWN:
            raise BuildError(
                f"{who}(config={{{name!r}: ...}}): penstock sets this itself; see the arguments of "
                f"{who}"
            )
    return {
        "bootstrap.servers": servers_of(servers, who),
        "client.id": "penstock",
        # Errors are raised or reported by penstock.
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 30_000,
        "allow.auto.create.topics": False,
        **chosen,
        **own,
    }


def connection_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a connection depends on."""
    return {name: value for name, value in settings.items() if name.startswith(_CONNECTION)}


def awaited(callback: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    """A callback of the user as an async one, which the async client needs."""

    async def call(*arguments: Any) -> None:
        answer = callback(*arguments)
        if isawaitable(answer):
            await answer

    return call


# Any: its stubs say less than `Producer` of `writing` needs.
def producer_of(settings: dict[str, Any], who: str) -> Any:
    """A producer of `who`. Raises BuildError for settings that the client does not take."""
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer(settings)
    except KafkaException as error:
        raise settings_refused(error, who) from None


def settings_refused(error: Exception, who: str) -> BuildError:
    """The error for settings that the client does not accept."""
    return BuildError(f"{who}(config=...): the Kafka client does not accept this: {error}")


def error_of(error: KafkaError, what: str, servers: str) -> PenstockError:
    """The error of a client as ours, which says what to do."""
    from confluent_kafka import KafkaError as Code

    code, text = error.code(), error.str()
    if code in (Code._UNKNOWN_TOPIC, Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_PARTITION):
        return StreamMissing(
            f"{what}: there is no such topic on {servers} ({text}). Create it, or correct its name."
        )
    if code in (
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return RightsMissing(f"{what}: the brokers refuse it ({text}). Give the user this right.")
    if code in (Code._AUTHENTICATION, Code.SASL_AUTHENTICATION_FAILED, Code._SSL):
        return CannotConnect(
            f"{what}: {servers} does not accept the credentials or the certificate ({text}). "
            "Correct security.protocol, sasl.* or ssl.* in config=."
        )
    if code in (Code._ALL_BROKERS_DOWN, Code._TRANSPORT, Code._RESOLVE, Code._TIMED_OUT):
        return CannotConnect(
            f"{what}: no Kafka broker answers at {servers} ({text}). Start it, or correct servers=."
            " If it expects TLS or credentials, set security.protocol in config=."
        )
    if code in (Code._BAD_COMPRESSION, Code._NOT_IMPLEMENTED, Code.UNSUPPORTED_COMPRESSION_TYPE):
        return PenstockError(
            f"{what}: records are compressed in a way that this client does not know, or are "
            f"damaged ({text}). Update confluent-kafka, or let producers use another "
            "compression.type."
        )
    return PenstockError(f"{what}: {text} ({error.name()})")
