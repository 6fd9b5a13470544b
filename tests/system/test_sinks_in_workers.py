"""Sinks that worker processes open: each has its own connection."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock import collect, read_table, run
from penstock.streams.nats.client.connection import connect, jetstream
from penstock.streams.nats.client.server import Servers
from tests.helpers.kafka.mock import Cluster
from tests.helpers.system.children import children_of

EVENTS, CLIENTS = 3_000, 10
PIPELINE = """
import os, sys, time
from penstock import *

def work(event):
    time.sleep(0.0002)
    return {**event, "worker": os.getpid()}

pipeline = (
    read_jsonl("events.jsonl")
    .pipe(group_by("client"), spread(), adaptive_flat_map(work))
    .to(write_table("sqlite:///out.db", "results", columns=COLUMNS, in_workers=True))
)
"""
COLUMNS = ["client", "number", "worker"]
FORKED = "if __name__ == '__main__':\n    run(pipeline, workers=2)\n"
SPAWNED = """
import asyncio

async def main():
    await pipeline.run(workers=2)

if __name__ == "__main__":
    asyncio.run(main())
"""


class Job:
    """A program that writes into a table."""

    def __init__(
        self, folder: Path, how: str, columns: list[str] = COLUMNS, events: int = EVENTS
    ) -> None:
        self.folder = folder
        with closing(sqlite3.connect(folder / "out.db")) as database:
            database.execute(
                "create table results (client integer, number integer, worker integer)"
            )
        values = (
            {"client": number % CLIENTS, "number": number // CLIENTS} for number in range(events)
        )
        (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in values))
        (folder / "main.py").write_text(f"COLUMNS = {columns}\n{PIPELINE}{how}")
        self.process = subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rows(self) -> list[tuple[int, int, int]]:
        with closing(sqlite3.connect(self.folder / "out.db", timeout=30)) as database:
            return database.execute("select * from results order by rowid").fetchall()

    def until_rows(self, number: int) -> None:
        until = time.monotonic() + 30
        while len(self.rows()) < number:
            assert time.monotonic() < until, self.process.poll()
            time.sleep(0.01)

    def ended(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def first_of_each(rows: list[tuple[int, int, int]]) -> dict[int, list[int]]:
    """The numbers of each client, in the order in which they were first written."""
    found: dict[int, dict[int, None]] = {}
    for client, number, _ in rows:
        found.setdefault(client, {})[number] = None
    return {client: list(numbers) for client, numbers in found.items()}


@pytest.mark.parametrize("how", [FORKED, SPAWNED])
def test_every_result_is_in_the_table_once_and_those_of_a_key_in_order(
    how: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, how)
    assert job.ended() == (0, "")
    rows = job.rows()
    assert len(rows) == EVENTS
    assert first_of_each(rows) == {client: list(range(300)) for client in range(CLIENTS)}
    workers = {worker for _, _, worker in rows}
    assert len(workers) == 2
    assert job.process.pid not in workers


def test_a_worker_that_is_killed_while_it_writes_loses_no_result(tmp_path: Path) -> None:
    job = Job(tmp_path, FORKED)
    job.until_rows(100)
    (nursery,) = children_of(job.process.pid)
    os.kill(children_of(nursery)[0], signal.SIGKILL)
    status, said = job.ended()
    assert status == 0, said
    assert "a worker process ended by SIGKILL" in said
    rows = job.rows()
    assert len(rows) >= EVENTS
    assert first_of_each(rows) == {client: list(range(300)) for client in range(CLIENTS)}


def test_a_signal_drains_the_sinks_of_all_workers(tmp_path: Path) -> None:
    how = FORKED.replace("run(", "report = run(")
    how += "    print(report.statistics['finished'], file=sys.stderr)\n"
    # More than the pipeline holds.
    job = Job(tmp_path, how, events=20_000)
    job.until_rows(100)
    job.process.send_signal(signal.SIGTERM)
    status, said = job.ended()
    assert status == 0, said
    assert 100 <= len(job.rows()) == int(said) < 20_000


@pytest.mark.parametrize("how", [FORKED, SPAWNED])
def test_a_column_that_is_missing_ends_the_run_by_one_error(how: str, tmp_path: Path) -> None:
    job = Job(tmp_path, how, ["client", "number", "colour"])
    status, said = job.ended()
    assert status == 1
    assert "ColumnMissing: Table 'results' in out.db has no column 'colour'" in said
    assert "after the first error" not in said


QUEUE = """
import os, sys, time
from penstock import *

def work(number):
    time.sleep(0.0002)
    return {"client": number % 10, "number": number // 10, "worker": os.getpid()}

pipeline = (
    from_iterable(range(1_000))
    .pipe(group_by(lambda number: number % 10), spread(), adaptive_flat_map(work))
    .to(SINK)
)

if __name__ == "__main__":
    report = run(pipeline, workers=2)
    print(report.statistics["finished"])
"""


def write_from_workers(folder: Path, sink: str) -> None:
    (folder / "main.py").write_text(QUEUE.replace("SINK", sink))
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def check(results: list[dict[str, int]]) -> None:
    rows = [(one["client"], one["number"], one["worker"]) for one in results]
    assert len(rows) == 1_000
    assert first_of_each(rows) == {client: list(range(100)) for client in range(CLIENTS)}
    assert len({worker for _, _, worker in rows}) == 2


def test_each_worker_writes_its_results_to_kafka(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic()
    sink = f"write_kafka({topic!r}, {kafka.servers!r}, 'client', in_workers=True)"
    write_from_workers(tmp_path, sink)
    check([json.loads(record.value()) for record in kafka.read(topic)])


def test_each_worker_publishes_its_results_to_jetstream(server: Servers, tmp_path: Path) -> None:
    async def make() -> None:
        client = await connect(server.urls)
        await jetstream(client).add_stream(name="of-workers", subjects=["of-workers"])
        await client.close()

    async def read() -> list[dict[str, int]]:
        client = await connect(server.urls)
        messages = await jetstream(client).subscribe("of-workers", ordered_consumer=True)
        found = [json.loads((await messages.next_msg(10)).data) for _ in range(1_000)]
        await client.close()
        return found

    asyncio.run(make())
    write_from_workers(tmp_path, f"write_jetstream('of-workers', {server.urls!r}, in_workers=True)")
    check(asyncio.run(read()))


def test_each_worker_enqueues_its_results_in_a_table(database: str, tmp_path: Path) -> None:
    write_from_workers(tmp_path, f"write_table({database!r}, 'of_workers', in_workers=True)")
    results: list[dict[str, int]] = []
    run(read_table(database, "of_workers", follow=False).to(collect(results)))
    check(results)
