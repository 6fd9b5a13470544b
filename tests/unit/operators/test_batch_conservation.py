"""Nothing vanishes in batches: whatever happens to its batch, every event ends exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as rx

from penstock import (
    Backoff,
    Flowable,
    adaptive_flat_map,
    batch,
    from_iterable,
    group_by,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import BatchContractError, DrainTimeout
from penstock.streams.testing import MemorySink, MemorySource, no_leaks, run_virtual
from tests.contract.test_conservation import Actions, Trouble, act, check
from tests.helpers.walks import examples

Fates = st.dictionaries(
    st.integers(0, 16),
    st.sampled_from(["raises", "raises once", "is an error", "is an error once", "is lost"]),
    max_size=4,
)


def handler_of(kind: str, fates: dict[int, str]) -> Any:
    tried: Counter[int] = Counter()

    def outcomes(values: list[int]) -> list[Any]:
        results: list[Any] = []
        raised: Exception | None = None
        for value in values:
            tried[value] += 1
            fate = fates.get(value % 17, "fine")
            again = tried[value] > 1 and "once" in fate
            if fate.startswith("raises") and not again:
                raised = Trouble(value)
            elif fate.startswith("is an error") and not again:
                results.append(Trouble(value))
            elif fate != "is lost":
                results.append(value)
        if raised is not None:
            raise raised
        return results

    async def waits(values: list[int]) -> list[Any]:
        await asyncio.sleep(0.2 + sum(values) % 5 * 0.1)
        return outcomes(values)

    def later(values: list[int]) -> Any:
        return waits(values)

    kinds: dict[str, Any] = {"plain": outcomes, "later": later}
    return kinds.get(kind, waits)


def third(n: int) -> int:
    return n % 3


def parity(n: int) -> int:
    return n % 2


async def passing(value: int) -> int:
    return await asyncio.sleep(0.1, value)


def some_of(n: int) -> Flowable[int]:
    return from_iterable([n, n + 1][: n % 3])


@examples(150)
@given(
    kind=st.sampled_from(["async", "plain", "later", "timed"]),
    parallel=st.integers(1, 3),
    max_size=st.sampled_from([1, 2, 5, 100]),
    policy=st.sampled_from(["stop", "skip", "route", "retry", "retry and route"]),
    fates=Fates,
    shape=st.sampled_from(["straight", "grouped", "nested", "fanned out", "two stages"]),
    slow=st.booleans(),
    count=st.integers(0, 60),
    actions=Actions,
)
def test_in_is_the_sum_of_all_that_became_of_it(
    kind: str,
    parallel: int,
    max_size: int,
    policy: str,
    fates: dict[int, str],
    shape: str,
    slow: bool,
    count: int,
    actions: list[tuple[float, str]],
) -> None:
    dead = MemorySink()
    policies: dict[str, Any] = {
        "stop": "stop",
        "skip": "skip",
        "route": route(dead),
        "retry": retry(2, Backoff(0.4, 1), then="skip"),
        "retry and route": retry(2, Backoff(0.4, 1), then=route(dead)),
    }
    work: Any = batch(
        handler_of(kind, fates),
        max_size,
        parallel=parallel,
        timeout=0.5 if kind == "timed" else None,
        on_error=policies[policy],
    )
    groups: Any = (group_by(third, 8), spread())
    shapes: dict[str, tuple[Any, ...]] = {
        "straight": (work,),
        "grouped": (*groups, work),
        "nested": (*groups, group_by(parity, 8), spread(), work),
        "fanned out": (*groups, rx.flat_map(some_of), work),
        "two stages": (
            *groups,
            work,
            adaptive_flat_map(passing),
        ),
    }
    sink = MemorySink(seconds=0.15) if slow else MemorySink()

    async def story() -> None:
        source = MemorySource(range(count))
        flow: Flowable[Any] = source.pipe(*shapes[shape])
        async with no_leaks():
            running = flow.to(sink).start(drain_deadline=3)
            acting = asyncio.ensure_future(act(running, source, actions))
            with suppress(Trouble, BatchContractError, DrainTimeout, TimeoutError):
                await running.wait()
            await acting
            numbers = check(running, source)
        assert numbers["unfinished"] == 0
        assert numbers["state"] == "closed"
        left = numbers["returned"]
        assert len(source.acked) + left == numbers["in"]
        if running.report().exit_status == 0:
            assert left == 0

    # Nothing here comes from outside: a stall is certain at once.
    run_virtual(story(), stall=0.01)
