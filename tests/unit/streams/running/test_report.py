from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from penstock.streams.base.compiled import library
from penstock.streams.base.errors import NotAllFinished
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.running.report import Outcome, Report, State

NUMBERS: dict[str, Any] = {
    "state": "closed",
    "seconds": 2.0,
    "in": 1000,
    "finished": 990,
    "failed": 0,
    "returned": 0,
    "dropped": {},
    "unfinished": 0,
    "waiting": 0,
    "in_flight": 0,
    "bad_lines": 0,
    "closed_early": {},
    "limit": 8,
    "groups": 0,
    "latency": None,
    "stages": [],
}


def _summary() -> Any:
    histogram = LatencyHistogram()
    histogram.record(0.001, 0.002, 0.003)
    return asdict(histogram.snapshot())


def test_the_text_counts_what_became_of_every_event() -> None:
    numbers = {**NUMBERS, "dropped": {"duplicate": 4}, "failed": 3, "returned": 2}
    text = str(Report("stopped", numbers))
    assert text.splitlines() == [
        f"{library()}: stopped by an error after 2.0 s, 497 events/s",
        "  events: 1,000 in, 990 finished, 4 dropped (duplicate), 3 failed, 2 returned",
    ]


def test_events_that_were_dropped_are_part_of_the_rate() -> None:
    numbers = {**NUMBERS, "finished": 1, "dropped": {"last": 4000, "duplicate": 999}}
    assert str(Report("completed", numbers)).startswith(
        f"{library()}: completed after 2.0 s, 2,500 events/s\n"
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("completed", "completed"),
        ("drained", "drained on a signal"),
        ("incomplete", "ended with events unfinished"),
        ("output closed", "ended when the output was closed"),
        ("overrun", "cancelled when the drain's deadline had passed"),
        ("cancelled", "cancelled"),
    ],
)
def test_the_text_begins_with_the_library_and_how_it_ended(outcome: Outcome, words: str) -> None:
    assert str(Report(outcome, NUMBERS)).startswith(f"{library()}: {words} after 2.0 s")


def test_latencies_are_in_milliseconds() -> None:
    numbers = {**NUMBERS, "latency": {"waiting": _summary()}}
    assert "  waiting (ms): p50 2.0, p99 3.0, max 3.0" in str(Report("completed", numbers))


def test_a_stage_with_troubles_is_named() -> None:
    stage = {"stage": 2, "name": "adaptive_flat_map", "skipped": 0, "routed": 5, "stuck": 1}
    text = str(Report("completed", {**NUMBERS, "stages": [stage], "bad_lines": 7}))
    assert "  stage 2 'adaptive_flat_map': 5 routed, 1 stuck" in text
    assert "  bad lines: 7" in text


def test_what_was_not_finished_is_listed_by_the_sources_own_marks() -> None:
    source = {
        "stage": 1,
        "name": "read_jsonl",
        "detail": "standard input",
        "returned_tokens": [7, 3, 1, 2, "row 5"],
        "read_ahead": 1020,
    }
    numbers = {**NUMBERS, "stages": [source]}
    text = str(Report("cancelled", numbers))
    assert "not finished, by read_jsonl of standard input: 1-3, 7, row 5\n" in text
    assert "read and not begun, by read_jsonl of standard input: the next 1,020 lines" in text
    # A reader that went away wanted no more.
    assert "not finished" not in str(Report("output closed", numbers))


def test_of_very_many_unfinished_lines_the_first_few_are_listed_and_the_others_counted() -> None:
    tokens = [*range(1, 101), *range(201, 1000, 2), 7000, "row 5"]
    stage = {"name": "read_jsonl", "detail": "x", "returned_tokens": tokens}
    text = str(Report("cancelled", {**NUMBERS, "stages": [stage]}))
    (line,) = [line for line in text.splitlines() if "not finished" in line]
    assert line == (
        "  not finished, by read_jsonl of x: 1-100, 201, 203, 205, 207 and 398 more up to 7000 "
        "(--report json and returned_tokens have them all)"
    )
    assert len(tokens) == 100 + 4 + 398


@pytest.mark.parametrize("state", ["running", "paused", "draining"])
def test_the_text_before_the_end_says_that_it_has_not_ended(state: State) -> None:
    text = str(Report(state, {**NUMBERS, "in_flight": 3}))
    assert text.splitlines() == [
        f"{library()}: not ended ({state}) after 2.0 s, 495 events/s",
        "  events: 1,000 in, 990 finished, 3 in flight",
    ]


def test_the_repr_is_short() -> None:
    assert repr(Report("completed", NUMBERS)) == "<Report completed: 1,000 in, 990 finished>"
    report = Report("stopped", NUMBERS, ValueError("long " * 1000))
    assert repr(report) == "<Report stopped by ValueError: 1,000 in, 990 finished>"


@pytest.mark.parametrize("outcome", ["completed", "drained", "output closed"])
def test_a_report_of_a_run_in_which_all_went_well_raises_nothing(outcome: Outcome) -> None:
    report = Report(outcome, NUMBERS)
    assert report.raise_for_status() is report


def test_a_report_raises_the_error_that_stopped_its_run() -> None:
    error = KeyError("id")
    with pytest.raises(KeyError) as raised:
        Report("stopped", NUMBERS, error).raise_for_status()
    assert raised.value is error


@pytest.mark.parametrize(
    ("outcome", "numbers"),
    [
        ("completed", {"failed": 3}),
        ("drained", {"bad_lines": 1}),
        ("incomplete", {}),
        ("cancelled", {}),
        ("running", {}),
    ],
)
def test_a_report_of_events_that_did_not_all_finish_raises_with_its_own_text(
    outcome: Outcome | State, numbers: dict[str, int]
) -> None:
    report = Report(outcome, {**NUMBERS, **numbers})
    with pytest.raises(NotAllFinished) as raised:
        report.raise_for_status()
    assert str(raised.value) == f"exit status {report.exit_status}: {report}"
