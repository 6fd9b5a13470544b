from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.kafka.model import Broker, model_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with model_of(Broker()) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Broker]:
    with model_of(Broker(partitions=2)) as made:
        yield made
