"""A test that ends its process: the others are run, and the run ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFTEST = """
import sys

sys.path.insert(0, {root!r})


def pytest_xdist_make_scheduler(config, log):
    from tests.helpers.hung_tests import EachTestOnce

    return EachTestOnce(config, log)
"""

ENDS = """
import os
import time


def test_passes():
    pass


def test_ends_its_process():
    time.sleep({seconds})
    os._exit(1)
"""

WAITS = """
import time


def test_passes():
    time.sleep({seconds})
"""


def check(folder: Path, ends_after: float, others: list[float]) -> None:
    """Run a file whose last test ends its process, and others with one test that takes so long."""
    (folder / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (folder / "test_first.py").write_text(ENDS.format(seconds=ends_after))
    for number, seconds in enumerate(others):
        (folder / f"test_other_{number}.py").write_text(WAITS.format(seconds=seconds))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )
    assert f"1 failed, {1 + len(others)} passed" in run.stdout, run.stdout + run.stderr
    assert "crashed while running 'test_first.py::test_ends_its_process'" in run.stdout


def test_a_process_that_ends_in_the_last_test_of_its_file_holds_up_no_other(tmp_path: Path) -> None:
    # When the other process has run all files but this one.
    check(tmp_path, 2, [0, 0, 0, 0])


def test_what_a_process_that_ends_had_still_to_run_is_run_by_the_next(tmp_path: Path) -> None:
    # While the other process runs, which is to get no more: files of one test are left.
    check(tmp_path, 0.5, [4, 0, 0])
