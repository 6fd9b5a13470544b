"""Counts in what the commands print, with their nouns."""

from __future__ import annotations

from penstock.command.cluster.nats import as_text
from penstock.command.cluster.nats_pools import pool_as_text
from penstock.streams.delivery.view import View
from penstock.streams.pictures.pipeline import bound_text, total_text
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.work_pulling.view import Epic, PoolView


def test_one_of_a_kind_is_in_the_singular() -> None:
    stage = StageInfo("take", "", 1)
    assert (bound_text(stage), total_text([stage])) == ("1 event", "Holds at most 1 event at once.")
    pipeline = as_text(View(name="one", stored=1, letters=1, lag={0: 1}, owners={}, workers={}))
    assert "one: 1 event unfinished, 1 kept, 1 dead letter\n  1 partition, 1 of" in pipeline
    pool = pool_as_text(PoolView("one", 1, 1, 1, Epic("e", 1.0, 1, 1, 1, 1, 1)))
    assert "1 job done" in pool
    assert "1 dead letter\n  1 worker with room for 1 job\n" in pool


def test_a_pool_says_how_many_workers_pay() -> None:
    def line(*, workers: int = 3, **use: float | int | None) -> str:
        epic = Epic("e", 1.0, 1, 1, 1, workers, 12, **use)  # type: ignore[arg-type]
        return pool_as_text(PoolView("one", 1, 1, 1, epic)).splitlines()[1]

    assert line() == "  3 workers with room for 12 jobs"
    assert line(busy=0.97, pays=4).endswith(" jobs, 97% busy; another would pay")
    assert line(busy=0.9, pays=3).endswith(" jobs, 90% busy")
    brought = "; the last change of their number brought 12% of a worker's share; 2 would do"
    assert line(busy=1.0, gain=0.12, pays=2).endswith(brought)
