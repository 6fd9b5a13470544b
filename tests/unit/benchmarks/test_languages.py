"""The table of by hand and libraries in several languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import languages
from benchmarks.languages import Program, Row, checked, lines
from benchmarks.measure import CaseFailed
from benchmarks.workload import kata_events

EVENTS = 1_000
UNIQUE = len({event["uuid"] for event in kata_events(EVENTS)})


def result(seconds: float, finished: int = UNIQUE) -> dict[str, Any]:
    return {
        "cpu_seconds": 2 * seconds,
        "later": [seconds, 9 * seconds, seconds],
        "events": EVENTS,
        "finished": finished,
        "duplicates": EVENTS - finished,
    }


def measured(language: str, name: str, seconds: float, finished: int = UNIQUE) -> Row:
    row = Row(language, name, lambda: result(seconds, finished))
    row.measure()
    return row


def test_a_result_that_lacks_an_event_is_refused() -> None:
    assert checked(result(1.0)) == result(1.0)
    with pytest.raises(CaseFailed, match=f"{UNIQUE - 1}.* instead of"):
        checked(result(1.0, UNIQUE - 1))


def test_each_row_is_a_ratio_to_the_one_by_hand_in_its_language() -> None:
    rows = [
        measured("Python", "by hand", 0.001),
        measured("Python", "penstock", 0.0015),
        measured("Java", "by hand", 0.0002),
        measured("Java", "Reactor", 0.0003),
    ]
    assert [line.split() for line in lines(rows)] == [
        ["Python", "by", "hand", "2.00", "1.00", "x", "1.00", "1.00", "x"],
        ["Python", "penstock", "3.00", "1.50", "x", "1.50", "1.50", "x"],
        ["Java", "by", "hand", "0.40", "1.00", "x", "0.20", "1.00", "x"],
        ["Java", "Reactor", "0.60", "1.50", "x", "0.30", "1.50", "x"],
    ]


def test_a_pipe_that_lost_events_has_the_reason_in_its_row() -> None:
    rows = [measured("Go", "by hand", 0.001), measured("Go", "other", 0.001, finished=3)]
    _, line = lines(rows)
    assert "(3, 997) events finished and duplicates instead of" in line


def test_a_language_without_its_tools_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[str]:
        raise CaseFailed("no package")

    there = Program("There", (), lambda: ["there"])
    away = Program("Away", ("no-such-tool",), lambda: ["away"])
    monkeypatch.setattr(languages, "PROGRAMS", (away, Program("Broken", (), broken), there))
    monkeypatch.setattr(languages, "_BUILD", tmp_path)
    assert languages.programs() == [(there, ["there"])]
    assert capsys.readouterr().out.splitlines() == [
        "  left out: Away, because there is no no-such-tool",
        "  left out: Broken, which cannot be built: no package",
    ]
