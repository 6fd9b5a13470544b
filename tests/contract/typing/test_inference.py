"""Types flow through a whole pipeline without annotations on lambdas.

Each checker is started once, on one file, which takes seconds: the cost of running the real ones.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PIPELINES = HERE / "pipelines.py"
OWN = HERE / "own_stages.py"
WINDOWS = HERE / "windows.py"
MYPY = ["mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
PYRIGHT = ["pyright", "--warnings"]


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (MYPY, PIPELINES),
        (PYRIGHT, PIPELINES),
        (PYRIGHT, HERE / "connectable.py"),
        (MYPY, OWN),
        (PYRIGHT, OWN),
        (MYPY, WINDOWS),
        (PYRIGHT, WINDOWS),
    ],
    ids=[
        *("mypy", "pyright", "pyright, connectable streams", "mypy, own", "pyright, own"),
        *("mypy, windows", "pyright, windows"),
    ],
)
def test_the_type_of_every_stream_is_inferred(command: list[str], file: Path) -> None:
    checker = [sys.executable, "-m", *command, str(file)]
    checked = subprocess.run(checker, cwd=HERE.parents[1], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
