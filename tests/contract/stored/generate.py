"""Writes the folder `first`: data stored by version 0.1.0, for tests of later versions.

    python -m tests.contract.stored.generate

The folder was made by version 0.1.0, before its packages moved into one, and is not made again:
run by a later version, this program records what that one stores. It starts a PostgreSQL and a
NATS server and takes half a minute. Its files:

queue.sqlite.sql, queue.postgresql.sql
    The tables `queue` and `keyed`, with rows in every status and leases of two readers: those of
    `reader-a` ran out 30 seconds later, those of `reader-b` last for centuries. All times were
    moved to the first minute of 2020, so that they are past, whatever the clock of a test says.
nats.json
    Streams, key-value buckets (which are streams) and consumers, as
    `tests.contract.stored.recording` takes them: two pipelines whose workers were killed, one whose
    worker was drained, a work pool whose master was killed, and a stream of another owner that was
    read in part.
letters.jsonl
    Dead letters, as `route(dead_letters(...))` writes them.
events.jsonl, events.position
    A file, and the position of a reader of it that was stopped by an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nats.js.api import StreamConfig

from penstock import (
    Backoff,
    Fixed,
    WorkPool,
    adaptive_flat_map,
    collect,
    dead_letters,
    for_each,
    from_iterable,
    read_jetstream,
    read_jsonl,
    route,
    write_jetstream,
)
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from penstock.streams.sql_queue import ClaimTerms, Failure, Settlement, Store, open_store
from tests.contract.stored.recording import record
from tests.helpers.servers.postgres import Postgres

FOLDER = Path(__file__).parent / "first"
CENTURIES = 1e10
START = datetime(2020, 1, 1, tzinfo=UTC).timestamp()

A, B = ClaimTerms("reader-a"), ClaimTerms("reader-b", CENTURIES)
KEY_A, KEY_B = ClaimTerms("reader-a", by="key"), ClaimTerms("reader-b", CENTURIES, by="key")

PIPELINE = """
import asyncio

from penstock import adaptive_flat_map, distinct_within, group_by, spread
from penstock import write_jsonl
from penstock import read_jsonl
from penstock import Fixed


async def handler(event):
    if event["n"] < 0:
        raise ValueError("below 0")
    if event.get("slow"):
        await asyncio.Event().wait()
    return event


pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(10, by="id"),
        group_by("key"),
        spread(),
        adaptive_flat_map(handler, Fixed(8)),
    )
    .to(write_jsonl())
)
"""

MASTER = """
import sys

from penstock import write_jsonl
from penstock import WorkPool
from penstock import run

run(WorkPool(sys.argv[1], "jobs", lease=2).offer({"n": n} for n in range(6)).to(write_jsonl()))
"""

WORKER = """
import asyncio
import sys

from penstock import WorkPool
from penstock import run


async def work(job):
    print(job["n"], flush=True)
    await asyncio.Event().wait()


