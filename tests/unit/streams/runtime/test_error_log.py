"""What goes wrong in a running is counted, and the first of a kind is reported."""

from __future__ import annotations

import pytest

from penstock.streams.base.errors import BadLine
from penstock.streams.runtime.error_log import ErrorLog, in_a_line


def test_ten_errors_of_a_kind_are_shown_and_the_rest_is_counted() -> None:
    errors, told = ErrorLog(), list[str]()
    errors.on_warning = lambda text, *_: told.append(text)
    for n in range(30):
        errors.count(ValueError(n))
    assert told[0] == "ValueError: 0 ()"
    assert told[10:] == ["more events have failed; they are counted and no longer shown"]
    for n in range(30):
        errors.count_bad_line(BadLine(f"line {n}"))
    assert told[11:13] == ["line 0", "line 1"]
    assert told[21:] == ["there are more bad lines; they are counted and no longer shown"]
    assert (errors.failed_events, errors.bad_lines) == (30, 30)


def test_a_report_is_one_line_whatever_the_error_says(caplog: pytest.LogCaptureFixture) -> None:
    errors = ErrorLog()
    error = ValueError("2 errors\n  amount: missing\r\npenstock: completed\n")
    error.add_note("in stage 2 'map'\nand more")
    errors.count(error)
    errors.count_bad_line(BadLine("line 1 is no JSON:\n{"))
    assert [record.getMessage() for record in caplog.records] == [
        "ValueError: 2 errors amount: missing penstock: completed (in stage 2 'map' and more)",
        "line 1 is no JSON: {",
    ]


def test_an_error_in_a_line_says_where_it_was() -> None:
    error = ValueError("first\nsecond")
    error.add_note("in stage 2 'map'")
    assert in_a_line(error) == "ValueError: first second (in stage 2 'map')"


def test_a_group_of_errors_in_a_line_names_those_in_it() -> None:
    inner = ExceptionGroup("of a part", [TimeoutError()])
    error = ExceptionGroup("errors in a TaskGroup", [ValueError("no amount"), inner])
    error.add_note("in stage 2 'adaptive_flat_map'")
    assert in_a_line(error) == (
        "ExceptionGroup: errors in a TaskGroup (2 sub-exceptions): ValueError: no amount; "
        "ExceptionGroup: of a part (1 sub-exception): TimeoutError "
        "(in stage 2 'adaptive_flat_map')"
    )


def test_of_a_large_group_of_errors_the_first_ones_are_named() -> None:
    error = ExceptionGroup("many", [ValueError(n) for n in range(9)])
    assert in_a_line(error) == (
        "ExceptionGroup: many (9 sub-exceptions): ValueError: 0; ValueError: 1; ValueError: 2; "
        "and 6 more"
    )
