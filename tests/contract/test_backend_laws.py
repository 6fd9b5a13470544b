"""Every backend of a store keeps the laws, and each law notices a backend that breaks it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.state.backend import Row, Unit
from penstock.streams.state.jetstream.backend import JetStream
from penstock.streams.state.memory import Memory
from penstock.streams.state.postgresql.backend import PostgreSQL
from penstock.streams.state.rocks import Rocks
from penstock.streams.state.sqlite import SQLite
from penstock.streams.testing import backend_laws as laws
from penstock.streams.testing.backend_laws import LAWS, Law, LawBroken, Make

KINDS = ["memory", "sqlite", "durable", "postgresql", "rocks", "rocks durable", "jetstream"]


@pytest.fixture(params=[*KINDS, "jetstream local"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    if request.param == "memory":
        memory = Memory()
        return lambda: memory
    if request.param == "postgresql":
        monkeypatch.setattr("penstock.streams.state.postgresql.backend._LAST_RUN", 0.2)
        url: str = request.getfixturevalue("postgres")
        return lambda: PostgreSQL(url)
    if request.param.startswith("jetstream"):
        servers: Servers = request.getfixturevalue("large_server")
        at = f"{servers.urls[0]}/{tmp_path.name}"
        # Each run on a machine of its own, or all on one.
        local = str(tmp_path) if "local" in request.param else None
        return lambda: JetStream(at, local)
    is_durable = "durable" in request.param
    if request.param.startswith("rocks"):
        return lambda: Rocks(str(tmp_path / "states"), durable=is_durable)
    return lambda: SQLite(str(tmp_path / "a.state"), durable=is_durable)


@pytest.mark.parametrize("law", LAWS)
def test_a_backend_keeps_the_law(law: Law, make: Make) -> None:
    law(make)


def test_a_run_that_is_not_locked_out_is_fenced(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on Windows, and where the session of a run was lost.
    monkeypatch.setattr("penstock.streams.state.sqlite.locked", lambda path, why: None)
    monkeypatch.setattr(PostgreSQL, "_take_lock", lambda self, db: None)
    monkeypatch.setattr("penstock.streams.state.jetstream.stream._OTHER", 0.0)
    laws.lets_only_the_last_run_commit(make)


class Shared(Memory):
    """A backend whose objects share their storage, and its runs are not told apart."""

    def __init__(self, other: Memory | None = None) -> None:
        super().__init__()
        if other is not None:
            self.__dict__ = other.__dict__


class Forgetful(Memory):
    def open(self) -> None:
        self._marks.clear()


class Deaf(Memory):
    """It takes keys for each other that differ in case only."""

    def commit(self, unit: Unit) -> None:
        rows = {
            stage: [row._replace(key=row.key.lower()) for row in new]
            for stage, new in unit.rows.items()
        }
        super().commit(Unit(rows, unit.gone, unit.marks))


class Short(Memory):
    def read(self, stage: str, keys: Any) -> list[Row]:
        return super().read(stage, keys[:500])


class Hasty(Memory):
    def commit(self, unit: Unit) -> None:
        super().commit(Unit(over=unit.over))
        super().commit(unit)


class Clinging(Memory):
    def forget(self, stage: str) -> None:
        self._stages.pop(stage)


class Torn(Memory):
    def commit(self, unit: Unit) -> None:
        self._marks.update(unit.marks)
        for stage, rows in unit.rows.items():
            for row in rows:
                len(row.state)
                super().commit(Unit({stage: [row]}))
        super().commit(unit)


class Heedless(Memory):
    def commit(self, unit: Unit) -> None:
        super().commit(Unit(unit.rows, unit.gone, unit.marks))


class Moving(Memory):
    def scan(self, stage: str) -> Iterator[Row]:
        at, rows = 0, self._rows.get(stage, {})
        while at < len(rows):
            yield list(rows.values())[at]
            at += 1


class Slow(Memory):
    in_thread = True

    def commit(self, unit: Unit) -> None:
        super().commit(Unit(marks=unit.marks))
        for stage, rows in unit.rows.items():
            for row in rows:
                super().commit(Unit({stage: [row]}))
                if threading.current_thread() is not threading.main_thread():
                    time.sleep(0.0001)


BREAKERS: dict[Law, type[Memory]] = {
    laws.keeps_what_was_committed: Forgetful,
    laws.keeps_each_key_apart: Deaf,
    laws.reads_many_keys: Short,
    laws.deletes_the_oldest_that_are_over: Hasty,
    laws.keeps_stages_until_they_are_forgotten: Clinging,
    laws.writes_all_of_a_unit_or_nothing: Torn,
    laws.writes_parts_or_says_which_are_refused: Heedless,
    laws.lets_only_the_last_run_commit: Shared,
    laws.scans_what_there_was_at_the_beginning: Moving,
    laws.reads_while_it_commits: Slow,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_notices_a_backend_that_breaks_it(law: Law) -> None:
    broken = BREAKERS[law]()
    with pytest.raises(LawBroken):
        law(partial(Shared, broken) if isinstance(broken, Shared) else lambda: broken)
