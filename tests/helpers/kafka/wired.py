"""Brokers that are also reached by a cable, which can be pulled and put back."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from penstock.streams.nats.client.server import free_ports
from tests.helpers.kafka.broker import Brokers
from tests.helpers.servers.wire import Wire

__all__ = ["WiredBrokers", "one_or_three_brokers", "one_wired_broker", "three_wired_brokers"]


class WiredBrokers(Brokers):
    """Brokers of which those who begin at `by_cable` know only addresses at the end of a cable.

    What is sent while it is pulled arrives when it is put back.
    """

    def __init__(self, folder: Path, count: int = 1) -> None:
        super().__init__(folder, count)
        self._wired = free_ports(count)
        self._wires = [Wire(f"kafka://127.0.0.1:{port}") for port in self._wired]
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> WiredBrokers:
        self._thread.start()
        for wire in self._wires:
            self._in_loop(wire.lay())
        self.by_cable = ",".join(self._ends)
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        for wire in self._wires:
            self._in_loop(wire.remove())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        super().__exit__(*exception)

    @contextmanager
    def pulled(self) -> Generator[None]:
        """While the cable is pulled."""
        for wire in self._wires:
            self._loop.call_soon_threadsafe(wire.cut)
        try:
            yield
        finally:
            for wire in self._wires:
                self._loop.call_soon_threadsafe(wire.mend)

    @property
    def _ends(self) -> list[str]:
        return [wire.url.removeprefix("kafka://") for wire in self._wires]

    def _in_loop(self, work: Any) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(60)

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
