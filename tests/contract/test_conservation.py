"""Nothing vanishes: in = finished + dropped + failed + returned + waiting + in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import count as count_from
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as rx

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Inbox,
    Running,
    Shared,
    adaptive_flat_map,
    distinct_within,
    from_iterable,
    group_by,
    inbox,
    latency_histogram,
    objective,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import DrainTimeout, InboxClosed, Returned
from penstock.streams.limits import Limiter
from penstock.streams.testing import MemorySink, MemorySource, no_leaks, run_virtual
from tests.helpers.walks import examples

Actions = st.lists(
    st.tuples(
        st.floats(0, 2),
        st.sampled_from(["pause", "resume", "retune", "drain", "drain soon", "cancel", "look"]),
    ),
    max_size=8,
)


class Trouble(Exception):
    """The error that handlers and sinks raise here."""


def check(running: Running, source: Flowable[Any] | None = None) -> dict[str, Any]:
    """Check the law, and that the source, if given, has the same counts."""
    numbers = running.statistics()
    parts = ("finished", "failed", "returned", "waiting", "in_flight")
    assert all(numbers[part] >= 0 for part in parts)
    assert numbers["in"] == sum(numbers[part] for part in parts) + sum(numbers["dropped"].values())
    assert numbers["unfinished"] == numbers["waiting"] + numbers["in_flight"]
    if isinstance(source, MemorySource):
        assert numbers["unfinished"] == len(source.unsettled)
        assert numbers["returned"] == len(source.returned) + len(source.failed)
    for stage in numbers["stages"]:
        assert all(stage.get(part, 0) >= 0 for part in ("waiting", "in_flight", "undelivered"))
    return numbers


async def act(
    running: Running, source: MemorySource[Any] | Inbox[Any], actions: list[tuple[float, str]]
) -> None:
    for delay, action in actions:
        await asyncio.sleep(delay)
        check(running, source)
        if action == "pause":
            running.pause()
        elif action == "resume":
            running.resume()
        elif action == "retune" and running.statistics()["limit"] is not None:
            stage = next(s["stage"] for s in running.statistics()["stages"] if "limit" in s)
            running.retune(Fixed(int(delay * 2) + 1), stage)
        elif action == "drain":
            running.begin_drain()
        elif action == "drain soon":
            running.begin_drain(delay)
        elif action == "cancel":
            running.cancel()
        check(running, source)
    # Whatever was done, it ends.
    running.resume()


def _inner(
    kind: str, limit: Limiter, window: int, ordered: bool, policy: Any, fates: dict[int, str]
) -> Any:
    """The operators between source and sinks."""
    tried: Counter[int] = Counter()

    def outcome(value: int) -> int:
        tried[value] += 1
        fate = fates.get(value % 17, "fine")
        if fate == "fails" or (fate == "fails once" and tried[value] == 1):
            raise Trouble(value)
        return value

    async def waits(value: int) -> int:
        await asyncio.sleep(value % 5 * 0.3)
        return outcome(value)

    async def several(value: int) -> Any:
        for n in range(value % 4):
            await asyncio.sleep(0.2)
            yield (value, n)
        outcome(value)

    handlers: dict[str, Any] = {
        "async": waits,
        "plain": outcome,
        "later": lambda value: waits(value),
        "mixed": lambda value: waits(value) if value % 3 else outcome(value),
        "several": several,
        "timed": waits,
    }
    timeout = 0.7 if kind == "timed" else None
    return adaptive_flat_map(
        handlers[kind],
        limit,
        ordered=ordered,
        timeout=timeout,
        on_error=policy,
        window=window,
    )


Fates = st.dictionaries(st.integers(0, 16), st.sampled_from(["fails", "fails once"]), max_size=4)
Kinds = st.sampled_from(["async", "plain", "later", "mixed", "several", "timed"])


@examples(250)
@given(
    kind=Kinds,
    limit=st.integers(1, 4),
    ordered=st.booleans(),
    policy=st.sampled_from(["stop", "skip", "route", "retry", "retry and route"]),
    fates=Fates,
    shape=st.sampled_from(
        ["straight", "grouped", "fanned out", "distinct", "two stages", "batched"]
    ),
    sinks=st.lists(
        st.sampled_from(["fast", "slow", "latency", "judges", "breaks"]), min_size=1, max_size=3
    ),
    count=st.integers(0, 60),
    actions=Actions,
    letters=st.sampled_from([0.0, 0.5]),
    is_shared=st.booleans(),
)
def test_in_is_the_sum_of_all_that_became_of_it(
    kind: str,
    limit: int,
    ordered: bool,
    policy: str,
    fates: dict[int, str],
    shape: str,
    sinks: list[str],
    count: int,
    actions: list[tuple[float, str]],
    letters: float,
    is_shared: bool,
) -> None:
    dead = MemorySink(seconds=letters)
    policies: dict[str, Any] = {
        "stop": "stop",
        "skip": "skip",
        "route": route(dead),
        "retry": retry(2, Backoff(0.4, 1), then="skip"),
        "retry and route": retry(2, Backoff(0.4, 1), then=route(dead)),
    }
    shared = Shared(Fixed(limit))
    work = _inner(
        kind, shared if is_shared else Fixed(limit), limit, ordered, policies[policy], fates
    )
    # The slots of iterators that wait for room are no use to a stage below them.
    below = shared if is_shared and kind != "several" else Fixed(limit)
    groups = (group_by(lambda n: n % 3, 8), spread())
    shapes: dict[str, tuple[Any, ...]] = {
        "straight": (work,),
        "grouped": (*groups, work),
        "fanned out": (*groups, rx.flat_map(lambda n: from_iterable([n, n + 1][: n % 3])), work),
        "distinct": (distinct_within(1, by=lambda n: n % 20), *groups, work),
        "two stages": (
            work,
            adaptive_flat_map(lambda value: asyncio.sleep(0.1, value), below),
        ),
        "batched": (work, rx.buffer_with_count(3)),
    }
    made = {
        "slow": lambda: MemorySink(seconds=0.15),
        "latency": lambda: latency_histogram(None, report=None, by=repr, keys=1),
        "judges": lambda: objective("total < 1s", 0.9, where=chosen, name=f"{next(names)}"),
    }
    names = count_from(1)

    def chosen(value: Any) -> bool:
        if value == 13:
            raise Trouble("where")
        return True

    opened = [made.get(sink, MemorySink)() for sink in sinks]
    for name, sink in zip(sinks, opened, strict=True):
        if name == "breaks":
            sink.fail(Trouble("sink"))

    async def story() -> None:
        source = MemorySource(range(count))
        flow: Flowable[Any] = source.pipe(*shapes[shape])
        async with no_leaks():
            running = flow.to(*opened).start(drain_deadline=3)
            acting = asyncio.ensure_future(act(running, source, actions))
            with suppress(Trouble, DrainTimeout, TimeoutError):
                await running.wait()
            await acting
            numbers = check(running, source)
        assert numbers["unfinished"] == 0
        assert numbers["state"] == "closed"
        assert (shared.in_flight, shared.free) == (0, limit)
        # A source that acknowledges is notified of every event, and keeps those that are not done.
        left = numbers["returned"]
        assert len(source.acked) + left == numbers["in"]
        if running.report().exit_status == 0:
            assert left == 0
            assert numbers["in"] == count or any(
                action.startswith("drain") for _, action in actions
            )

    # Nothing here comes from outside: a stall is certain at once.
    run_virtual(story(), stall=0.01)


@examples(150)
@given(
    capacity=st.integers(1, 5),
    kind=Kinds,
    limit=st.integers(1, 4),
    policy=st.sampled_from(["stop", "skip", "route", "retry"]),
    fates=Fates,
    shape=st.sampled_from(["straight", "grouped", "distinct", "batched", "filtered"]),
    pauses=st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.5]), max_size=40),
    actions=Actions,
)
def test_every_put_hears_what_became_of_its_event(
    capacity: int,
    kind: str,
    limit: int,
    policy: str,
    fates: dict[int, str],
    shape: str,
    pauses: list[float],
    actions: list[tuple[float, str]],
) -> None:
    policies: dict[str, Any] = {
        "stop": "stop",
        "skip": "skip",
        "route": route(MemorySink(seconds=0.3)),
        "retry": retry(2, Backoff(0.4, 1), then="skip"),
    }
    work = _inner(kind, Fixed(limit), limit, False, policies[policy], fates)
    groups = (group_by(lambda n: n % 3, 8), spread())
    shapes: dict[str, tuple[Any, ...]] = {
        "straight": (work,),
        "grouped": (*groups, work),
        "distinct": (distinct_within(1, by=lambda n: n % 5), *groups, work),
        "batched": (work, rx.buffer_with_count(3)),
        "filtered": (rx.filter(lambda n: n % 2), work),
    }
    heard: Counter[str] = Counter()

    async def put(values: Inbox[int], value: int) -> None:
        try:
            await values.put(value, wait=True)
        except InboxClosed:
            heard["refused"] += 1
        except Returned:
            heard["returned"] += 1
        except (Trouble, TimeoutError):
            heard["failed"] += 1
        else:
            heard["done"] += 1

    async def story() -> None:
        values: Inbox[int] = inbox(capacity)
        async with no_leaks(), asyncio.TaskGroup() as puts:
            running = values.pipe(*shapes[shape]).to(MemorySink()).start(drain_deadline=3)
            acting = asyncio.ensure_future(act(running, values, actions))
            for value, pause in enumerate(pauses):
                puts.create_task(put(values, value))
                await asyncio.sleep(pause)
            await acting
            with suppress(Trouble, DrainTimeout, TimeoutError):
                await running.drain()
            numbers = check(running, values)
        assert numbers["unfinished"] == 0
        assert heard["done"] == numbers["finished"] + sum(numbers["dropped"].values())
        assert heard["failed"] == numbers["failed"]
        assert heard["returned"] == numbers["returned"]
        assert heard.total() == len(pauses)
        assert numbers["in"] == len(pauses) - heard["refused"]

    run_virtual(story(), stall=0.01)
