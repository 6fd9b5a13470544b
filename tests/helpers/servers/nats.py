"""NATS servers for tests: one for all, three that no test disturbs, three for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams.nats.client.server import Servers

__all__ = ["cluster", "large_server", "server", "servers", "three_servers"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server."""
    with Servers(tmp_path_factory.mktemp("nats")) as servers:
        yield servers


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server that takes large messages."""
    folder = tmp_path_factory.mktemp("nats-large")
    with Servers(folder, settings="max_payload: 8MB") as servers:
        yield servers


@pytest.fixture(scope="module")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three servers, none of which a test may disturb."""
    with Servers(tmp_path_factory.mktemp("nats-three"), 3) as servers:
        yield servers


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three servers, of which a test may kill some."""
    with Servers(tmp_path_factory.mktemp("nats-cluster"), 3) as servers:
        yield servers


@pytest.fixture
def servers(request: pytest.FixtureRequest, is_late_run: bool) -> Servers:
    """Three servers in the last fifth of the runs, and one before; no test may disturb them."""
    found: Servers = request.getfixturevalue("three_servers" if is_late_run else "server")
    return found
