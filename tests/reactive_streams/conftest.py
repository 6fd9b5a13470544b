from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.reactive_streams.far_away import Connection, Looks, look


@pytest.fixture(autouse=True, scope="module")
def in_memory() -> Iterator[None]:
    """Sources that look far away find what they look for in this process."""
    with (
        patch("streams.jetstream.reading.connect", Connection.make),
        patch("streams.table.open_store", Looks),
        patch("streams.table.analytics.measure", look),
    ):
        yield
