from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BOUND = """
import subprocess, time
from penstock.streams.runtime.process.lifeline import bound
child = subprocess.Popen(bound(["sleep", "60"]))
time.sleep(1)
print(child.pid, flush=True)
time.sleep(60)
"""
MULTIPROCESSING = """
import multiprocessing, sys, time
from penstock.streams.runtime.process import lifeline

def child():
    lifeline._ask_the_kernel = lambda: None
    lifeline.end_with_parent()
    time.sleep(60)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    print(process.pid, flush=True)
    time.sleep(60)
"""


def _eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _is_gone(process: int) -> bool:
    try:
        # Nobody may have waited for it yet.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("parent", [BOUND, MULTIPROCESSING])
def test_each_way_by_itself_ends_a_child_whose_parent_is_killed(
    tmp_path: Path, parent: str
) -> None:
    file = tmp_path / "parent.py"
    file.write_text(parent, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as running:
        assert running.stdout is not None
        child = int(running.stdout.readline())
        assert not _is_gone(child)
        running.kill()
    assert _eventually(lambda: _is_gone(child))
