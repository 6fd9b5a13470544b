from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from penstock.command.pipelines.report import as_json
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.running.report import Report


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


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (math.nan, "nan"),
        (("a", -math.inf), ["a", "-inf"]),
        ({"a": math.inf}, {"a": "inf"}),
        ((1, 2.5, True, None), [1, 2.5, True, None]),
    ],
)
def test_a_number_that_json_has_not_is_text(key: object, shown: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = as_json(Report("completed", {"stages": [{"hottest": key}]}, None), 0)
    report = json.loads(text, parse_constant=refuse)
    assert report["statistics"]["stages"] == [{"hottest": shown}]


def test_a_key_that_cannot_be_shown_does_not_hide_the_report() -> None:
    class Key:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    text = as_json(Report("completed", {"stages": [{"hottest": Key()}]}, None), 0)
    stages = json.loads(text)["statistics"]["stages"]
    assert stages == [{"hottest": "<Key whose repr raised RuntimeError>"}]
