from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.jetstream.connection import connect, jetstream
from streams.jetstream.layout import token
from streams.jetstream.server import Servers

PIPELINE = """
from operators import adaptive_flat_map, distinct_within, group_by, spread
from sinks import write_jsonl
from sources import read_jsonl


async def double(event):
    if event["n"] < 0:
        raise ValueError("below 0")
    return {**event, "n": 2 * event["n"]}


pipeline = (
    read_jsonl()
    .pipe(distinct_within(10, by="id"), group_by("key"), spread(), adaptive_flat_map(double))
    .to(write_jsonl())
)
"""

Penstock = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def penstock(tmp_path: Path) -> Penstock:
    (tmp_path / "pipe.py").write_text(PIPELINE, encoding="utf-8")

    def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def event(id: int, key: str, n: int) -> dict[str, Any]:
    return {"id": id, "key": key, "n": n}


class Worker:
    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "run", "pipe.py", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def drain(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGTERM)
        output, errors = self.process.communicate(timeout=30)
        return self.process.returncode, output, errors


def eventually(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_what_is_published_is_worked_on_once_and_seen(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "seen")
    fed = penstock(
        *("publish", "pipe.py", "--partitions", "4", *on),
        given=lines(event(1, "a", 1), event(2, "a", 2), event(1, "a", 1), event(3, "b", 3)),
    )
    assert fed.returncode == 0, fed.stderr
    assert "stored: 3, known already: 1" in fed.stderr

    before = penstock("status", *on).stdout
    assert "seen: 3 events unfinished, 3 kept, 0 dead letters" in before
    assert "4 partitions, 4 of them with no worker" in before
    assert "no worker is there" in before

    with Worker(tmp_path, *on, "--worker", "first", "--lease", "2") as worker:
        eventually(lambda: "seen: 0 events unfinished" in penstock("status", *on).stdout)
        during = penstock("status", *on).stdout
        assert "4 partitions, 0 of them with no worker" in during
        assert "first" in during
        status, output, errors = worker.drain()
    assert status == 4, errors
    assert sorted(map(json.loads, output.splitlines()), key=lambda one: one["id"]) == [
        event(1, "a", 2),
        event(2, "a", 4),
        event(3, "b", 6),
    ]
    assert "no worker is there" in penstock("status", *on).stdout


def test_events_in_batches_are_worked_on_once_and_their_dead_letters_tried_again(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "packed")
    given = lines(*(event(n, f"key {n % 5}", n) for n in range(100)), event(100, "bad", -1))
    for _ in range(2):
        fed = penstock("publish", "pipe.py", "--partitions", "2", "--batch", "8", *on, given=given)
        assert fed.returncode == 0, fed.stderr
        assert "stored: 101 in batches, of which workers drop the duplicates" in fed.stderr
    assert "messages unfinished" in penstock("status", *on).stdout

    with Worker(tmp_path, *on) as worker:
        eventually(lambda: " 0 messages unfinished" in penstock("status", *on).stdout)
        again = penstock("dead-letters", "replay", *on)
        assert "1 events published again" in again.stderr
        eventually(lambda: " 1 dead letters" in penstock("status", *on).stdout)
        status, output, errors = worker.drain()
    (letter,) = map(json.loads, penstock("dead-letters", "list", *on).stdout.splitlines())
    assert (letter["value"]["n"], letter["key"]) == (-1, token("bad"))
    assert status == 3
    assert "101 dropped (duplicate)" in errors
    numbers = [json.loads(line)["n"] for line in output.splitlines()]
    assert sorted(numbers) == list(range(0, 200, 2))
    assert all(
        [n for n in numbers if n // 2 % 5 == key] == list(range(2 * key, 200, 10))
        for key in range(5)
    )

    other = penstock("publish", "pipe.py", "--batch", "1", *on, given=given)
    assert other.returncode == 2
    assert "batch is 8 there, 1 here" in other.stderr


def test_the_state_is_shown_again_each_second_until_it_is_stopped(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "watched")
    assert penstock("publish", "pipe.py", "--partitions", "1", *on).returncode == 0
    watching = subprocess.Popen(
        [sys.executable, "-m", "penstock", "status", "--watch", *on],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    shown = [watching.stdout.readline() for _ in range(6)]
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=20)
    assert sum("watched: 0 events unfinished" in line for line in shown) >= 2
    assert watching.returncode == 0


def test_dead_letters_are_listed_and_tried_again(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "letters")
    given = lines(event(1, "a", -1), event(2, "b", -2), event(3, "b", 3))
    assert penstock("publish", "pipe.py", "--partitions", "2", *on, given=given).returncode == 0
    with Worker(tmp_path, *on, "--lease", "2") as worker:
        eventually(lambda: ", 2 dead letters" in penstock("status", *on).stdout)

        listed = penstock("dead-letters", "list", *on)
        letters = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [letter["value"]["id"] for letter in letters] == [1, 2]
        assert {(one["error"], one["message"], one["attempts"]) for one in letters} == {
            ("ValueError", "below 0", 3)
        }
        assert all("adaptive_flat_map" in letter["stage"] for letter in letters)

        again = penstock("dead-letters", "replay", *on, "--id", str(letters[0]["sequence"]))
        assert "1 events published again" in again.stderr
        # It fails again, and so is a new letter, behind the one that was left.
        eventually(lambda: ", 2 dead letters" in penstock("status", *on).stdout)
        letters = [
            json.loads(line) for line in penstock("dead-letters", "list", *on).stdout.splitlines()
        ]
        assert [letter["value"]["id"] for letter in letters] == [2, 1]
        status, output, _ = worker.drain()
    assert status == 3
    assert json.loads(output) == event(3, "b", 6)
    assert penstock("dead-letters", "list", "--id", "99", *on).returncode == 1


def test_workers_of_one_machine_are_fed_and_stopped(penstock: Penstock, tmp_path: Path) -> None:
    given = lines(*(event(n, f"key {n % 7}", n) for n in range(500)))
    ran = penstock("run", "pipe.py", "--workers", "2", given=given)
    assert ran.returncode == 0, ran.stderr
    done = [json.loads(line) for line in ran.stdout.splitlines()]
    for key in range(7):
        assert [one["n"] for one in done if one["key"] == f"key {key}"] == [
            2 * n for n in range(key, 500, 7)
        ]
    assert "500 stored" in ran.stderr
    assert "0 unfinished" in ran.stderr


def test_what_workers_of_one_machine_leave_is_found_by_the_next(
    penstock: Penstock, tmp_path: Path
) -> None:
    words = ("run", "pipe.py", "--workers", "1", "--data", "kept")
    first = penstock(*words, given=lines(event(1, "a", 1)))
    assert first.returncode == 0, first.stderr
    again = penstock(*words, given=lines(event(1, "a", 1), event(2, "a", 2)))
    assert json.loads(again.stdout) == event(2, "a", 4)
    assert "1 stored, 1 dropped (duplicate)" in again.stderr


# Mistakes.


def test_a_server_that_is_not_there_is_named(penstock: Penstock) -> None:
    ran = penstock("status", "--on", "nats://user:secret@127.0.0.1:1")
    assert ran.returncode == 2
    assert "No NATS server answered at nats://***@127.0.0.1:1" in ran.stderr
    assert "secret" not in ran.stderr


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("locked")
    settings = "authorization { user: penstock, password: right }\nmax_payload: 1000"
    with Servers(folder, settings=settings) as servers:
        yield servers


def test_a_server_without_jetstream_is_told_to_have_it(penstock: Penstock, tmp_path: Path) -> None:
    with Servers(tmp_path / "plain", settings="jetstream: false") as servers:
        ran = penstock("publish", "pipe.py", "--on", servers.urls[0])
        assert ran.returncode == 2
        assert "start it with -js" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_wrong_credentials_are_told(penstock: Penstock, locked: Servers) -> None:
    url = locked.urls[0].replace("nats://", "nats://penstock:wrong@")
    ran = penstock("status", "--on", url)
    assert ran.returncode == 2
    assert "refuses these credentials" in ran.stderr


def test_an_event_that_is_too_large_for_the_server_is_named(
    penstock: Penstock, locked: Servers
) -> None:
    url = locked.urls[0].replace("nats://", "nats://penstock:right@")
    given = lines({"id": 1, "key": "a", "n": 1, "text": "x" * 2000})
    ran = penstock("publish", "pipe.py", "--on", url, "--partitions", "1", given=given)
    assert ran.returncode == 1
    assert "more than the server takes (1,000, max_payload" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_stream_with_other_settings_is_left_alone_and_the_difference_told(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "differs")
    assert penstock("publish", "pipe.py", "--partitions", "4", *on).returncode == 0
    other = PIPELINE.replace('by="id"', 'by="uuid"').replace("within(10", "within(20")
    (tmp_path / "other.py").write_text(other, encoding="utf-8")
    ran = penstock("run", "other.py", "--partitions", "8", "--replicas", "3", *on)
    assert ran.returncode == 2
    assert "partitions is 4 there, 8 here" in ran.stderr
    assert "identity is id there, uuid here" in ran.stderr
    assert "replicas is 1 there, 3 here" in ran.stderr
    assert "window for duplicates is 10 s there, 20 s here" in ran.stderr
    assert penstock("publish", "pipe.py", *on).returncode == 0


def test_a_stream_that_the_servers_have_no_room_for_is_told(
    penstock: Penstock, server: Servers
) -> None:
    on = ("--on", server.urls[0], "--name", "large", "--room", str(1 << 60))
    ran = penstock("publish", "pipe.py", *on)
    assert ran.returncode == 2
    assert "insufficient storage" in ran.stderr
    assert "--room" in ran.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "pipe.py", "--on", "http://a"), "give nats://host:port"),
        (("run", "pipe.py", "--on", "nats://"), "needs an address"),
        (("run", "pipe.py", "--on", "a", "--input", "b"), "penstock publish pipe.py"),
        (("run", "pipe.py", "--on", "a", "--name", "a.b"), "use letters, digits"),
        (("run", "pipe.py", "--on", "a", "--partitions", "0"), "at least 1"),
        (("run", "pipe.py", "--workers", "0"), "at least 1"),
        (("run", "pipe.py", "--workers", "2", "--on", "a"), "give one"),
    ],
)
def test_what_cannot_be_is_told_before_anything_runs(
    penstock: Penstock, words: tuple[str, ...], said: str
) -> None:
    ran = penstock(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_what_is_no_json_goes_to_the_dead_letters_as_text(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "bad")
    assert penstock("publish", "pipe.py", "--partitions", "1", *on).returncode == 0

    async def publish() -> None:
        client = await connect(server.urls)
        await jetstream(client).publish(f"penstock.bad.in.{token('a')}", b"{no JSON")
        await client.close()

    asyncio.run(publish())
    with Worker(tmp_path, *on, "--lease", "2") as worker:
        eventually(lambda: ", 1 dead letters" in penstock("status", *on).stdout)
        _, _, errors = worker.drain()
    assert "is no JSON" in errors
    (letter,) = map(json.loads, penstock("dead-letters", "list", *on).stdout.splitlines())
    assert (letter["value"], letter["error"]) == ("{no JSON", "BadLine")
