"""Every backend whose states move keeps the laws, and each law notices one that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.state.backend import Moving, Unit
from penstock.streams.state.jetstream.moving import MovingJetStream
from penstock.streams.state.postgresql.shared import SharedPostgreSQL
from penstock.streams.testing import moving_laws as laws
from penstock.streams.testing.backend_laws import LAWS, Law
from penstock.streams.testing.fleet import Fleet, FleetMember
from penstock.streams.testing.limiter_laws import LawBroken
from penstock.streams.testing.moving_laws import MOVING_LAWS, MovingLaw, whole


@pytest.fixture(params=["memory", "postgresql", "jetstream", "jetstream local"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Moving]:
    if request.param == "memory":
        return Fleet().member
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres")
        return lambda: SharedPostgreSQL(url)
    servers: Servers = request.getfixturevalue("large_server")
    # All of the machines, or processes of one machine.
    local = str(tmp_path) if "local" in request.param else None
    return lambda: MovingJetStream(f"{servers.urls[0]}/{tmp_path.name}", local)


@pytest.mark.parametrize("law", MOVING_LAWS)
def test_a_moving_backend_keeps_the_law(law: MovingLaw, make: Callable[[], Moving]) -> None:
    law(make)


@pytest.mark.parametrize("law", LAWS)
def test_a_partition_of_a_moving_backend_is_a_backend(law: Law, make: Callable[[], Moving]) -> None:
    law(lambda: whole(make()))


class Hasty(FleetMember):
    def adopt(self, partition: int, count: int) -> None:
        super().adopt(partition, count)
        self._copies[partition].rows["one"].pop(b"3", None)


class Greedy(FleetMember):
    def release(self, partition: int) -> None: ...


class Zombie(FleetMember):
    def commit(self, unit: Unit) -> None:
        for number, copy in self._copies.items():
            copy.generation = self._fleet.partitions[number].generation
        super().commit(unit)


class Torn(FleetMember):
    def commit(self, unit: Unit) -> None:
        for number, one in unit.partitions.items():
            super().commit(Unit(partitions={number: one}))
        super().commit(Unit(over=unit.over))


class Trusting(FleetMember):
    def adopt(self, partition: int, count: int) -> None:
        super().adopt(partition, 2)


BREAKERS: dict[MovingLaw, type[FleetMember]] = {
    laws.restores_what_others_have_committed: Hasty,
    laws.has_only_adopted_partitions: Greedy,
    laws.commits_nothing_of_a_partition_that_another_has_adopted: Zombie,
    laws.writes_all_partitions_of_a_unit_or_none: Torn,
    laws.refuses_another_number_of_partitions: Trusting,
}


@pytest.mark.parametrize("law", MOVING_LAWS)
def test_a_law_notices_a_moving_backend_that_breaks_it(law: MovingLaw) -> None:
    fleet = Fleet()
    with pytest.raises(LawBroken):
        law(lambda: BREAKERS[law](fleet))
