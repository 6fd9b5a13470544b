from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "campaign.py"
RECIPIENTS = 4_000
# Mails that one sender may have sent before the servers know: the outcomes that wait for an
# answer, and the current mail.
IN_HAND = 512 + 1


def test_everybody_is_mailed_and_again_only_by_a_sender_that_was_killed() -> None:
    command = [sys.executable, str(EXAMPLE), "--recipients", str(RECIPIENTS), "--kill"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "sender 1 is killed" in done.stdout
    told = re.search(r"mailed: ([\d,]+) of ([\d,]+), mailed again: (\d+)", done.stdout)
    assert told is not None
    mailed, of, again = (int(number.replace(",", "")) for number in told.groups())
    assert mailed == of == RECIPIENTS
    assert again <= IN_HAND
    memory = re.findall(r"memory of .*: (\d+) MiB, (\d+) MiB early on", done.stdout)
    assert len(memory) == 5
    assert all(int(late) - int(early) <= 16 for late, early in memory)
