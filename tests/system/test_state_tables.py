"""Pipelines with states and tables that are killed again and again, at any instant: states, and
rows in the database of the store, are those of a run without kills."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import Store
from penstock.streams.base.errors import CannotOpen
from penstock.streams.sql_queue import open_store
from penstock.streams.state.codec import key_in

KEYS = 7
EVENTS = 3_000
STOPS = 5

PIPELINE = """
import asyncio
import json
import random
import sys

from penstock import Backoff, Fixed, Store, adaptive_flat_map, group_by, read_jsonl, read_table
from penstock import spread, stateful, write_jsonl, write_table

OPTIONS = json.loads(sys.argv[1])
store = Store(OPTIONS["store"], every=OPTIONS["every"])


def visit(n, event):
    return n + 1, [{"key": event["key"], "n": n + 1, "part": p} for p in range(OPTIONS["parts"])]


async def work(line):
    await asyncio.sleep(random.random() / 250)
    if random.random() < OPTIONS["reverts"]:
        raise ValueError(line)
    return line


if OPTIONS["growing"]:
    source = read_table(
        OPTIONS["database"], "events", from_id=OPTIONS["growing"], position=store, follow=False
    )
elif OPTIONS["table"]:
    source = read_table(
        OPTIONS["table"],
        by=OPTIONS["by"],
        follow=False,
        lease=2.0,
        attempts=1_000_000,
        backoff=Backoff(0.01, cap=0.01),
    )
else:
    source = read_jsonl(OPTIONS["file"], position=store)
stages = [stateful(visit, "key", start=0, name="visits", store=store)]
if OPTIONS["keyed"]:
    stages += [group_by("key"), spread()]
on_error = "revert" if OPTIONS["reverts"] else "stop"
stages.append(adaptive_flat_map(work, Fixed(16), on_error=on_error))
columns = ["key", "n", "part"]
pipeline = source.pipe(*stages).to(
    write_table(OPTIONS["database"], "results", columns=columns),
    write_table(
        OPTIONS["database"], "last", columns=columns[:2], key="key", on_conflict="update"
    ),
    write_jsonl(OPTIONS["out"], append=True),
)
"""


@pytest.mark.parametrize("source", ["file", "table", "elsewhere", "growing"])
def test_kills_leave_each_row_once(
    source: str, database: str, tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    asyncio.run(killed(source, database, tmp_path, draw))


async def killed(source: str, database: str, folder: Path, draw: random.Random) -> None:
    program, file, out = (folder / name for name in ("job.py", "in.jsonl", "out.jsonl"))
    program.write_text(PIPELINE)
    # Whose position is in the store.
    in_store = source in ("file", "growing")
    elsewhere = f"sqlite:///{folder / 'rows.db'}"
    options: dict[str, Any] = {
        "database": elsewhere if source == "elsewhere" else database,
        "table": "" if in_store else database,
        "growing": draw.choice(["id", ("at", "id")]) if source == "growing" else "",
        "file": str(file),
        "out": str(out),
        "every": draw.choice([0.0, 0.02, 0.2]),
        "parts": draw.choice([1, 1, 3]),
        "keyed": draw.random() < 0.5,
        "by": draw.choice([None, "key"]),
        "reverts": 0.0 if in_store else draw.choice([0.0, 0.001]),
    }
    options["store"] = kept_in = str(options["database"])
    events = [{"key": n % KEYS, "number": n} for n in range(EVENTS)]
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    rows = open_store(database)
    await rows.open()
    await rows.put([orjson.dumps(event) for event in events])
    results = open_store(kept_in, "some")
    await results.open()
    await results.query("CREATE TABLE results (key integer, n integer, part integer)")
    await results.query("CREATE TABLE last (key integer PRIMARY KEY, n integer)")

    await results.query(
        "CREATE TABLE events (id integer PRIMARY KEY, at text, key integer, number integer)"
    )
    listed = ", ".join(f"({n}, '{n // 5:05}', {n % KEYS}, {n})" for n in range(EVENTS))
    await results.query(f"INSERT INTO events VALUES {listed}")

    async def all_rows() -> list[tuple[int, int, int]]:
        found = await results.query("SELECT key, n, part FROM results")
        return [(key, n, part) for key, n, part in found]

    def output() -> bytes:
        return out.read_bytes() if out.exists() else b""

    def written() -> list[dict[str, Any]]:
        return [json.loads(line) for line in output().split(b"\n")[:-1]]

    def states() -> dict[Any, int]:
        backend: Any = Store(options["store"])._open()
        try:
            try:
                backend.open_to_read()
            except CannotOpen:
                # The run was killed before it had begun to use it.
                return {}
            stages = [kept.name for kept in backend.stages()]
            found = backend.scan("visits") if "visits" in stages else ()
            return {key_in(row.key): int(row.state) for row in found}
        finally:
            backend.close()

    def start() -> subprocess.Popen[bytes]:
        arguments = ["run", str(program), "--report", "none", "--", json.dumps(options)]
        return subprocess.Popen([sys.executable, "-m", "penstock", *arguments])

    def expected(committed: dict[Any, int]) -> Counter[tuple[int, int, int]]:
        return Counter(
            (key, n, part)
            for key, count in committed.items()
            for n in range(1, count + 1)
            for part in range(options["parts"])
        )

    before: dict[Any, int] = {}
    lines = 0
    for stop in range(STOPS + 1):
        process = start()
        if stop < STOPS:
            wanted = lines + draw.randrange(1, EVENTS * options["parts"] // STOPS)
            reached = partial(
                lambda process, wanted: (
                    output().count(b"\n") >= wanted or process.poll() is not None
                ),
                process,
                wanted,
            )
            wait_until(reached)
            process.send_signal(signal.SIGTERM if draw.random() < 0.2 else signal.SIGKILL)
        process.wait(120)
        committed = states()
        assert Counter(await all_rows()) == expected(committed), options
        if options["keyed"]:
            # Otherwise handlers overtake each other.
            assert sorted(await results.query("SELECT key, n FROM last")) == sorted(
                committed.items()
            ), options
        if not options["reverts"]:
            for line in written()[lines:]:
                assert line["n"] > before.get(line["key"], 0), ("was committed", line, options)
        before, lines = committed, len(written())
    # On a busy machine leases are lost, which the status shows.
    assert process.returncode in ((0,) if in_store else (0, 3)), options
    assert committed == Counter(n % KEYS for n in range(EVENTS)), options
    there = {(line["key"], line["n"], line["part"]) for line in written()}
    assert there >= set(expected(committed)), options
    if not in_store:
        statuses = await rows.query("SELECT {status}, count(*) FROM {table} GROUP BY {status}")
        assert statuses == [(1, EVENTS)], options
    await rows.close()
    await results.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so, or has had time to be."""
    until = time.monotonic() + 60
    while not is_so() and time.monotonic() < until:
        time.sleep(0.002)
