from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.nats.command import PIPELINE, Penstock


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
