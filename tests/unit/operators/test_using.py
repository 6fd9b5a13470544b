from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock import Fixed, adaptive_flat_map, batch, from_iterable, retry, using
from penstock.streams.base.errors import BuildError, WrongType
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run


class Sessions:
    """Sessions that take a second to open, and say when they were opened and closed."""

    def __init__(self, failures: int = 0) -> None:
        self.log: list[tuple[float, str]] = []
        self.failures = failures

    def note(self, what: str) -> None:
        self.log.append((asyncio.get_running_loop().time(), what))

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[str]:
        self.note("opening")
        # Must be left by the task that has entered it.
        async with asyncio.timeout(None):
            await asyncio.sleep(1)
            if self.failures:
                self.failures -= 1
                raise ConnectionError("no session")
            try:
                yield "session"
            finally:
                self.note("closed")


async def fetch(session: str, url: str) -> str:
    await asyncio.sleep(1)
    return f"{url} by {session}"


async def fetch_all(session: str, urls: list[str]) -> list[str]:
    return [f"{url} by {session}" for url in urls]


def test_a_resource_is_opened_once_for_a_running_and_closed_at_its_end(run: Run) -> None:
    sessions, sink = Sessions(), MemorySink()
    operator = adaptive_flat_map(using(sessions.session)(fetch), Fixed(2))
    pipeline = from_iterable(["a", "b", "c"]).pipe(operator).to(sink)
    run(pipeline.run())
    assert sorted(sink.values) == ["a by session", "b by session", "c by session"]
    assert sessions.log == [(0, "opening"), (3, "closed")]
    run(pipeline.run())
    assert [what for _, what in sessions.log] == ["opening", "closed"] * 2


def test_each_stage_has_a_resource_of_its_own(run: Run) -> None:
    sessions, sink = Sessions(), MemorySink()
    session = using(sessions.session)
    stages = adaptive_flat_map(session(fetch), Fixed(1)), batch(session(fetch_all), 1)
    run(MemorySource(["a"]).pipe(*stages).to(sink).run())
    assert sink.values == ["a by session by session"]
    assert sorted(what for _, what in sessions.log) == ["closed", "closed", "opening", "opening"]


def test_nothing_is_opened_where_nothing_is_called(run: Run) -> None:
    sessions = Sessions()
    operator = adaptive_flat_map(using(sessions.session)(fetch))
    run(MemorySource([]).pipe(operator).to(MemorySink()).run())
    assert sessions.log == []


def test_an_error_in_opening_fails_the_call_and_the_next_one_opens_it_again(run: Run) -> None:
    sessions, sink = Sessions(failures=2), MemorySink()
    operator = adaptive_flat_map(using(sessions.session)(fetch), Fixed(2), on_error=retry(3))
    run(MemorySource(["a", "b"]).pipe(operator).to(sink).run())
    assert len(sink.values) == 2
    assert [what for _, what in sessions.log] == ["opening", "opening", "opening", "closed"]


def test_one_error_in_opening_fails_all_calls_that_wait_for_it(run: Run) -> None:
    sessions, source, sink = Sessions(failures=1), MemorySource(["a", "b", "c"]), MemorySink()
    operator = adaptive_flat_map(using(sessions.session)(fetch), Fixed(2), on_error="skip")
    report = run(source.pipe(operator).to(sink).run())
    assert (report.statistics["failed"], sink.values) == (2, ["c by session"])
    assert sessions.log == [(0, "opening"), (1, "opening"), (3, "closed")]


def test_calls_that_fail_together_open_it_again_once(run: Run) -> None:
    sessions = Sessions(failures=1)
    opened = using(sessions.session)(fetch).open()

    async def insist(url: str) -> str:
        try:
            return await opened(url)
        except ConnectionError:
            return await opened(url)

    async def story() -> None:
        assert await asyncio.gather(insist("a"), insist("b")) == ["a by session", "b by session"]
        await opened.close()

    run(story())
    assert sessions.log == [(0, "opening"), (1, "opening"), (3, "closed")]


def test_an_error_in_opening_stops_the_pipeline_by_default(run: Run) -> None:
    source = MemorySource(["a"])
    operator = adaptive_flat_map(using(Sessions(failures=1).session)(fetch))
    with pytest.raises(ConnectionError, match="no session"):
        run(source.pipe(operator).to(MemorySink()).run())
    assert source.failed == ["a"]


def test_an_error_in_closing_fails_the_run(run: Run) -> None:
    @asynccontextmanager
    async def session() -> AsyncGenerator[str]:
        yield "session"
        raise ConnectionError("not closed")

    operator = adaptive_flat_map(using(session)(fetch))
    with pytest.raises(ConnectionError, match="not closed"):
        run(MemorySource(["a"]).pipe(operator).to(MemorySink()).run())


@pytest.mark.parametrize(("after", "log"), [(0.5, ["opening"]), (1.5, ["opening", "closed"])])
def test_a_cancel_closes_it_after_the_calls_and_waits_for_no_opening(
    run: Run, after: float, log: list[str]
) -> None:
    sessions = Sessions()
    at_work: list[str] = []

    async def work(session: str, url: str) -> None:
        at_work.append(url)
        try:
            await asyncio.sleep(100)
        finally:
            assert "closed" not in [what for _, what in sessions.log]
            at_work.remove(url)

    async def story() -> None:
        source = MemorySource(["a", "b"])
        operator = adaptive_flat_map(using(sessions.session)(work), Fixed(2))
        running = source.pipe(operator).to(MemorySink()).start()
        await asyncio.sleep(after)
        running.cancel()
        await running.wait()
        assert asyncio.get_running_loop().time() == after
        assert (at_work, sorted(source.returned)) == ([], ["a", "b"])

    run(story())
    assert [what for _, what in sessions.log] == log


def test_a_caller_that_is_past_its_timeout_leaves_the_opening_to_the_next_one(run: Run) -> None:
    sessions, sink = Sessions(), MemorySink()

    async def quick(session: str, url: str) -> str:
        return url

    operator = adaptive_flat_map(
        using(sessions.session)(quick), Fixed(1), timeout=0.75, on_error="skip"
    )
    run(MemorySource(["a", "b"]).pipe(operator).to(sink).run())
    assert sink.values == ["b"]
    assert sessions.log == [(0, "opening"), (1, "closed")]


def test_it_may_be_called_without_a_pipeline(run: Run) -> None:
    sessions = Sessions()
    assert run(using(sessions.session)(fetch)("a")) == "a by session"
    assert sessions.log == [(0, "opening"), (2, "closed")]


def plain(session: str, url: str) -> str:
    return url


async def several(session: str, url: str) -> AsyncGenerator[str]:
    yield url


@pytest.mark.parametrize("handler", [plain, several])
def test_a_handler_that_is_no_async_def_is_refused(handler: Any) -> None:
    with pytest.raises(BuildError, match=handler.__name__):
        using(Sessions().session)(handler)


def test_a_resource_instead_of_what_makes_it_is_refused() -> None:
    with pytest.raises(BuildError, match="give a function that makes the resource"):
        using("a session")  # type: ignore[arg-type]


def test_what_is_no_async_context_manager_is_refused_by_name(run: Run) -> None:
    make: Callable[[], Any] = dict
    operator = adaptive_flat_map(using(make)(fetch))
    with pytest.raises(WrongType, match=r"using\(\.\.\.\): \{\} is not an async context manager"):
        run(MemorySource(["a"]).pipe(operator).to(MemorySink()).run())
