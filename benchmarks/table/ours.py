"""The jobs on penstock: a whole pipeline in one process."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from benchmarks import case
from benchmarks.table.shared import URL, payloads
from penstock import (
    Pipeline,
    Report,
    adaptive_flat_map,
    for_each,
    group_by,
    read_table,
    spread,
    write_table,
)
from penstock.streams.limits import Fixed
from penstock.streams.sql_queue import open_store

# Seconds that a call of the slow key takes, and until it is left in the table.
SLOW, SETTLING = 0.05, 3.0

Event = dict[str, Any]


def work(event: Event) -> Event:
    return event


def forget(event: Event) -> None: ...


def plain_pipeline() -> Pipeline:
    return read_table(URL, follow=False).pipe(adaptive_flat_map(work)).to(for_each(forget))


def keyed_pipeline() -> Pipeline:
    return (
        read_table(URL, by="client", follow=False)
        .pipe(group_by("client"), spread(), adaptive_flat_map(work))
        .to(for_each(forget))
    )


def results_pipeline() -> Pipeline:
    return (
        read_table(URL, follow=False).pipe(adaptive_flat_map(work)).to(write_table(URL, "results"))
    )


def numbers(report: Report) -> dict[str, Any]:
    claims = report.statistics["stages"][0]["claims"]
    return {"finished": report.statistics["finished"], "claims": claims}


async def enqueue(count: int) -> None:
    store = open_store(URL)
    await store.open()
    await store.put(payloads(count))
    await store.close()


def measured(pipeline: Pipeline, count: int) -> dict[str, Any]:
    uvloop.run(enqueue(count))
    result = case.timed(lambda: numbers(uvloop.run(pipeline.run())), count)
    assert result["finished"] == count
    return result


def plain(options: case.Options) -> dict[str, Any]:
    return measured(plain_pipeline(), options.events)


def keyed(options: case.Options) -> dict[str, Any]:
    return measured(keyed_pipeline(), options.events)


def results(options: case.Options) -> dict[str, Any]:
    return measured(results_pipeline(), options.events)


def fill(options: case.Options) -> dict[str, Any]:
    uvloop.run(enqueue(options.events))
    return {}


def poll(options: case.Options) -> dict[str, Any]:
    """One of several pollers of a full queue, which begin together: the time, and its rows."""
    pipeline = plain_pipeline()
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.time()
    report = uvloop.run(pipeline.run())
    return {"started": started, "ended": time.time(), **numbers(report)}


def left(options: case.Options) -> dict[str, Any]:
    """Seconds from the insert of a row to its handler, beside a slow key with `events` rows."""
    return {"milliseconds": sorted(uvloop.run(beside_a_slow_key(options)))}


async def beside_a_slow_key(options: case.Options) -> list[float]:
    times: list[float] = []
    count, done = int(options.rate * options.seconds), asyncio.Event()

    async def handle(event: Event) -> None:
        if event["client"] == "slow":
            await asyncio.sleep(SLOW)
            return
        times.append((time.time() - event["put"]) * 1e3)
        if len(times) == count:
            done.set()

    def of(client: str) -> str:
        return json.dumps({"client": client, "put": time.time()})

    store = open_store(URL)
    await store.open()
    await store.put([of("slow")] * options.events)
    stages = group_by("client", share=100), spread(), adaptive_flat_map(handle, Fixed(50))
    async with read_table(URL, by="client").pipe(*stages).to(for_each(forget)).start() as running:
        await asyncio.sleep(SETTLING)
        began = time.time()
        for n in range(count):
            await asyncio.sleep(max(0.0, began + n / options.rate - time.time()))
            await store.put([of(f"client-{n % 20}")])
        await done.wait()
        running.cancel()
    await store.close()
    return times


if __name__ == "__main__":
    case.main(
        {
            "plain": plain,
            "keyed": keyed,
            "results": results,
            "fill": fill,
            "poll": poll,
            "left": left,
        }
    )
