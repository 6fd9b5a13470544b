"""Records what a NATS server has stored, as JSON, and plays it to another server.

A store's directory would be large and opaque. A bucket of keys and values is a stream as well, so
there are only streams and consumers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import datetime
from typing import Any, cast

from nats.js.errors import NotFoundError
from orjson import dumps, loads

from penstock.streams.delivery.text import text_of
from penstock.streams.nats.client.answers import stored_at
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.client.connection import connect, jetstream

__all__ = ["play", "record"]

# A condition of the write, not part of the data.
_CONDITIONS = "Nats-Expected-"


async def _ask(client: Client, what: str, **about: Any) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{what}", dumps(about) if about else b"")
    said: dict[str, Any] = loads(answer.data)
    if "error" in said:
        raise RuntimeError(f"{what}: {said['error']}")
    return said


async def record(url: str) -> dict[str, Any]:
    """All streams of a server by name: configuration, creation, messages and durable consumers."""
    client = await connect([url])
    try:
        listed = await _ask(client, "STREAM.LIST")
        names = sorted(stream["config"]["name"] for stream in listed["streams"])
        return {name: await _stream(client, name) for name in names}
    finally:
        await client.close()


async def _stream(client: Client, name: str) -> dict[str, Any]:
    js = jetstream(client)
    info = await _ask(client, f"STREAM.INFO.{name}")
    consumers = await _ask(client, f"CONSUMER.LIST.{name}")
    messages: list[dict[str, Any]] = []
    for sequence in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
        try:
            message = await js.get_msg(name, sequence)
        except NotFoundError:
            continue
        headers = message.headers or {}
        messages.append(
            {
                "sequence": sequence,
                "subject": message.subject,
                "headers": {k: v for k, v in headers.items() if not k.startswith(_CONDITIONS)},
                "payload": b64encode(message.data or b"").decode(),
            }
        )
    return {
        "config": info["config"],
        # As floors name their stream.
        "created": str((await js.stream_info(name)).created),
        "messages": messages,
        "consumers": [
            {"config": one["config"], "acknowledged": one["ack_floor"]["stream_seq"]}
            for one in consumers["consumers"]
            if "durable_name" in one["config"]
        ],
    }


async def play(url: str, recorded: dict[str, Any], *names: str) -> None:
    """Give a server the recorded streams of these names.

    Messages keep their numbers and subjects, except those of buckets, whose numbers do not matter.
    Entries about the time at which their stream was made, or messages were stored, get the times of
    this server.
    """
    client = await connect([url])
    try:
        born: dict[str, datetime] = {}
        # Buckets last, because their entries name streams, and some expire soon.
        for name in sorted(names, key=lambda name: name.startswith("KV_")):
            await _play(client, recorded[name], born)
    finally:
        await client.close()


async def _play(client: Client, stream: dict[str, Any], born: dict[str, datetime]) -> None:
    js = jetstream(client)
    config = stream["config"]
    name = config["name"]
    is_bucket = name.startswith("KV_")
    messages = stream["messages"]
    first = messages[0]["sequence"] if messages else 1
    await _ask(client, f"STREAM.CREATE.{name}", **{**config, "first_seq": first})
    born[stream["created"]] = cast(datetime, (await js.stream_info(name)).created)
    transform = config.get("subject_transform")
    for message in messages:
        data = b64decode(message["payload"])
        if name.startswith("KV_penstock_floors"):
            events = f"penstock-{name.removeprefix('KV_penstock_floors-')}"
            data = await _moved(client, data, born, events, message["subject"])
        subject = message["subject"]
        if transform is not None and not subject.endswith(".batch"):
            # Servers store it under its subject, or else the test fails below.
            subject = transform["src"].replace("*", subject.rpartition(".")[2])
        stored = await js.publish(subject, data, headers=message["headers"] or None)
        found = await js.get_msg(name, stored.seq)
        assert found.subject == message["subject"]
        assert is_bucket or stored.seq == message["sequence"]
    for consumer in stream["consumers"]:
        done = [one for one in messages if one["sequence"] <= consumer["acknowledged"]]
        await _consumer(client, name, consumer["config"], len(done))


async def _moved(
    client: Client, entry: bytes, born: dict[str, datetime], stream: str, subject: str
) -> bytes:
    """The floor of a partition, for the stream that exists now, in the text that floors have now:
    one without a checksum says nothing."""
    said = loads(entry)
    now = born[said.pop("of")]
    if said["floor"]:
        stored = await stored_at(client, stream, said["floor"])
        said["stored"] = stored if isinstance(stored, float) else now.timestamp()
    about = stream, subject.rpartition(".")[2].removeprefix("p."), str(now)
    return text_of(about, dumps(said).decode()).encode()


async def _consumer(client: Client, stream: str, config: dict[str, Any], count: int) -> None:
    """Make one that has acknowledged a number of messages."""
    name = config["durable_name"]
    await _ask(
        client, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", stream_name=stream, config=config
    )
    if count:
        subscription = await jetstream(client).pull_subscribe_bind(name, stream)
        for message in await subscription.fetch(count, timeout=10):
            await message.ack_sync()
        await subscription.unsubscribe()
