"""The pipeline of the cluster benchmarks: its handler waits, and may log when it began each
event."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from penstock import adaptive_flat_map, distinct_within, for_each, group_by, read_jsonl, spread

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.001
LOG = sys.argv[2] if len(sys.argv) > 2 else ""
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if LOG else -1


async def waiting(event: dict[str, Any]) -> dict[str, Any]:
    if log >= 0:
        os.write(log, f"{time.time():.6f} {os.getpid()} {event['key']}\n".encode())
    await asyncio.sleep(SECONDS)
    return event


def plain(event: dict[str, Any]) -> dict[str, Any]:
    return event


def done(event: dict[str, Any]) -> None:
    """Nothing is left to do."""


pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(10, by="id"),
        group_by("key"),
        spread(),
        adaptive_flat_map(waiting if SECONDS else plain),
    )
    .to(for_each(done))
)
