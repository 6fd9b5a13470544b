from __future__ import annotations

import subprocess
import sys


def printed(*options: str) -> list[str]:
    command = [sys.executable, "-m", "examples.balances", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_entry_is_on_a_statement_once_with_the_right_balance() -> None:
    entries, once = printed("--entries", "2000", "--kills", "0")
    assert entries == "2,000 entries of 50 accounts"
    assert once == "each is on a statement once, with the right balance: True"
