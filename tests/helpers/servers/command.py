"""Shared by the tests of the command on servers: a pipeline, events, a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.copies import run_command

__all__ = [
    "PIPELINE",
    "Penstock",
    "Worker",
    "command_in",
    "event",
    "eventually",
    "lines",
    "penstock",
]

PIPELINE = """
from penstock import adaptive_flat_map, distinct_within, group_by, spread
from penstock import write_jsonl
from penstock import read_jsonl


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
"""Runs a command to its end in the folder of `pipe.py`, which is the pipeline above."""


def command_in(folder: Path, pipeline: str = PIPELINE) -> Penstock:
    """What runs a command in this folder, which gets a `pipe.py`."""
    (folder / "pipe.py").write_text(pipeline, encoding="utf-8")

    def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return run_command(words, folder, given)

    return run


@pytest.fixture
def penstock(tmp_path: Path) -> Penstock:
    return command_in(tmp_path)


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
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors


def eventually(true: Callable[[], bool]) -> None:
    began = time.monotonic()
    until = began + 60
    while not true():
        now = time.monotonic()
        assert now < until
        # Twice as long as it takes to look, for who looks by a process takes it from the others.
        time.sleep(max(0.1, 2 * (now - began)))
        began = time.monotonic()
