"""Windows and a monitor in a store, killed again and again at any instant: each window, and each
violation of a deadline, is in its table exactly once.

The events are out of order, some of them late, and go through handlers of all speeds on their way
to the windows.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.streams.sql_queue import Store, open_store
from penstock.streams.sql_queue.url import file_of
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

EVENTS = 3_000
STOPS = 5

PIPELINE = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, agg, event_time, ops, read_jsonl, read_kafka
from penstock import monitor, session, sliding, tumbling, window, write_table

OPTIONS = json.loads(sys.argv[1])
SHAPES = {"tumbling": tumbling(20), "sliding": sliding(30, every=10), "session": session(4)}
store = None
if OPTIONS["store"]:
    store = Store(OPTIONS["store"], every=OPTIONS["every"], cache=OPTIONS["cache"])


async def work(event):
    if OPTIONS["slow"]:
        await asyncio.sleep(random.choice([0, 0, 0.001, 0.02]))
    return event


def row(one):
    numbers = sorted(one.value["numbers"])
    return {"key": one.key, "begins": one.start, "ends": one.end, "numbers": json.dumps(numbers)}


if OPTIONS["topic"]:
    # A killed reader keeps its partitions for a while.
    quick = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 500}
    options = {"follow": False, "offsets": store, "config": quick}
    source = read_kafka(OPTIONS["topic"], OPTIONS["group"], OPTIONS["servers"], **options)
else:
    source = read_jsonl(OPTIONS["file"], position=store)
timed = event_time("at", OPTIONS["lateness"], idle=None, max_ahead=None)
watched = monitor(
    "G(asked -> F[<=8s] answered)",
    "key",
    asked=lambda event: event["number"] % 7 == 0,
    answered=lambda event: event["number"] % 5 == 0,
    evidence=0,
    restart=True,
    on_violation=write_table(OPTIONS["database"], "alarms", columns=["key", "deadline", "opened"]),
    store=store,
)
aggregate = {"count": agg.count(), "numbers": agg.list("number", 10_000)}
windows = window(SHAPES[OPTIONS["shape"]], aggregate, by="key", store=store)
stages = adaptive_flat_map(work, Fixed(8)), windows, ops.map(row)
if not OPTIONS["topic"]:
    # Partitions come in any order, and to a monitor that matters.
    stages = watched, *stages
pipeline = (
    source.pipe(timed, *stages)
    .to(write_table(OPTIONS["database"], "results", columns=["key", "begins", "ends", "numbers"]))
)
"""


def test_kills_leave_each_window_in_its_table_once(
    database: str, tmp_path: Path, run_seed: int
) -> None:
    store = file_of(database) if database.startswith("sqlite") else database
    asyncio.run(killed(database, store, tmp_path, random.Random(run_seed)))


def test_kills_leave_each_window_in_a_table_beside_its_store_and_no_other(
    tmp_path: Path, run_seed: int
) -> None:
    database, store = f"sqlite:///{tmp_path}/results.db", f"rocks:///{tmp_path}/states"
    asyncio.run(killed(database, store, tmp_path, random.Random(run_seed), once=False))