run(WorkPool(sys.argv[1], "jobs", lease=2).work(work))
"""


# Tables.


async def fill_queue(store: Store) -> None:
    """Rows 1 to 11 of `queue`."""
    await store.put(['{"n": 1}'])
    for _ in range(4):
        # Row 1 has one attempt left, and may have crashed its readers.
        await store.claim(1, ClaimTerms("reader-a", 0.1))
        await asyncio.sleep(0.3)
    await store.put([json.dumps({"n": n}) for n in range(2, 9)])
    rows = (await store.claim(6, A, reclaim=False)).rows
    assert [row.id for row in rows] == [2, 3, 4, 5, 6, 7]
    finished, dead, failed, returned = rows[:2], rows[2], rows[3], rows[5]
    failures = [Failure(dead, "ValueError: no good"), Failure(failed, "OSError: away", 60.0)]
    await store.settle(Settlement(finished, failures, [returned]), A)
    rows = (await store.claim(2, B, reclaim=False)).rows
    assert [row.id for row in rows] == [7, 8]
    await store.settle(Settlement(returned=rows[:1]), B)
    await store.put(['{"n": 9, "name": "Zo\u00eb"}', "[10]"])
    await store.put(['{"n": 11}'], CENTURIES)


async def fill_keyed(store: Store) -> None:
    """Rows 1 to 8 of `keyed`."""
    await store.put([json.dumps({"n": n, "key": key}) for n, key in enumerate("abacbad", 1)])
    rows = (await store.claim(2, KEY_A)).rows
    assert [(row.id, row.key) for row in rows] == [(1, "a"), (2, "b")]
    await store.settle(Settlement(rows[:1], [Failure(rows[1], "OSError: away", 60.0)]), KEY_A)
    rows = (await store.claim(1, KEY_A)).rows
    assert [(row.id, row.key) for row in rows] == [(3, "a")]
    rows = (await store.claim(1, KEY_B)).rows
    assert [(row.id, row.key) for row in rows] == [(4, "c")]
    await store.put(['{"n": 8, "key": "c"}'])


async def backdate(store: Store, began: float) -> None:
    """Move all times from `began` to the first minute of 2020."""
    back = began - START
    shift = "{} - :back" if "sqlite" in store.url else "{} - :back * interval '1 s'"
    names = ("run_at", "enqueued", "started", "finished", "expires")
    moves = ", ".join(f"{{{name}}} = {shift.format(f'{{{name}}}')}" for name in names)
    await store.query(f"UPDATE {{table}} SET {moves}", back=back)
    if store.layout.table == "keyed":
        await store.query(f"UPDATE {{keys}} SET expires = {shift.format('expires')}", back=back)


async def fill(url: str) -> None:
    for table, work in (("queue", fill_queue), ("keyed", fill_keyed)):
        store = open_store(url, table)
        await store.open()
        try:
            began = time.time()
            await work(store)
            await backdate(store, began)
        finally:
            await store.close()


def tables(folder: Path) -> None:
    asyncio.run(fill(f"sqlite:///{folder}/queue.db"))
    with closing(sqlite3.connect(folder / "queue.db")) as connection:
        text = "\n".join(connection.iterdump())
    (FOLDER / "queue.sqlite.sql").write_text(f"{text}\n", encoding="utf-8")

    postgres = Postgres()
    try:
        asyncio.run(fill(postgres.url))
        dumped = postgres.dump()
    finally:
        postgres.stop()
    # Its comments, and commands of psql.
    lines = [line for line in dumped.splitlines() if line and not line.startswith(("--", "\\"))]
    (FOLDER / "queue.postgresql.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


# NATS.


def events(first: int, last: int, hangs: str = "") -> str:
    """Events of five keys, some of which fail; from 11 on the handler hangs for some keys."""
    values: list[dict[str, Any]] = []
    for id in range(first, last):
        key = "abcde"[id % 5]
        n = -id if id % 7 == 0 else id
        values.append({"id": id, "key": key, "n": n, "slow": id > 10 and key in hangs})
    return "".join(json.dumps(value) + "\n" for value in values)


class Pipe:
    """The pipeline above, by one name on a server."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self._folder = folder
        self._on = ("--on", url, "--name", name)
        self._environment = {**os.environ, "PYTHONPATH": os.getcwd()}

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock", *words, *self._on]

    def publish(self, text: str, *words: str) -> None:
        subprocess.run(
            self._command("publish", "pipe.py", *words),
            cwd=self._folder,
            env=self._environment,
            input=text,
            text=True,
            check=True,
        )

    def worker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command("run", "pipe.py", "--lease", "2", "--worker", "one"),
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )

    def dead(self) -> int:
        listed = subprocess.run(
            self._command("dead-letters", "list"),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            check=True,
        )
        return len(listed.stdout.splitlines())


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)


def killed(pipe: Pipe, times: int, text: str, *words: str) -> None:
    """A pipeline whose workers were killed, all but the first while they looked for the culprit."""
    pipe.publish(text, *words)
    for _ in range(times):
        worker = pipe.worker()
        eventually(lambda: pipe.dead() == 2)
        time.sleep(5)
        worker.kill()
        worker.wait()


