from __future__ import annotations

from penstock import collect
from penstock.streams.testing import CountedSource
from penstock.streams.testing.plugin import Run


def test_each_running_appends_its_values_in_order(run: Run) -> None:
    into = [0]
    pipeline = CountedSource([1, 2, 3]).to(collect(into))
    report = run(pipeline.run())
    run(pipeline.run())
    assert into == [0, 1, 2, 3, 1, 2, 3]
    assert report.statistics["finished"] == 3


def test_a_stream_can_be_collected_twice_at_once(run: Run) -> None:
    first: list[int] = []
    second: list[int] = []
    run(CountedSource(range(1000)).to(collect(first), collect(second)).run())
    assert first == second == list(range(1000))
