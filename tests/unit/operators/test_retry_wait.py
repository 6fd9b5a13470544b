"""`retry(wait=)`: how long an event waits for its next attempt, as its error asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Backoff,
    Fixed,
    adaptive_flat_map,
    batch,
    group_by,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import BadWait, BuildError
from penstock.streams.testing import MemorySink, MemorySource
from penstock.streams.testing.plugin import Run

Begun = list[tuple[float, str]]


class Refused(Exception):
    """Come back after so many seconds."""

    def __init__(self, seconds: Any) -> None:
        self.seconds = seconds


def asked(error: Exception) -> float | None:
    return error.seconds if isinstance(error, Refused) else None


class Sites:
    """Takes a second for a page, and refuses the first request of "a1" as told."""

    def __init__(self, error: Exception) -> None:
        self.begun: Begun = []
        self._error: Exception | None = error

    async def fetch(self, page: str) -> str:
        self.begun.append((asyncio.get_running_loop().time(), page))
        await asyncio.sleep(1)
        error = self._error
        if page == "a1" and error is not None:
            self._error = None
            raise error
        return page

    async def fetch_all(self, pages: list[str]) -> list[str]:
        return [await self.fetch(page) for page in pages]


BACKOFF = Backoff(0.5, jitter=0)


@pytest.mark.parametrize("make", ["adaptive_flat_map", "batch"])
def test_an_event_waits_as_long_as_its_error_asks_with_its_group_and_no_other(
    run: Run, make: str
) -> None:
    sites = Sites(Refused(7))
    policy = retry(3, BACKOFF, wait=asked)
    working: Any = (
        adaptive_flat_map(sites.fetch, Fixed(2), on_error=policy)
        if make == "adaptive_flat_map"
        else batch(sites.fetch_all, 1, parallel=2, on_error=policy)
    )
    sink = MemorySink()
    stages = group_by(lambda page: page[0]), spread(), working
    run(MemorySource(["a1", "a2", "b1", "b2", "b3"]).pipe(*stages).to(sink).run())
    assert sites.begun == [
        (0, "a1"),
        (0, "b1"),
        (1, "b2"),
        (2, "b3"),
        (8, "a1"),
        (9, "a2"),
    ]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        # The backoff is the least, and what is asked for is honoured for a minute at most.
        (Refused(0.25), 1.5),
        (Refused(2), 3),
        (Refused(3600), 61),
        (Refused(None), 1.5),
        (ValueError(), 1.5),
    ],
)
def test_the_wait_is_the_longer_one_of_what_is_asked_and_the_backoff_and_a_minute_at_most(
    run: Run, error: Exception, again: float
) -> None:
    sites = Sites(error)
    operator = adaptive_flat_map(sites.fetch, Fixed(1), on_error=retry(2, BACKOFF, wait=asked))
    run(MemorySource(["a1"]).pipe(operator).to(MemorySink()).run())
    assert sites.begun == [(0, "a1"), (again, "a1")]


def test_each_attempt_waits_as_long_as_its_own_error_asks(run: Run) -> None:
    errors: list[Exception] = [Refused(9), ValueError(), Refused(4)]
    begun: list[float] = []

    async def fetch(page: str) -> None:
        begun.append(asyncio.get_running_loop().time())
        if errors:
            raise errors.pop(0)

    operator = adaptive_flat_map(fetch, Fixed(1), on_error=retry(9, BACKOFF, wait=asked))
    run(MemorySource(["a1"]).pipe(operator).to(MemorySink()).run())
    assert begun == [0, 9, 10, 14]


@pytest.mark.parametrize("answer", [-1, math.nan, True, "5", b"", [], object()])
def test_an_answer_that_is_no_time_stops_the_pipeline_by_name(run: Run, answer: Any) -> None:
    source = MemorySource(["a1"])
    operator = adaptive_flat_map(
        Sites(Refused(answer)).fetch, Fixed(1), on_error=retry(3, BACKOFF, "skip", wait=asked)
    )
    with pytest.raises(BadWait, match=r"retry\(wait=\) returned") as raised:
        run(source.pipe(operator).to(MemorySink()).run())
    assert raised.value.__notes__ == [
        "in the function given as wait= of stage 2 'adaptive_flat_map'"
    ]
    assert source.returned == ["a1"]


def raises(error: Exception) -> float:
    raise KeyError("retry-after")


@pytest.mark.parametrize("handler", ["async", "plain", "batch"])
def test_a_function_that_raises_stops_the_pipeline_and_the_event_is_returned(
    run: Run, handler: str
) -> None:
    def fetch(page: str) -> None:
        raise Refused(1)

    async def fetch_later(page: str) -> None:
        raise Refused(1)

    async def fetch_all(pages: list[str]) -> list[None]:
        raise Refused(1)

    policy = retry(3, BACKOFF, wait=raises)
    operators: dict[str, Callable[[], Any]] = {
        "async": lambda: adaptive_flat_map(fetch_later, Fixed(1), on_error=policy),
        "plain": lambda: adaptive_flat_map(fetch, on_error=policy),
        "batch": lambda: batch(fetch_all, 1, on_error=policy),
    }
    source = MemorySource(["a1"])
    with pytest.raises(KeyError, match="retry-after") as raised:
        run(source.pipe(operators[handler]()).to(MemorySink()).run())
    assert "in the function given as wait= of stage 2" in raised.value.__notes__[-1]
    assert source.returned == ["a1"]


def test_a_function_is_needed() -> None:
    with pytest.raises(BuildError, match=r"retry\(wait=5\): give a function"):
        retry(3, wait=5)  # type: ignore[arg-type]


def test_an_event_without_attempts_left_asks_for_no_wait(run: Run) -> None:
    letters = MemorySink()
    operator = adaptive_flat_map(
        Sites(Refused(5)).fetch, Fixed(1), on_error=retry(1, then=route(letters), wait=raises)
    )
    report = run(MemorySource(["a1"]).pipe(operator).to(MemorySink()).run())
    assert (report.exit_status, len(letters.values)) == (3, 1)
