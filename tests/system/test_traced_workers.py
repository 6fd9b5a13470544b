"""`penstock run --workers N --trace`: spans of several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.traced import TRACED, spans_in


def test_the_calls_in_worker_processes_are_below_the_events_of_the_parent(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(TRACED, encoding="utf-8")
    given = "".join(json.dumps({"n": n}) + "\n" for n in range(100))
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "traced.py", "--workers", "2", "--trace"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    spans = spans_in(tmp_path)
    events = {one["id"]: one for one in spans if one["name"].startswith("event of")}
    calls = [one for one in spans if one["name"] == "adaptive_flat_map work"]
    assert (len(events), len(calls)) == (100, 100)
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {one["pid"] for one in calls} == {one["by"] for one in results}
    for call in calls:
        assert call["trace"] == events[call["parent"]]["trace"]
        assert call["pid"] != events[call["parent"]]["pid"]
    carried = {int(one["traceparent"].split("-")[2], 16) for one in results}
    assert carried == set(events)
