"""A join and a look-up in a store, killed again and again at any instant: each pair is in its table
exactly once.

The rows of two files are out of order, some of them late, and go through handlers of all speeds.
"""

from __future__ import annotations

import asyncio
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

ROWS = 2_000
STOPS = 5

PIPELINE = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, event_time, join, lookup, ops, read_jsonl
from penstock import table, write_table

OPTIONS = json.loads(sys.argv[1])
store = None
if OPTIONS["store"]:
    store = Store(OPTIONS["store"], every=OPTIONS["every"], cache=OPTIONS["cache"])


async def work(event):
    if OPTIONS["slow"]:
        await asyncio.sleep(random.choice([0, 0, 0.001, 0.02]))
    return event


def stream(name):
    timed = event_time("at", OPTIONS["lateness"], idle=None, max_ahead=None)
    return read_jsonl(OPTIONS[name], position=store).pipe(timed, adaptive_flat_map(work, Fixed(8)))


def row(pair):
    left, right = (-1 if one is None else one["number"] for one in pair)
    return {"left_row": left, "right_row": right}


if OPTIONS["operator"] == "join":
    found = join(stream("right"), "key", OPTIONS["seconds"], how="outer", store=store)
else:
    rows = table(stream("right"), "key", 5, store=store)
    found = lookup(rows, "key", wait=OPTIONS["seconds"])
pipeline = (
    stream("left")
    .pipe(found, ops.map(row))
    .to(write_table(OPTIONS["database"], "results", columns=["left_row", "right_row"]))
)
"""


@pytest.mark.parametrize("operator", ["join", "lookup"])
def test_kills_leave_each_pair_in_its_table_once(
    operator: str, database: str, tmp_path: Path, run_seed: int
) -> None:
    asyncio.run(killed(operator, database, tmp_path, random.Random(run_seed)))


async def killed(operator: str, database: str, folder: Path, draw: random.Random) -> None:
    program = folder / "job.py"
    program.write_text(PIPELINE)
    keys = draw.choice([20, 300])
    files = {name: folder / f"{name}.jsonl" for name in ("left", "right")}
    for file in files.values():
        at, lines = 0.0, list[bytes]()
        for number in range(ROWS):
            at += draw.choice([0, 0, 1, 2])
            late = draw.choice([0, 0, 0, 1, 3, 25])
            # No two of a file have one time, so that the newest row is one.
            event = {"key": draw.randrange(keys), "number": number}
            lines.append(orjson.dumps({**event, "at": max(0, at - late) + number / 4096}))
        file.write_bytes(b"\n".join(lines) + b"\n")
    options: dict[str, Any] = {
        **{name: str(file) for name, file in files.items()},
        "operator": operator,
        "database": database,
        "store": "",
        "every": draw.choice([0.0, 0.02, 0.2]),
        "cache": draw.choice([1, 4, 1000]),
        "lateness": draw.choice([0, 2]),
        "seconds": draw.choice([0, 5, 20]),
        "slow": draw.random() < 0.7,
    }
    rows = open_store(database)
    await rows.open()
    await rows.query("CREATE TABLE results (left_row integer, right_row integer)")
    try:
        assert begun(program, options).wait(120) in (0, 3)
        wanted = await pairs_in(rows)
        assert len(wanted) > 10
        await rows.query("DELETE FROM results")
        options["store"] = file_of(database) if database.startswith("sqlite") else database
        for _ in range(STOPS):
            running = begun(program, options)
            await asyncio.sleep(draw.uniform(0.3, 2.5))
            running.send_signal(signal.SIGTERM if draw.random() < 0.25 else signal.SIGKILL)
            running.wait(60)
            some = await pairs_in(rows)
            assert len(set(some)) == len(some), options
            assert set(some) <= set(wanted), options
        assert begun(program, options).wait(120) in (0, 3)
        assert await pairs_in(rows) == wanted, options
    finally:
        await rows.close()


def begun(program: Path, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "run", str(program), "--report", "none"]
    return subprocess.Popen(
        [*command, "--", orjson.dumps(options).decode()], stderr=subprocess.DEVNULL
    )


async def pairs_in(rows: Store) -> list[tuple[int, int]]:
    results = await rows.query("SELECT left_row, right_row FROM results")
    return sorted(tuple(one) for one in results)
