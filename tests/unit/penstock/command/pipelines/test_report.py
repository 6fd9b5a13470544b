from __future__ import annotations

import json
from dataclasses import asdict

from penstock.command.pipelines.report import as_json
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.runtime.report import Report


def test_json_can_say_whatever_python_can() -> None:
    error = ValueError("no")
    error.add_note("a note")
    stage = {"stage": 2, "name": "group_by", "hottest": ("a", 1), "key": object}
    histogram = LatencyHistogram()
    histogram.record(0.001, 0.002, 0.003)
    numbers = {"latency": {"waiting": asdict(histogram.snapshot())}, "stages": [stage]}
    text = as_json(Report("stopped", numbers, error), 1)
    assert "\n" not in text
    report = json.loads(text)
    assert report["error"] == {"type": "ValueError", "message": "no", "notes": ["a note"]}
    assert report["exit_status"] == 1
    assert report["statistics"]["latency"]["waiting"]["count"] == 3
    assert report["statistics"]["stages"][0]["key"] == "<class 'object'>"
