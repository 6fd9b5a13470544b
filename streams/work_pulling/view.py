"""A view of work pools on the servers: their epic, workers, queue and dead letters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from orjson import JSONDecodeError, loads

from penstock.streams.nats.client.answers import answered
from penstock.streams.nats.client.connection import jetstream
from penstock.streams.work_pulling.wire import CONSUMER, Wire

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.streams.nats.client.client import Client

__all__ = ["Epic", "PoolView", "look_at", "pools_there"]

_PREFIX = "penstock-work-"
# Seconds in which a master answers.
_ANSWER = 1.0


@dataclass(frozen=True, slots=True)
class Epic:
    """A master's status of its epic: `seconds` since it began, jobs `done` and `failed`, those that
    are `out`, the `workers` with room for `capacity` jobs in all, and the fields of `Use`."""

    epic: str
    seconds: float
    done: int
    failed: int
    out: int
    workers: int
    capacity: int
    # None from a master of an earlier version.
    busy: float | None = None
    gain: float | None = None
    pays: int | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """A snapshot. `epic` is None if none is under way; parcels of jobs are `waiting` in the queue,
    or `held` by workers."""

    name: str
    waiting: int
    held: int
    letters: int
    epic: Epic | None


_FIELDS = {field.name for field in fields(Epic)}


async def pools_there(js: JetStreamContext) -> list[Wire]:
    """The pools that the servers know, by name."""
    found: list[Wire] = []
    for info in await answered(js.streams_info):
        wire = Wire((), (info.config.name or "").removeprefix(_PREFIX), 1, 1.0)
        if info.config.name == wire.stream and info.config.subjects == [wire.jobs(">")]:
            found.append(wire)
    return sorted(found, key=lambda wire: wire.name)


def _epic_in(data: bytes) -> Epic | None:
    """A master's answer; None if another program answered."""
    try:
        answer: Any = loads(data)
        # A later version may tell more.
        return Epic(**{name: answer[name] for name in _FIELDS & answer.keys()})
    except (JSONDecodeError, TypeError, AttributeError):
        return None


async def look_at(client: Client, wire: Wire) -> PoolView:
    """Ask the servers, and the master if there is one."""
    from nats.errors import NoRespondersError
    from nats.errors import TimeoutError as NoAnswer

    js = jetstream(client)
    letters = (await js.stream_info(wire.letters)).state.messages
    queue = await js.consumer_info(wire.stream, CONSUMER)
    epic: Epic | None = None
    try:
        answer = await client.request(wire.subject("about"), timeout=_ANSWER)
    except (NoRespondersError, NoAnswer):
        pass
    else:
        epic = _epic_in(answer.data)
    return PoolView(wire.name, queue.num_pending or 0, queue.num_ack_pending or 0, letters, epic)
