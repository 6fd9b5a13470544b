from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kafka.model import Broker, model_of
from tests.helpers.servers.command import Penstock, command_in


@pytest.fixture
def penstock(tmp_path: Path) -> Penstock:
    return command_in(tmp_path)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with model_of(Broker()) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Broker]:
    with model_of(Broker(partitions=2)) as made:
        yield made
