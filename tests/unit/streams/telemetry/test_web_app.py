"""One application for several pipelines over HTTP, and its collector in another registry."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import log2
from typing import Any

import pytest
import uvicorn
from aiohttp import ClientSession
from fastapi import FastAPI
from prometheus_client import generate_latest as plain_text
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from penstock import (
    Fixed,
    Inbox,
    adaptive_flat_map,
    for_each,
    from_iterable,
    inbox,
    latency_histogram,
    web_app,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.telemetry.collector import Collector
from penstock.streams.testing.plugin import Run

HEADERS_2 = {"Accept": "application/openmetrics-text; version=2.0.0, text/plain;q=0.5"}


def samples_of(text: str) -> dict[tuple[str, ...], float]:
    found = [
        ((sample.name, *sample.labels.values()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    # A scraper refuses a series that comes twice.
    assert max(Counter(name for name, _ in found).values()) == 1
    return dict(found)


@asynccontextmanager
async def mounted(pages: Any) -> AsyncGenerator[ClientSession]:
    """A server that has the application under a path, and no pipeline yet."""
    app = FastAPI()
    app.mount("/penstock", pages)
    config = uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    address = server.servers[0].sockets[0].getsockname()
    async with ClientSession(f"http://127.0.0.1:{address[1]}/penstock/") as client:
        yield client
    server.should_exit = True
    await task


async def answered(client: ClientSession, path: str, **headers: str) -> tuple[int, str]:
    async with client.get(path, headers=headers) as response:
        return response.status, await response.text()


def test_it_is_mounted_before_any_pipeline_and_shows_each_that_is_added() -> None:
    async def story() -> None:
        pages = web_app()
        first: Inbox[int] = inbox(9)
        second: Inbox[int] = inbox(9)
        async with mounted(pages) as client:
            # Nothing that was added does not take events.
            assert await answered(client, "readyz") == (200, "ready\n")
            assert await answered(client, "pipelines") == (200, "[]")
            status, text = await answered(client, "metrics")
            assert (status, text) == (200, "# EOF\n")
            async with (
                first.pipe(adaptive_flat_map(lambda n: n)).to(for_each(bool)).start() as one,
                second.to(for_each(bool)).start() as two,
            ):
                pages.add(one, "bills")
                pages.add(two, "mails")
                for n in range(3):
                    await first.put(n, wait=True)
                assert await answered(client, "readyz") == (200, "ready\n")
                _, text = await answered(client, "metrics")
                found = samples_of(text)
                assert found["penstock_events_in_total", "bills"] == 3
                assert found["penstock_events_in_total", "mails"] == 0
                # That of one pipeline has the same label.
                _, alone = await answered(client, "bills/metrics")
                assert samples_of(alone)["penstock_events_in_total", "bills"] == 3
                assert "mails" not in alone
                for path in ("", "all.js", "bills/", "bills/page.js", "mails/"):
                    assert (await answered(client, path))[0] == 200
                # Without the slash it is the same page, whose own files are beside it.
                async with client.get("bills") as response:
                    assert (response.status, response.url.path) == (200, "/penstock/bills/")
                assert (await answered(client, "other"))[0] == 404
                async with client.get("bills/stream") as response:
                    assert '"title":"bills"' in (await response.content.readline()).decode()
                async with client.get("pipelines") as response:
                    listed = {each["name"]: each["in"] for each in await response.json()}
                assert listed == {"bills": 3, "mails": 0}
                assert await answered(client, "other/") == (404, "no pipeline of this name\n")
                two.pause()
                assert await answered(client, "readyz") == (503, "no\n")
            # What has ended keeps its numbers until another one has its name.
            _, text = await answered(client, "metrics")
            assert samples_of(text)["penstock_events_in_total", "bills"] == 3
            async with first.to(for_each(bool)).start() as one:
                pages.add(one, "bills")
                _, text = await answered(client, "metrics")
                assert samples_of(text)["penstock_events_in_total", "bills"] == 0

    asyncio.run(asyncio.wait_for(story(), 30))


def test_without_the_token_nothing_is_shown_but_health() -> None:
    async def story() -> None:
        pages = web_app(host="0.0.0.0", token="only-for-us")
        box: Inbox[int] = inbox(9)
        async with mounted(pages) as client, box.to(for_each(bool)).start() as running:
            pages.add(running, "bills")
            for path in ("metrics", "pipelines", "bills", "bills/metrics", "bills/stream"):
                assert (await answered(client, path))[0] == 401
                if path.endswith("metrics"):
                    right = {"Authorization": "Bearer only-for-us"}
                    assert (await answered(client, path, **right))[0] == 200
            assert (await answered(client, "readyz"))[0] == 200
            assert (await answered(client, "metrics", Host="evil.example"))[0] == 421

    asyncio.run(asyncio.wait_for(story(), 30))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "metrics", "../x", None, ".x"])
def test_a_name_that_is_no_part_of_an_address_is_refused(run: Run, name: Any) -> None:
    async def story() -> None:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            with pytest.raises(BuildError, match=r"letters, digits"):
                web_app().add(running, name)

    run(story())


def test_a_name_in_use_and_a_run_that_has_begun_are_refused(run: Run) -> None:
    async def story() -> None:
        pages = web_app()
        pipeline = from_iterable([1]).to(for_each(bool))
        async with pipeline.start() as one, pipeline.start() as two:
            pages.add(one, "a")
            with pytest.raises(BuildError, match="has not ended: give each a name of its own"):
                pages.add(two, "a")
            await asyncio.sleep(0)
            with pytest.raises(BuildError, match="right after start"):
                pages.add(two, "b")

    run(story())


def test_a_registry_of_ones_own_has_the_metrics_of_all_pipelines() -> None:
    async def story() -> None:
        pages = web_app()
        registry = CollectorRegistry()
        registry.register(pages.collector)
        pipeline = from_iterable(range(3)).to(for_each(bool))
        async with pipeline.start() as one, pipeline.start() as two:
            pages.add(one, "a")
            pages.add(two, "b")
            await one.wait()
            await two.wait()
            found = samples_of(generate_latest(registry).decode())
            assert found["penstock_events_total", "finished", "a"] == 3
            assert found["penstock_events_total", "finished", "b"] == 3
            # The format 0.0.4 has no form for native histograms.
            assert "schema" not in plain_text(registry).decode()

    asyncio.run(story())


def test_a_scrape_in_another_thread_reads_the_numbers_on_the_loop() -> None:
    threads: list[int] = []

    async def story() -> bytes:
        pages = web_app()
        registry = CollectorRegistry()
        registry.register(pages.collector)
        box: Inbox[int] = inbox(9)
        async with box.to(for_each(bool)).start() as running:
            pages.add(running, "a")
            await box.put(1, wait=True)
            statistics = running.statistics

            def noted() -> dict[str, Any]:
                threads.append(threading.get_ident())
                return statistics()

            running.statistics = noted  # type: ignore[method-assign]
            text = await asyncio.to_thread(generate_latest, registry)
            running.begin_drain()
        return bytes(text)

    assert samples_of(asyncio.run(story()).decode())["penstock_events_in_total", "a"] == 1
    assert set(threads) == {threading.get_ident()}


def test_native_histograms_are_written_for_scrapers_that_know_them(run: Run) -> None:
    seconds = [0.0, 0.001, 0.0011, 0.5, 0.5, 3.0]

    async def story() -> tuple[str, str, str, str]:
        collector = Collector(show_values=False)
        stream = from_iterable(seconds).pipe(adaptive_flat_map(asyncio.sleep, Fixed(9)))
        async with stream.to(latency_histogram(None, report=None)).start() as running:
            collector.add(running, "a")
        texts = (collector.exposition(accept) for accept in (HEADERS_2["Accept"], "text/plain"))
        (new, new_type), (old, old_type) = texts
        return new.decode(), new_type, old.decode(), old_type

    new, new_type, old, old_type = run(story())
    assert "version=2.0.0" in new_type
    assert "version=1.0.0" in old_type
    assert "_bucket" in old
    assert "schema" not in old
    (line,) = re.findall(r"^penstock_latency_seconds{(.*part=.service.*)} {(.*)}$", new, re.M)
    assert 'pipeline="a"' in line[0]
    # Not by the parser of the client library, which knows no span that begins below 1 second.
    numbers = dict(re.findall(r"(\w+):(-?[\d.e-]+)", line[1]))
    assert (numbers["count"], numbers["zero_count"], numbers["schema"]) == ("6", "1", "3")
    assert float(numbers["sum"]) == pytest.approx(sum(seconds), rel=0.001)
    lists: dict[str, str] = dict(re.findall(r"(\w+):\[([^]]*)\]", line[1]))
    # Read as the documentation of Prometheus says: spans, and differences of counts.
    counts: dict[int, int] = {}
    at = count = 0
    deltas = iter(map(int, lists["positive_deltas"].split(",")))
    for span in lists["positive_spans"].split(","):
        offset, length = map(int, span.split(":"))
        at += offset
        for _ in range(length):
            count += next(deltas)
            counts[at] = count
            at += 1
    assert list(deltas) == []
    assert sum(counts.values()) + 1 == 6
    for value in seconds[1:]:
        # Bounds are 9 % apart, and the histogram's cells a tenth of a percent wide.
        assert any(abs(bucket / 8 - log2(value)) <= 1 / 8 + 0.002 for bucket in counts)
    assert counts[-8] == 2  # 0.5 is the upper bound of its bucket
