"""Pipelines that drop duplicates by a store, killed again and again at any instant: the same events
pass as in one run, and those are known whose rows are there."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import Store
from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.url import file_of
from penstock.streams.state.codec import key_in

EVENTS = 3_000
STOPS = 5

PIPELINE = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, chunk, distinct_within, group_by, ops
from penstock import read_jsonl, read_table, spread, write_jsonl, write_table

OPTIONS = json.loads(sys.argv[1])
store = Store(OPTIONS["store"], every=OPTIONS["every"], cache=OPTIONS["cache"])


async def work(event):
    await asyncio.sleep(random.random() / 250)
    return event


if OPTIONS["table"]:
    source = read_table(OPTIONS["table"], follow=False, lease=2.0, attempts=1_000_000)
else:
    source = read_jsonl(OPTIONS["file"], position=store)
stages = []
if OPTIONS["lists"]:
    stages += [chunk(3, 0.01), ops.flat_map(lambda events: events)]
times = {"time": "at", "max_ahead": None} if OPTIONS["has times"] else {}
stages.append(distinct_within(OPTIONS["seconds"], "key", store=store, name="keys", **times))
if OPTIONS["keyed"]:
    stages += [group_by("key"), spread()]
stages.append(adaptive_flat_map(work, Fixed(16)))
pipeline = source.pipe(*stages).to(
    write_table(OPTIONS["database"], "results", columns=["key", "number", "at"]),
    write_jsonl(OPTIONS["out"], append=True),
)
"""


@pytest.mark.parametrize("source", ["file", "table"])
def test_kills_let_the_same_events_pass_as_one_run_and_each_once(
    source: str, database: str, tmp_path: Path, run_seed: int
) -> None:
    asyncio.run(killed(source, database, tmp_path, random.Random(run_seed)))


async def killed(source: str, database: str, folder: Path, draw: random.Random) -> None:
    program, file, out = (folder / name for name in ("job.py", "in.jsonl", "out.jsonl"))
    program.write_text(PIPELINE)
    # Rows that were not done come again behind others, and only for a file the times are in order.
    has_times = source == "file" and draw.random() < 0.7
    options: dict[str, Any] = {
        "database": database,
        "store": file_of(database) if database.startswith("sqlite") else database,
        "table": database if source == "table" else "",
        "file": str(file),
        "out": str(out),
        "every": draw.choice([0.0, 0.02, 0.2]),
        "cache": draw.choice([1, 4, 1000]),
        "lists": draw.random() < 0.5,
        "keyed": draw.random() < 0.5,
        "has times": has_times,
        "seconds": draw.choice([5, 50, 500]) if has_times else 86_400,
    }
    at, keys, events = 0, draw.choice([20, 300, 2_000]), list[dict[str, int]]()
    for number in range(EVENTS):
        at += draw.choice([0, 0, 1, 2])
        events.append({"key": draw.randrange(keys), "number": number, "at": at})
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    rows = open_store(database)
    await rows.open()
    await rows.put([orjson.dumps(event) for event in events])
    await rows.query("CREATE TABLE results (key integer, number integer, at integer)")
    wanted = firsts(events, options["seconds"] if has_times else inf)

    async def passed() -> list[dict[str, int]]:
        found = await rows.query("SELECT key, number, at FROM results ORDER BY at, number")
        return [{"key": key, "number": number, "at": at} for key, number, at in found]

    def lines() -> list[dict[str, int]]:
        whole = out.read_bytes() if out.exists() else b""
        return [json.loads(line) for line in whole.split(b"\n")[:-1]]

    def start() -> subprocess.Popen[bytes]:
        arguments = ["run", str(program), "--report", "none", "--", json.dumps(options)]
        return subprocess.Popen([sys.executable, "-m", "penstock", *arguments])

    def wait_for_lines(count: int, process: subprocess.Popen[bytes]) -> None:
        wait_until(lambda: len(lines()) >= count or process.poll() is not None)

    done: list[dict[str, int]] = []
    written = 0
    for stop in range(STOPS + 1):
        process = start()
        try:
            if stop < STOPS:
                more = draw.randrange(1, max(2, len(wanted) // STOPS))
                wait_for_lines(written + more, process)
                process.send_signal(signal.SIGTERM if draw.random() < 0.2 else signal.SIGKILL)
            process.wait(120)
        finally:
            process.kill()
        before, done = done, await passed()
        known = kept(options["store"])
        last = {event["key"]: event["at"] for event in done}
        if has_times:
            assert all(event in wanted for event in done), options
            assert known.items() <= last.items(), options
            least = at - options["seconds"] if stop == STOPS else inf
            assert known.keys() >= {key for key, first in last.items() if first > least}, options
        else:
            assert known.keys() == last.keys(), options
        assert len({event["number"] for event in done}) == len(done), options
        # What was committed is not repeated.
        assert not [event for event in lines()[written:] if event in before], options
        written = len(lines())
    assert process.returncode in ((0,) if source == "file" else (0, 3)), options
    if source == "file":
        assert sorted(done, key=number_of) == wanted, options
    else:
        assert sorted(event["key"] for event in done) == sorted(event["key"] for event in wanted)
        statuses = await rows.query("SELECT {status}, count(*) FROM {table} GROUP BY {status}")
        assert statuses == [(1, EVENTS)], options
    assert {event["number"] for event in lines()} >= {event["number"] for event in done}, options
    await rows.close()


def number_of(event: dict[str, int]) -> int:
    return event["number"]


def firsts(events: list[dict[str, int]], seconds: float) -> list[dict[str, int]]:
    """The events that pass, by the definition."""
    first: dict[int, int] = {}
    found: list[dict[str, int]] = []
    for event in events:
        key, at = event["key"], event["at"]
        if key not in first or at - first[key] >= seconds:
            first[key] = at
            found.append(event)
    return found


def kept(path: str) -> dict[Any, float]:
    """The keys in the store, each with the time of its first event."""
    backend: Any = Store(path)._open()
    try:
        try:
            backend.open_to_read()
        except CannotOpen:
            # The run was killed before it had begun to use it.
            return {}
        if "keys" not in [stage.name for stage in backend.stages()]:
            return {}
        return {key_in(row.key): json.loads(row.state) for row in backend.scan("keys")}
    finally:
        backend.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, or has had time to be."""
    until = time.monotonic() + 60
    while not is_so() and time.monotonic() < until:
        time.sleep(0.002)