def drained(pipe: Pipe) -> None:
    """A pipeline whose worker was drained, with events that came later."""
    pipe.publish(events(1, 11), "--partitions", "3")
    worker = pipe.worker()
    eventually(lambda: pipe.dead() == 1)
    time.sleep(1)
    worker.terminate()
    worker.wait()
    pipe.publish(events(11, 16))


async def pool(url: str) -> None:
    """A pool with a dead letter, whose next master is killed while its jobs are out."""
    jobs = WorkPool(url, "jobs", lease=2, attempts=2)

    async def picky(job: dict[str, Any]) -> int:
        if job["n"] == 1:
            raise ValueError("poison")
        return int(job["n"])

    worker = jobs.work(picky, backoff=Backoff(0.01)).start()
    await jobs.offer({"n": n} for n in range(3)).to(collect([])).run()
    await worker.drain()


def kill_a_master(url: str) -> None:
    run = [sys.executable, "-c"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    master = subprocess.Popen([*run, MASTER, url], env=environment, stdout=subprocess.DEVNULL)
    worker = subprocess.Popen([*run, WORKER, url], env=environment, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    for process in (worker, master):
        process.kill()
        process.wait()
    worker.stdout.close()


async def a_stream(url: str) -> None:
    """A stream of another owner, of which a durable reader has acknowledged six messages."""
    client = await connect([url])
    js: Any = jetstream(client)
    await js.add_stream(StreamConfig(name="orders", subjects=["orders.*"]))
    values = [{"n": n} for n in range(10)]
    sink = write_jetstream(lambda value: f"orders.{'even' if value['n'] % 2 == 0 else 'odd'}", url)
    await from_iterable(values).to(sink).run()
    with suppress(StopAsyncIteration):
        read = 0
        async for _ in read_jetstream("orders", "reader", url):
            read += 1
            if read == 7:
                # The current one is given back.
                break
    await client.close()


def nats(folder: Path) -> None:
    (folder / "pipe.py").write_text(PIPELINE, encoding="utf-8")
    with Servers(folder / "nats") as servers:
        url = servers.urls[0]
        asyncio.run(a_stream(url))
        drained(Pipe(folder, url, "drained"))
        # Each at once, because the leases of workers end soon.
        recorded = asyncio.run(record(url))
        killed(Pipe(folder, url, "plain"), 3, events(1, 21, "b"), "--partitions", "3")
        recorded = asyncio.run(record(url)) | recorded
        # One of them twice, which the readers of batches drop.
        text = events(1, 21, "bd") + events(1, 2)
        packed = ("--partitions", "3", "--batch", "4")
        killed(Pipe(folder, url, "packed"), 2, text, *packed)
        recorded = asyncio.run(record(url)) | recorded
        asyncio.run(pool(url))
        kill_a_master(url)
        recorded = asyncio.run(record(url)) | recorded
    text = json.dumps(recorded, indent=1, sort_keys=True)
    (FOLDER / "nats.json").write_text(f"{text}\n", encoding="utf-8")


# Files.


async def files() -> None:
    file = FOLDER / "events.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(1, 11)), encoding="utf-8")
    place = FOLDER / "events.position"

    async def handler(event: dict[str, Any]) -> dict[str, Any]:
        # Those after the fourth overtake it.
        if event["n"] == 4:
            await asyncio.Event().wait()
        if event["n"] == 8:
            await asyncio.sleep(0.2)
            raise ValueError("stop here")
        return event

    pipe = read_jsonl(file, position=place).pipe(adaptive_flat_map(handler, Fixed(6)))
    with suppress(ValueError):
        await pipe.to(for_each(lambda event: None)).run(drain_deadline=0.1)
    letters = FOLDER / "letters.jsonl"
    letters.unlink(missing_ok=True)
    values: list[Any] = [{"n": 1}, {"n": 2, "name": "Zo\u00eb"}, [1, 2], b"\xff", "text"]

    def fail(value: Any) -> None:
        raise ValueError(f"cannot take {value}")

    sink = for_each(fail, on_error=route(dead_letters(letters)))
    await from_iterable(values).to(sink).run()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tables(Path(folder))
        nats(Path(folder))
    asyncio.run(files())
    (FOLDER / "events.position.lock").unlink()


if __name__ == "__main__":
    main()
