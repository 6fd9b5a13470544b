"""The stream kata: one projection per event, in order per client, many clients at once.

    penstock run examples/kata.py < events.jsonl > done.jsonl

Every line of the input is an event such as

    {"uuid": "3f2a...", "client_id": 1042, "created": 1447884000.25}

About a thousand of them come each second, for a hundred clients. Working on one takes 10 ms;
the events of one client must be worked on one at a time and in order; a uuid that was seen in
the last ten seconds is dropped. Latencies are printed each second on standard error.

Source: T. Nurkiewicz, "Small scale stream processing kata. Part 1: thread pools" (2016).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock import (
    adaptive_flat_map,
    distinct_within,
    group_by,
    latency_histogram,
    read_jsonl,
    spread,
    write_jsonl,
)

# How long one event takes, in seconds: the article's 10 ms, sigma 1 ms.
MEAN, SIGMA = 0.010, 0.001


async def save(event: dict[str, Any]) -> None:
    """Stand in for the database that a real projection would update."""
    await asyncio.sleep(max(0.0, random.gauss(MEAN, SIGMA)))


async def project(event: dict[str, Any]) -> dict[str, Any]:
    """Process one event; the return value is written to the output."""
    await save(event)
    return {"uuid": event["uuid"], "client_id": event["client_id"]}


pipeline = (
    # Standard input unless a path is given. Latency counts from the receipt of an event. For a live
    # feed write read_jsonl(created="created"): events in a file that were created long ago would
    # all have waited since then.
    read_jsonl()
    .pipe(
        distinct_within(10, by="uuid"),
        group_by("client_id"),  # one event of a client at a time, in order
        spread(),  # round-robin over the clients that have work
        adaptive_flat_map(project),  # finds by itself how many clients at once
    )
    .to(write_jsonl(), latency_histogram(every=1))
)
