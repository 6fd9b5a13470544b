from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "santa.py"


def test_every_letter_is_answered_and_changes_of_the_limit_are_reported() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", "run", str(EXAMPLE), "--", "3"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    answered = [line for line in lines if line.startswith("Completed")]
    assert len(answered) == len(set(answered)) > 5
    assert all(line.endswith("[2130061, 1]") for line in answered)
    assert any(line.startswith("limit: ") for line in lines)
