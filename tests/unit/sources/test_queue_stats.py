from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from reactivex import operators as ops

import penstock.streams.sql_queue
from penstock import queue_stats, write_jsonl
from penstock.streams.base.errors import BuildError, CannotOpen, DatabaseUnavailable, TableMissing
from penstock.streams.sql_queue import DatabaseLost, open_store
from penstock.streams.sql_queue.analytics import statistics
from penstock.streams.sql_queue.schema import Required
from penstock.streams.testing import Probe, run_virtual


class Ticking:
    """Stands for a queue: each look takes `lasts` seconds, or fails while the database is away."""

    def __init__(self, lasts: float = 0.0, away: tuple[float, float] = (0.0, 0.0)) -> None:
        self.url = "sqlite:///ticking.db"
        self.closed = False
        self._lasts = lasts
        self._away = away

    async def open(self, required: Required) -> None:
        assert not required.make

    async def look(self) -> float:
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(self._lasts)
        if self._away[0] <= begun < self._away[1]:
            raise DatabaseLost("away")
        return begun

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let `queue_stats` measure a fake queue that records the times of the looks."""

    def use(store: Ticking) -> None:
        monkeypatch.setattr(penstock.streams.sql_queue, "open_store", lambda *_, **__: store)
        monkeypatch.setattr(statistics, "measure", lambda store, window: store.look())

    return use


def looks(seconds: float, request: int = 100, **options: Any) -> Probe[Any]:
    async def story() -> Probe[Any]:
        probe = Probe[Any](request=request)
        queue_stats("sqlite:///ticking.db", **options).connect(probe)
        await asyncio.sleep(seconds)
        if not probe.ended:
            probe.cancel()
        await asyncio.sleep(0)
        return probe

    return run_virtual(story())


def test_the_first_look_is_at_once_and_the_others_at_their_distance(ticking: Any) -> None:
    ticking(store := Ticking(lasts=1.0))
    probe = looks(9.5, every=4.0)
    assert probe.timed == [(1.0, 0.0), (5.0, 4.0), (9.0, 8.0)]
    assert store.closed


def test_a_look_that_takes_longer_than_its_turn_is_followed_at_once(ticking: Any) -> None:
    ticking(Ticking(lasts=3.0))
    assert looks(9.5, every=2.0).values == [0.0, 3.0, 6.0]


def test_nobody_looks_for_those_who_do_not_ask(ticking: Any) -> None:
    ticking(Ticking())
    assert looks(9.0, request=2, every=1.0).values == [0.0, 1.0]


def test_while_the_database_is_away_nothing_is_emitted(ticking: Any) -> None:
    ticking(Ticking(away=(2.0, 4.0)))
    assert looks(5.5, every=1.0, patience=10.0).values == [0.0, 1.0, 4.0, 5.0]


def test_a_database_that_stays_away_is_an_error(ticking: Any) -> None:
    ticking(store := Ticking(away=(2.0, 100.0)))
    probe = looks(60.0, every=1.0, patience=10.0)
    assert probe.values == [0.0, 1.0]
    assert isinstance(probe.error, DatabaseUnavailable)
    assert "could not be measured for 10 s: away" in str(probe.error)
    assert store.closed


def test_the_numbers_of_a_queue_are_written_as_json(tmp_path: Path, database: str) -> None:
    out = tmp_path / "stats.jsonl"

    async def story() -> None:
        store = open_store(database)
        await store.open()
        await store.put(["{}", "{}"])
        await store.close()
        await queue_stats(database).pipe(ops.take(1)).to(write_jsonl(out)).run()

    asyncio.run(story())
    (stats,) = [orjson.loads(line) for line in out.read_text().splitlines()]
    assert (stats["waiting"], stats["finished"], stats["pollers"]) == (2, 0, [])


def test_a_database_or_table_that_is_missing_is_an_error(tmp_path: Path) -> None:
    async def first(table: str) -> None:
        async for _ in queue_stats(f"sqlite:///{tmp_path}/work.db", table):
            return

    with pytest.raises(CannotOpen, match="does not exist"):
        asyncio.run(first("queue"))
    assert not (tmp_path / "work.db").exists()

    async def make() -> None:
        store = open_store(f"sqlite:///{tmp_path}/work.db")
        await store.open()
        await store.close()

    asyncio.run(make())
    with pytest.raises(TableMissing, match="no table 'other'"):
        asyncio.run(first("other"))


@pytest.mark.parametrize("option", ["every", "window", "patience"])
def test_times_must_be_positive(option: str) -> None:
    with pytest.raises(BuildError, match=option):
        queue_stats("sqlite:///work.db", **{option: 0.0})  # type: ignore[arg-type]
