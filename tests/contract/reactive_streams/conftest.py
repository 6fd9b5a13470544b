from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.helpers.reactive_streams.far_away import Connection, Looks, look


@pytest.fixture(autouse=True, scope="module")
def in_memory() -> Iterator[None]:
    """Sources of remote servers find them in this process."""
    with (
        patch("penstock.streams.nats.streams.reading.connect", Connection.make),
        patch("penstock.streams.sql_queue.open_store", Looks),
        patch("penstock.streams.sql_queue.analytics.statistics.measure", look),
    ):
        yield
