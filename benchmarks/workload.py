"""The load of the stream kata, the same for every subject: seeded events and handlers.

``python -m benchmarks.workload --events N > events.jsonl`` writes it as JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from time import monotonic_ns
from typing import Any, BinaryIO

import orjson

__all__ = [
    "CLIENTS",
    "LIMIT",
    "SEED",
    "WINDOW_SECONDS",
    "Event",
    "Result",
    "arrivals",
    "kata_events",
    "large_events",
    "many_keys",
    "one_against_many",
    "project",
    "project_yielding",
    "slow_handler",
    "started_before_the_last_other",
    "users",
    "write_jsonl",
]

Event = dict[str, Any]
Result = dict[str, Any]

CLIENTS = range(1000, 1100)
SHARE_OF_DUPLICATES = 0.01
# A repeated uuid is one of the last thousand: one second at the kata's rate, within the window.
REPEATED_WITHIN = 1_000
WINDOW_SECONDS = 10
LIMIT = 64
SEED = 20_260
EPOCH = 1_700_000_000.0


def kata_events(count: int, *, rate: float = 1_000.0, seed: int = SEED) -> list[Event]:
    """`count` events of 100 clients, 1 % of them repeating the uuid of a recent one.

    `created` is in seconds since 1970, at `rate` events per second. A repeated event keeps the
    client of the first, as a redelivery would.
    """
    random = Random(seed)
    events: list[Event] = []
    for number in range(count):
        created = EPOCH + number / rate
        if events and random.random() < SHARE_OF_DUPLICATES:
            first = events[-random.randint(1, min(REPEATED_WITHIN, len(events)))]
            events.append({**first, "created": created})
        else:
            client = CLIENTS[int(random.random() * len(CLIENTS))]
            events.append({"uuid": _uuid(random), "client_id": client, "created": created})
    return events


def write_jsonl(events: list[Event], output: BinaryIO) -> None:
    """One JSON object per line; the last line ends with a newline too."""
    for event in events:
        output.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))


def many_keys(count: int, *, rate: float = 50_000.0) -> Iterator[Event]:
    """Lazily, `count` events, each with a different uuid and client; `created` is in seconds."""
    for number in range(count):
        yield {"uuid": f"key-{number}", "client_id": number, "created": EPOCH + number / rate}


def one_against_many() -> list[Event]:
    """500 events of the first client, then one of each of the 99 others."""
    clients = [CLIENTS[0]] * 500 + list(CLIENTS[1:])
    return [
        {"uuid": f"event-{number}", "client_id": client, "created": EPOCH}
        for number, client in enumerate(clients)
    ]


def started_before_the_last_other(clients: list[int]) -> int:
    """Of `one_against_many`: the busy client's events that start before the last other client's."""
    last_other = max(place for place, client in enumerate(clients) if client != CLIENTS[0])
    return clients[:last_other].count(CLIENTS[0])


def users(count: int) -> list[str]:
    """The users of 100,000 events, at random; their texts are shared, as those of a parser are not
    kept."""
    return Random(1).choices([f"user {number}" for number in range(count)], k=100_000)


def large_events(count: int) -> Iterator[Event]:
    """Lazily, `count` events of about 1 kB, spread over the clients."""
    for number in range(count):
        client = CLIENTS[number % len(CLIENTS)]
        body = f"{number:01000d}"
        yield {"uuid": f"{number:036d}", "client_id": client, "created": EPOCH, "body": body}


async def arrivals(rate: float, seconds: float, *, seed: int = SEED) -> AsyncIterator[list[Event]]:
    """Events when they are due, without waiting for the consumer: an open loop.

    Each `created` is the instant, in nanoseconds of `time.monotonic_ns`, at which the event was
    due, so that a consumer that keeps the loop busy is charged for it (no coordinated omission).
    """
    events = kata_events(int(rate * seconds), rate=rate, seed=seed)
    start = monotonic_ns()
    for number, event in enumerate(events):
        event["created"] = start + int(number * 1e9 / rate)
    sent = 0
    while sent < len(events):
        due = min(len(events), int((monotonic_ns() - start) * rate / 1e9) + 1)
        if due > sent:
            yield events[sent:due]
            sent = due
        else:
            # Sleeping less than the millisecond of libuv's timers is a busy loop on uvloop.
            await asyncio.sleep(0.001)


def project(event: Event) -> Result:
    """The plain handler."""
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


async def project_at_once(event: Event) -> Result:
    """The plain handler for a pipe of workers, which await."""
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


async def project_yielding(event: Event) -> Result:
    """The same, yielding to the loop once."""
    await asyncio.sleep(0)
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


def slow_handler(
    mean: float = 0.010, sigma: float = 0.001, *, seed: int = SEED
) -> Callable[[Event], Awaitable[Result]]:
    """The kata's handler: sleeps for a normally distributed time, in seconds."""
    random = Random(seed)

    async def project_slowly(event: Event) -> Result:
        await asyncio.sleep(max(0.0, random.gauss(mean, sigma)))
        return {"uuid": event["uuid"], "client_id": event["client_id"]}

    return project_slowly


def _uuid(random: Random) -> str:
    # uuid.UUID takes 2 µs for the same text, most of a benchmark's time spent in its set-up.
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    events = kata_events(options.events, rate=options.rate, seed=options.seed)
    write_jsonl(events, sys.stdout.buffer)
    print(len({event["uuid"] for event in events}), "different events", file=sys.stderr)


if __name__ == "__main__":
    main()
