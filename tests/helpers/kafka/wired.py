"""Brokers that are also reached by a cable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.streams.nats.client.server import free_ports
from tests.helpers.kafka.broker import Brokers
from tests.helpers.servers.cable import Cable

__all__ = ["WiredBrokers", "one_or_three_brokers", "one_wired_broker", "three_wired_brokers"]


class WiredBrokers(Brokers):
    """Brokers of which a client that begins at `by_cable` knows only the ends of a cable."""

    def __init__(self, folder: Path, count: int = 1) -> None:
        super().__init__(folder, count)
        self._wired = free_ports(count)
        self.cable = Cable([f"kafka://127.0.0.1:{port}" for port in self._wired])

    def __enter__(self) -> WiredBrokers:
        self.cable.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.cable.__exit__(*exception)
        super().__exit__(*exception)

    @property
    def by_cable(self) -> str:
        return ",".join(self._ends)

    @property
    def _ends(self) -> list[str]:
        return [url.removeprefix("kafka://") for url in self.cable.urls]

    def _more(self, number: int) -> dict[str, str]:
        plain = f"PLAINTEXT://127.0.0.1:{self._ports[number]}"
        controller = f"CONTROLLER://127.0.0.1:{self._controllers[number]}"
        return {
            "listeners": f"{plain},{controller},WIRED://127.0.0.1:{self._wired[number]}",
            "advertised.listeners": f"{plain},WIRED://{self._ends[number]}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "WIRED:PLAINTEXT",
        }


@pytest.fixture(scope="session")
def one_wired_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredBrokers]:
    """One broker that no test may disturb."""
    with WiredBrokers(tmp_path_factory.mktemp("kafka-wired")) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def three_wired_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredBrokers]:
    """Three brokers, which are all there and answer when a test ends."""
    with WiredBrokers(tmp_path_factory.mktemp("kafka-three-wired"), 3) as brokers:
        yield brokers


@pytest.fixture
def one_or_three_brokers(request: pytest.FixtureRequest, is_late_run: bool) -> WiredBrokers:
    """Three brokers in the last fifth of the runs, and one before; no test may disturb them."""
    name = "three_wired_brokers" if is_late_run else "one_wired_broker"
    found: WiredBrokers = request.getfixturevalue(name)
    return found
