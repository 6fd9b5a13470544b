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
    # When the other process has run all files but this one.
    time.sleep(2)
    os._exit(1)
"""


def test_a_process_that_ends_in_the_last_test_of_its_file_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    (tmp_path / "test_first.py").write_text(ENDS)
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text("def test_passes():\n    pass\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert "1 failed, 5 passed" in run.stdout, run.stdout + run.stderr
    assert "crashed while running 'test_first.py::test_ends_its_process'" in run.stdout
