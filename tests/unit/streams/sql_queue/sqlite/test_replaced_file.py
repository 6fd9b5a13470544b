"""A file of SQLite that is removed, or replaced by another, while it is in use."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from penstock import collect, from_iterable, read_table, write_table
from penstock.streams.base.errors import DatabaseUnavailable
from tests.helpers.until import until


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_reader_of_a_file_that_is_taken_away_says_so_instead_of_waiting_for_ever(
    tmp_path: Path, how: str
) -> None:
    done: list[Any] = []
    url = f"sqlite:///{tmp_path}/work.db"

    async def story() -> None:
        await from_iterable([{"n": 1}]).to(write_table(url)).run()
        running = read_table(url).to(collect(done)).start()
        await until(lambda: done == [{"n": 1}])
        other = f"sqlite:///{tmp_path}/other.db"
        await from_iterable([{"n": 2}]).to(write_table(other)).run()
        for name in os.listdir(tmp_path):
            if name.startswith("work.db"):
                os.remove(tmp_path / name)
        if how == "replaced":
            os.rename(tmp_path / "other.db", tmp_path / "work.db")
        async with asyncio.timeout(20):
            await running.wait()

    with pytest.raises(DatabaseUnavailable, match=r"work\.db was removed or replaced while it was"):
        asyncio.run(story())
