"""The lines that a live page reads."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from penstock import for_each, from_async_iterable
from penstock.streams.telemetry.document import Document
from penstock.streams.telemetry.feed import Feed
from penstock.streams.testing.plugin import Run


def test_a_page_that_is_opened_later_shows_no_workers_of_earlier(run: Run) -> None:
    asked: list[int] = []

    async def fleet() -> dict[str, Any]:
        asked.append(len(asked) + 1)
        return {"letters": asked[-1]}

    async def events() -> Any:
        await asyncio.sleep(100)
        yield 1

    async def letters_in(feed: Feed, seconds: float) -> list[int | None]:
        """What the lines of one page say, one a second."""
        seen: list[int | None] = []
        lines = feed.lines()
        try:
            async with asyncio.timeout(seconds):
                async for line in lines:
                    said = json.loads(line)
                    now = said.get("now", said.get("change"))
                    seen.append(now.get("fleet", {}).get("letters"))
        except TimeoutError:
            pass
        await lines.aclose()
        return seen

    async def story() -> None:
        running = from_async_iterable(events).to(for_each(bool)).start()
        recorder = running.record()
        feed = Feed(Document(running, recorder, None, show_values=False), recorder, fleet)
        async with running:
            assert await letters_in(feed, 3.5) == [None, 1, None, 2]
            await asyncio.sleep(60)
            first, second, *_ = await letters_in(feed, 3.5)
            assert (first, second) == (None, 3)
            running.cancel()

    run(story())
    assert asked == [1, 2, 3, 4]
