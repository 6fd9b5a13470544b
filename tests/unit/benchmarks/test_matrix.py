"""The measurements of the matrix of costs."""

from __future__ import annotations

import pytest

from benchmarks.matrix import run
from benchmarks.matrix.rows import ROWS, Row
from tests.helpers.of_sources import of_sources


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_runs_all_its_events(row: Row) -> None:
    events = run.events_of(row, 300)
    assert run.ours(row, events) >= 1
    run.by_hand(row, events, row.at_once or 1)


@of_sources
def test_calls_are_counted_an_event_whatever_a_run_costs_at_its_start() -> None:
    few = next(row for row in ROWS if row.name == "sleep(0), Fixed(64)")
    assert 1 <= run.calls(few) < 20