async def killed(
    database: str, store: str, folder: Path, draw: random.Random, *, once: bool = True
) -> None:
    """`once`: rows are committed with the states, so that none is written twice."""
    program, file = folder / "job.py", folder / "in.jsonl"
    program.write_text(PIPELINE)
    at, keys, events = 0, draw.choice([3, 50]), list[dict[str, int]]()
    for number in range(EVENTS):
        at += draw.choice([0, 0, 1, 2])
        late = draw.choice([0, 0, 0, 1, 3, 25])
        event = {"key": draw.randrange(keys), "number": number, "at": max(0, at - late)}
        events.append(event)
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    options: dict[str, Any] = {
        "file": str(file),
        "topic": "",
        "database": database,
        "store": "",
        "every": draw.choice([0.0, 0.02, 0.2]),
        "cache": draw.choice([1, 4, 1000]),
        "lateness": draw.choice([0, 2]),
        "shape": draw.choice(["tumbling", "sliding", "session"]),
        "slow": draw.random() < 0.7,
    }
    rows = open_store(database)
    await rows.open()
    columns = "key integer, begins double precision, ends double precision, numbers text"
    await rows.query(f"CREATE TABLE results ({columns})")
    await rows.query("CREATE TABLE alarms (key integer, deadline double precision, opened integer)")
    try:
        assert begun(program, options).wait(120) in (0, 3)
        wanted = await found(rows)
        assert len(wanted) > 10
        alarms = await alarms_in(rows)
        assert len(alarms) > 10
        await rows.query("DELETE FROM results")
        await rows.query("DELETE FROM alarms")
        options["store"] = store
        for _ in range(STOPS):
            running = begun(program, options)
            await asyncio.sleep(draw.uniform(0.3, 2.5))
            running.send_signal(signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL)
            running.wait(60)
            some = await found(rows)
            assert not once or len(set(some)) == len(some), options
            assert set(some) <= set(wanted), options
        assert begun(program, options).wait(120) in (0, 3)
        all_found, all_alarms = await found(rows), await alarms_in(rows)
        if not once:
            all_found, all_alarms = sorted(set(all_found)), sorted(set(all_alarms))
        assert all_found == wanted, options
        assert all_alarms == alarms, options
    finally:
        await rows.close()


@pytest.mark.skipif(not HAS_KAFKA, reason="there is no Java 17 with Maven")
def test_kills_leave_each_window_of_a_topic_in_its_table_once(
    tmp_path: Path, run_seed: int, kafka_brokers: Brokers
) -> None:
    """What is late does not depend on which of the partitions is read first."""
    asyncio.run(killed_with_topic(tmp_path, random.Random(run_seed), kafka_brokers))


async def killed_with_topic(folder: Path, draw: random.Random, kafka: Brokers) -> None:
    program, partitions, at = folder / "job.py", 3, 0
    program.write_text(PIPELINE)
    topic = kafka.topic(partitions)
    values: list[list[bytes]] = [[] for _ in range(partitions)]
    for number in range(EVENTS):
        at += draw.choice([0, 0, 1, 2])
        late = draw.choice([0, 0, 0, 1, 3, 25])
        event = {"key": draw.randrange(20), "number": number, "at": max(0, at - late)}
        # One partition has few events.
        values[draw.choice([0, 0, 0, 1, 1, 1, 2])].append(orjson.dumps(event))
    for partition, some in enumerate(values):
        kafka.write(topic, some, partition=partition)
    options: dict[str, Any] = {
        "topic": topic,
        "servers": kafka.servers,
        "every": draw.choice([0.0, 0.02, 0.2]),
        "cache": draw.choice([1, 4, 1000]),
        "lateness": draw.choice([0, 2]),
        "shape": draw.choice(["tumbling", "sliding", "session"]),
        "slow": True,
    }

    def in_(name: str) -> dict[str, Any]:
        path = str(folder / f"{name}.db")
        return {**options, "group": name, "store": path, "database": f"sqlite:///{path}"}

    columns = "key integer, begins double precision, ends double precision, numbers text"
    whole, stopped = (open_store(in_(name)["database"]) for name in ("whole", "stopped"))
    for rows in (whole, stopped):
        await rows.open()
        await rows.query(f"CREATE TABLE results ({columns})")
    try:
        assert begun(program, in_("whole")).wait(120) in (0, 3)
        wanted = await found(whole)
        assert len(wanted) > 10
        for _ in range(3):
            running = begun(program, in_("stopped"))
            await asyncio.sleep(draw.uniform(3, 7))
            running.kill()
            running.wait(60)
            some = await found(stopped)
            assert len(set(some)) == len(some), options
            assert set(some) <= set(wanted), options
        assert begun(program, in_("stopped")).wait(120) in (0, 3)
        assert await found(stopped) == wanted, options
    finally:
        await whole.close()
        await stopped.close()


def begun(program: Path, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "run", str(program), "--report", "none"]
    return subprocess.Popen([*command, "--", json.dumps(options)], stderr=subprocess.DEVNULL)


async def alarms_in(rows: Store) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, await rows.query("SELECT key, deadline, opened FROM alarms")))


async def found(rows: Store) -> list[tuple[Any, ...]]:
    results = await rows.query("SELECT key, begins, ends, numbers FROM results")
    return sorted(tuple(one) for one in results)
