"""The kata under a load that changes, to be looked at while it runs.

    make demo                                      or: penstock run examples/demo.py --serve 9464

Events of a hundred clients come at a rate that rises and falls, and are sent to a service of 24
servers. In the second half of each minute the service is twice as slow, and one client sends a
tenth of all events; every fiftieth call fails. The live page shows where the work waits, and how
the limit follows.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator
from typing import TypedDict
from uuid import uuid4

from penstock import (
    adaptive_flat_map,
    distinct_within,
    for_each,
    from_async_iterable,
    group_by,
    latency_histogram,
    spread,
)


class Event(TypedDict):
    uuid: str
    client: int


class Busy(Exception):
    """The service did not answer."""


STARTED = time.monotonic()

SERVERS = asyncio.Semaphore(24)


def is_hard() -> bool:
    """Whether it is the second half of a minute."""
    return (time.monotonic() - STARTED) % 60 > 30


async def load() -> AsyncIterator[Event]:
    """Events as they become due: between 200 and 800 a second, one in a hundred twice."""
    due = time.monotonic()
    while True:
        rate = 500 + 300 * math.sin((due - STARTED) / 7)
        due += random.expovariate(rate)
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        client = 1 if is_hard() and random.random() < 0.1 else random.randrange(1, 101)
        event = Event(uuid=str(uuid4()), client=client)
        yield event
        if random.random() < 0.01:
            yield event


async def work(event: Event) -> Event:
    async with SERVERS:
        await asyncio.sleep(max(0.001, random.gauss(0.040 if is_hard() else 0.020, 0.002)))
    if random.random() < 0.02:
        raise Busy("no answer")
    return event


pipeline = (
    from_async_iterable(load)
    .pipe(
        distinct_within(10, by="uuid"),
        group_by("client"),
        spread(),
        adaptive_flat_map(work, on_error="skip"),
    )
    .to(for_each(bool), latency_histogram(every=None, report=None))
)
