from __future__ import annotations

from dataclasses import replace

from penstock.command.kata import Measured, table
from penstock.streams.diagnostics.histogram import Summary

RUN = Measured(
    variant="sequential",
    seconds=2.0,
    arrived=1000,
    finished=200,
    dropped=1,
    lost=2,
    unfinished=797,
    throughput=100.4,
    queue=795,
    peak_queue=800,
    latency=Summary(201, 0.0001, 12.3456, 0.5, 0.25, 0.75, 0.95, 0.98, 0.99, 0.999, 0.1, 0, 0),
    duplicates_processed=3,
    overlapped=4,
    overtaken=5,
)


def test_a_row_shows_every_number_under_its_heading() -> None:
    heading, row = (line.split() for line in table([RUN]).splitlines())
    assert dict(zip(heading, row, strict=True)) == {
        "variant": "sequential",
        "events/s": "100",
        "queue": "795",
        "peak": "800",
        "count": "201",
        "min": "0.1",
        "max": "12346",
        "mean": "500.0",
        "median": "250.0",
        "p75": "750.0",
        "p95": "950.0",
        "p98": "980.0",
        "p99": "990.0",
        "p999": "999.0",
        "lock-mean": "-",
        "lock-p99": "-",
        "duplicates": "3",
        "overlapped": "4",
        "overtaken": "5",
        "lost": "2",
        "unfinished": "797",
    }


def test_a_variant_with_locks_has_its_waits_for_them() -> None:
    waits = replace(RUN.latency, mean=0.0125, p99=0.999)
    heading, row = (line.split() for line in table([replace(RUN, lock_waits=waits)]).splitlines())
    cells = dict(zip(heading, row, strict=True))
    assert (cells["lock-mean"], cells["lock-p99"]) == ("12.5", "999.0")


def test_if_a_client_was_slow_the_last_column_is_the_latency_of_the_others() -> None:
    others = replace(RUN.latency, p99=0.0144)
    heading, row, without = (
        line.split() for line in table([replace(RUN, others=others), RUN]).splitlines()
    )
    assert (heading[-1], row[-1], without[-1]) == ("others-p99", "14.4", "-")


def test_lines_are_equally_long_and_numbers_end_in_the_same_column() -> None:
    lines = table([RUN, replace(RUN, variant="x", arrived=7, queue=1_000_000)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    end = lines[0].index("queue") + len("queue")
    assert lines[1][:end].endswith(" 795")
    assert lines[2][:end].endswith(" 1000000")


def test_no_runs_make_a_heading() -> None:
    assert table([]).startswith("variant  events/s")
    assert "\n" not in table([])
