from __future__ import annotations

import pytest

from penstock.command.kata import Event, Observer
from penstock.command.kata.report.each_second import each_second, tell_each_second


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def start(observer: Observer, waited: float) -> None:
    event = Event(uuid="a", client_id=1000, created=observer.now() - waited, sequence=0)
    observer.started(event)


def test_each_second_has_the_latency_of_its_own_events_and_the_queue() -> None:
    clock = Clock()
    observer = Observer(clock)
    told: list[str] = []

    def wait(seconds: float) -> bool:
        assert seconds == pytest.approx(1)
        clock.time += seconds
        second = round(clock.time) - 100
        observer.arrived(10)
        for _ in range(2):
            start(observer, waited=second / 10)
        return second == 3

    tell_each_second("naive-pool", observer, told.append, wait)
    heading, *lines = told
    assert heading.split() == ["naive-pool", "second", "count", "mean", "median", "p99", "queue"]
    # The upper end of the histogram's cell, which has three digits.
    assert [line.split() for line in lines] == [
        ["1", "2", "100.0", "100.0", "100.0", "8"],
        ["2", "2", "200.0", "200.1", "200.1", "16"],
        ["3", "2", "299.9", "300.0", "300.0", "24"],
    ]


def test_numbers_end_below_their_headings() -> None:
    clock = Clock()
    told: list[str] = []
    for name in ("sequential", "a/path/to/a/file.py:and_a_consumer"):
        observer = Observer(clock)
        observer.arrived(12_345)
        start(observer, waited=12.34)
        tell_each_second(name, observer, told.append, lambda seconds: True)
    for heading, line in (told[:2], told[2:]):
        assert len(line) == len(heading)


def test_a_second_in_which_nothing_can_run_is_part_of_the_next_line() -> None:
    clock = Clock()
    observer = Observer(clock)
    told: list[str] = []
    asked: list[float] = []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        # The whole interpreter stood still in the second one.
        clock.time += seconds + (2.5 if len(asked) == 2 else 0)
        start(observer, waited=0.1)
        return len(asked) == 4

    tell_each_second("x", observer, told.append, wait)
    assert [line.split()[:2] for line in told[1:]] == [
        ["1", "1"],
        ["2", "1"],
        ["5", "1"],
        ["6", "1"],
    ]
    assert asked == pytest.approx([1, 1, 0.5, 1])


def test_the_rest_of_the_last_second_has_a_line_if_anything_started_in_it() -> None:
    for started in (0, 1):
        observer = Observer(Clock())
        told: list[str] = []
        for _ in range(started):
            start(observer, waited=0.0)
        tell_each_second("x", observer, told.append, lambda seconds: True)
        assert len(told) == 1 + started


def test_the_lines_are_written_while_the_block_runs_and_end_with_it() -> None:
    observer = Observer()
    told: list[str] = []
    with each_second("x", observer, told.append):
        start(observer, waited=0.0)
    assert [line.split()[0] for line in told] == ["x", "1"]
