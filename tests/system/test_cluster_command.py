from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import token
from tests.helpers.servers.command import PIPELINE, Penstock, Worker, event, eventually, lines


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
        assert "stored: 101 in batches; workers drop the duplicates" in fed.stderr
    assert "messages unfinished" in penstock("status", *on).stdout

    with Worker(tmp_path, *on) as worker:
        eventually(lambda: " 0 messages unfinished" in penstock("status", *on).stdout)
        again = penstock("dead-letters", "replay", *on)
        assert "1 event published again" in again.stderr
        eventually(lambda: " 1 dead letter" in penstock("status", *on).stdout)
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
    watching.communicate(timeout=60)
    assert sum("watched: 0 events unfinished" in line for line in shown) >= 2
    assert watching.returncode == 0


def test_a_signal_after_the_end_of_a_worker_does_not_change_its_exit_status(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "late")
    assert penstock("publish", "pipe.py", *on, given=lines(event(1, "a", 1))).returncode == 0
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
    (tmp_path / "pipe.py").write_text(late + PIPELINE, encoding="utf-8")
    with Worker(tmp_path, *on) as worker:
        eventually(lambda: "late: 0 events unfinished" in penstock("status", *on).stdout)
        status, _, errors = worker.drain()
    assert status == 4, errors
