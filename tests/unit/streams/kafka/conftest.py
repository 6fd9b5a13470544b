from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.servers.command import Penstock, command_in


@pytest.fixture
def penstock(tmp_path: Path) -> Penstock:
    return command_in(tmp_path)
