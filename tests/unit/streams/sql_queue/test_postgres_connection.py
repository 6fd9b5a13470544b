from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from penstock.streams.sql_queue import open_store
from penstock.streams.sql_queue.postgres import statements as postgres_sql


def test_a_connection_that_is_given_up_while_it_is_made_is_closed(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = open_store(postgres)
        await store.open()
        monkeypatch.setattr(postgres_sql, "PLAN_BY_INDEX", "SELECT pg_sleep(30)")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.changed(10.0), 0.2)
        await store.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(story())
        gc.collect()
    assert [str(warning.message) for warning in told] == []
