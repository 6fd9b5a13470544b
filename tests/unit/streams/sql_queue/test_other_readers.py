from __future__ import annotations

import asyncio

import pytest

from penstock.streams.sql_queue import ClaimTerms, open_store
from penstock.streams.sql_queue.other_readers import Elsewhere


@pytest.mark.parametrize(
    ("by", "said"), [(None, "1 due by now"), ("client", "1 with keys that others hold")]
)
def test_only_a_reader_of_keys_speaks_of_keys_that_others_hold(
    database: str, by: str | None, said: str
) -> None:
    async def look() -> str:
        store = open_store(database)
        await store.open()
        try:
            await store.put(['{"client": 1}'])
            elsewhere = Elsewhere(store, ClaimTerms("me", by=by))
            await elsewhere.look(holding=False)
        finally:
            await store.close()
        return elsewhere.text

    assert asyncio.run(look()) == said
