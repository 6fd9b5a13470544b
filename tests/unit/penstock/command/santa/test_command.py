from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def santa(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "santa", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_letters_are_answered_in_processes_and_the_story_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "santa.svg"
    ran = santa("--batches", "3", "--speed", "200", "--limit", "fixed:2", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("New jobs arriving: batch 1, ")
    assert ran.stdout.endswith("Queue: 0, In Flight: 0\n")
    assert "in the queue" in ran.stderr
    lines = [line.strip() for line in ran.stderr.splitlines() if "|" in line]
    assert [line.partition(" |")[0] for line in lines] == [
        *("queue", "in flight", "limit", "seconds in the system")
    ]
    assert lines[2].endswith(f"|{'█' * 60}| at most 2")
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "five"), "say fixed:N, hill-climb or auto"),
        (("--limit", "fixed:0"), "say fixed:N, hill-climb or auto"),
        (("--speed", "inf"), "must be a number above 0"),
        (("--batches", "0"), "at least 1"),
        (("--plot", "no/such/folder/santa.svg"), "Cannot write no/such/folder/santa.svg"),
        (("--plot", "santa.abc"), "Cannot write santa.abc"),
    ],
)
def test_a_wrong_option_is_reported_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    ran = santa(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert not ran.stdout
    assert "Traceback" not in ran.stderr
