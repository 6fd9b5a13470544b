from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "workflow.py"


def test_the_rules_hold_as_drawn_and_only_the_cases_that_go_wrong_give_an_alarm() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), "200"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.partition(": ")[2] for line in lines[:4]] == [
        *["holds as drawn"] * 3,
        "not applicable to the drawing, which lacks by_clerk",
    ]
    assert lines[-1].endswith("of 200 cases, watched by 4 rules")
    alarms = [line for line in lines if line.startswith("ALARM")]
    # Which case breaks which rule is decided by a seed; every 25th does.
    told = {int(re.search(r"event.* of (\d+):", line)[1]): line for line in alarms}
    assert sorted(told) == list(range(25, 201, 25))
    assert len(alarms) == len(told)
    ends = [line for line in alarms if "at the end of the stream" in line]
    assert all("(soi ->" in line for line in ends)
    assert all("{checked; " in line for line in alarms if "'changed'" in line)
    assert all("by_clerk" in line for line in alarms if "'clerk'" in line)
    assert all("!shipped W paid" in line for line in alarms if "event 6 of" in line)
    drawn = {line.partition(":")[0] for line in lines if line.startswith("NOT DRAWN")}
    assert len(lines) == 4 + len(alarms) + len(drawn) + 1
    assert drawn <= {
        f"NOT DRAWN {arc}"
        for arc in (
            "approved -> shipped",
            "shipped -> paid",
            "input -> checked",
            "checked -> changed",
            "changed -> approved",
        )
    }
    assert drawn
