"""Signals to a command whose own code blocks: real processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

# What never returns: in a function of C without the interpreter's lock, and in Python.
QUERY = "with recursive a(x) as (select 1 union all select x + 1 from a) select sum(x) from a"
BLOCKS = {
    "in SQLite": f"sqlite3.connect(':memory:').execute('{QUERY}').fetchall()",
    "in Python": "while True: pass",
}
FILE = """
import sqlite3, sys
from penstock import adaptive_flat_map, read_jsonl, write_jsonl

def work(event):
    print("begun", file=sys.stderr, flush=True)
    {block}

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""
BLOCKED = "a function blocks the event loop"


class Command:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen = ""

    def wait_for(self, words: str) -> None:
        """Read standard error up to a line that contains `words`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.seen += line
            if words in line:
                return
        raise AssertionError(self.seen)

    def end(self) -> int:
        """Wait until it has ended; returns its status."""
        self.seen += self.process.communicate()[1]
        return self.process.returncode


@contextmanager
def command(*words: str) -> Generator[Command]:
    pipe = subprocess.PIPE
    whole = [sys.executable, "-m", "penstock", *words]
    with subprocess.Popen(whole, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write('{"n": 1}\n')
        process.stdin.flush()
        patience = threading.Timer(60, process.kill)
        patience.start()
        try:
            yield Command(process)
        finally:
            patience.cancel()
            process.kill()


@pytest.fixture(params=BLOCKS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(FILE.format(block=BLOCKS[request.param]))
    return str(path)


def test_the_third_signal_ends_a_process_whose_loop_is_blocked(job: str) -> None:
    with command("run", job) as running:
        running.wait_for("begun")
        for _ in range(2):
            running.process.send_signal(signal.SIGINT)
            running.wait_for(BLOCKED)
        running.process.send_signal(signal.SIGINT)
        assert running.end() in (-signal.SIGINT, 128 + signal.SIGINT)


def test_one_signal_ends_a_process_whose_loop_is_blocked_past_the_deadline(job: str) -> None:
    with command("run", job, "--drain-deadline", "0") as running:
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 5
    assert re.search(f"{BLOCKED}.* ends in 5 s, or at the third signal", running.seen)
    assert "the event loop was blocked for 5 s: the process ends" in running.seen


def test_one_signal_ends_a_process_that_waits_for_room_in_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(FILE.format(block="print('x' * 1_000_000, file=sys.stderr)"))
    with command("run", str(path), "--drain-deadline", "0") as running:
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        # Nobody reads what it prints.
        assert running.process.wait() == 5


def test_the_second_signal_ends_a_process_whose_loop_stays_blocked(job: str) -> None:
    with command("run", job, "--drain-deadline", "600") as running:
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        running.wait_for("ends in 605 s, or at the third signal")
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 5


def test_a_signal_that_a_loop_answers_late_drains(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(FILE.format(block="import time; time.sleep(3); return event"))
    with command("run", str(path), "--drain-deadline", "600") as running:
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 4
    assert BLOCKED in running.seen
    assert "drained on a signal" in running.seen


FORKS = """
import os, signal, sys, time
from penstock import adaptive_flat_map, from_iterable, write_jsonl

def work(value):
    for _ in range(3):
        child = os.fork()
        if not child:
            signal.raise_signal(signal.SIGINT)
            os._exit(0)
        os.waitpid(child, 0)
    # Until a thread would have read of them.
    time.sleep(0.2)
    return value

pipeline = from_iterable([1]).pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


def test_signals_to_children_that_were_forked_are_not_those_of_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(FORKS)
    with command("run", str(path)) as running:
        assert running.end() == 0


POOL = """
import signal, threading
from concurrent.futures import ThreadPoolExecutor

class Consumer:
    def __init__(self):
        self.pool = ThreadPoolExecutor(1)

    def submit(self, event):
        self.pool.submit(self.work, event)

    def work(self, event):
        # The system may choose any thread for a signal to the process.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        threading.Event().wait()
"""


def test_one_signal_ends_the_try_of_a_consumer_with_a_pool_that_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "pool.py"
    path.write_text(POOL)
    with command("kata", "--seconds", "600", "--try", str(path)) as running:
        assert running.end() == 128 + signal.SIGINT
    assert running.seen.endswith("penstock: ended by SIGINT before the load's end\n")
