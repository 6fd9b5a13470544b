"""A test that hangs is reported, once, and costs no other test."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import threading
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    if number == 1:
        threading.Event().wait()
"""


def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfaulthandler_timeout = 2\nfaulthandler_exit_on_timeout = true\n"
    )
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler\n"
    )
    for name in ("test_one.py", "test_another.py"):
        (tmp_path / name).write_text(TESTS)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-q", tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "2 failed, 6 passed" in run.stdout, run.stdout + run.stderr
    assert "crashed while running 'test_one.py::test_it[1]'" in run.stdout
