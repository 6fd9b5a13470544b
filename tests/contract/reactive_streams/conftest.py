from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from unittest.mock import patch

import pytest

from tests.helpers.copies import COPIES
from tests.helpers.reactive_streams.far_away import Connection, Looks, look

IN_PROCESSES = import_module("penstock.operators.in_processes")


@pytest.fixture(autouse=True, scope="module")
def in_memory() -> Iterator[None]:
    """Sources of remote servers find them in this process."""
    with (
        patch("penstock.streams.nats.streams.reading.connect", Connection.make),
        patch("penstock.streams.sql_queue.open_store", Looks),
        patch("penstock.streams.sql_queue.analytics.statistics.measure", look),
    ):
        yield


@pytest.fixture(autouse=True, scope="module")
def started_soon() -> Iterator[None]:
    """The processes of a pool are copies."""
    if COPIES is None:
        yield
        return

    def pool(size: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(size, mp_context=COPIES, initializer=IN_PROCESSES._begin)

    with patch.object(IN_PROCESSES, "_pool", pool):
        yield
