"""Pipelines whose types mypy and pyright must infer; this file is checked, not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, assert_type

from reactivex import operators as ops
from reactivex.subject import Subject

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Group,
    Pipeline,
    WorkPool,
    adaptive_flat_map,
    batch,
    chunk,
    collect,
    count_over_time,
    distinct_within,
    for_each,
    from_async_iterable,
    from_iterable,
    group_by,
    in_threads,
    lift,
    monitor,
    rate_limit,
    read_jsonl,
    read_lines,
    spread,
    using,
    violations,
)
from penstock import (
    ops as penstock_ops,
)
from penstock.streams.pipelines.flowable import Connectable
from penstock.streams.temporal import Period, Violation


class Order:
    def __init__(self, number: int, client: str) -> None:
        self.number = number
        self.client = client


class Receipt:
    def __init__(self, order: Order) -> None:
        self.order = order


class Session:
    """A resource."""


@asynccontextmanager
async def open_session() -> AsyncGenerator[Session]:
    yield Session()


async def send_by(session: Session, order: Order) -> Receipt:
    return Receipt(order)


async def send(order: Order) -> Receipt:
    return Receipt(order)


async def send_parts(order: Order) -> AsyncIterator[Receipt]:
    yield Receipt(order)


def send_now(order: Order) -> Receipt:
    return Receipt(order)


async def send_fields(order: dict[str, Any]) -> Receipt:
    return Receipt(Order(order["number"], order["client"]))


async def send_parts_of_fields(order: dict[str, Any]) -> AsyncIterator[Receipt]:
    yield await send_fields(order)


def send_fields_now(order: dict[str, Any]) -> Receipt:
    return Receipt(Order(order["number"], order["client"]))


async def fields_of(order: dict[str, Any]) -> dict[str, Any]:
    return order


async def send_all_fields(orders: list[dict[str, Any]]) -> list[Receipt]:
    return [send_fields_now(order) for order in orders]


def send_in_future(order: Order) -> asyncio.Future[Receipt]:
    return asyncio.ensure_future(send(order))


def send_awaited(order: Order) -> Awaitable[Receipt]:
    return send(order)


async def send_all(orders: list[Order]) -> list[Receipt]:
    return [Receipt(order) for order in orders]


def send_all_now(orders: list[Order]) -> list[Receipt]:
    return [Receipt(order) for order in orders]


async def send_some(orders: list[Order]) -> list[Receipt | Exception]:
    return [Receipt(order) if order.number else ValueError() for order in orders]


async def store_all(orders: list[Order]) -> None: ...


def store_all_now(orders: list[Order]) -> None: ...


receipts: list[Receipt] = []
orders = from_iterable([(1, "a"), (2, "b")]).pipe(ops.map(lambda pair: Order(pair[0], pair[1])))
assert_type(orders, Flowable[Order])

# The whole pipeline in one go, with no annotation on any lambda.
whole = from_iterable([(1, "a"), (2, "b")]).pipe(
    ops.map(lambda pair: Order(pair[0], pair[1])),
    distinct_within(10, by=lambda order: order.number),
    group_by(lambda order: order.client),
    spread(),
    adaptive_flat_map(send, Fixed(4)),
)
assert_type(whole, Flowable[Receipt])
assert_type(whole.to(collect(receipts), for_each(lambda receipt: None)), Pipeline)

# Step by step.
assert_type(orders.pipe(distinct_within(10, by="number")), Flowable[Order])
assert_type(orders.pipe(group_by(lambda order: order.client)), Flowable[Group[str, Order]])
assert_type(orders.pipe(group_by("client")), Flowable[Group[Any, Order]])
assert_type(orders.pipe(group_by("client"), spread()), Flowable[Order])
assert_type(orders.pipe(rate_limit(100)), Flowable[Order])
assert_type(orders.pipe(rate_limit(100, cost=lambda order: order.number)), Flowable[Order])
assert_type(
    orders.pipe(monitor("G p", by="client", p=lambda order: order.number > 1)), Flowable[Order]
)
assert_type(orders.pipe(monitor("G p", p={"client": "a"})), Flowable[Order])
assert_type(
    orders.pipe(violations("G p", by=lambda order: order.client, p=lambda order: order.number)),
    Flowable[Violation[Order]],
)
assert_type(orders.pipe(count_over_time(begin="day", lateness=1)), Flowable[Period])
assert_type(orders.pipe(count_over_time("client")), Flowable[Period])
assert_type(orders.pipe(adaptive_flat_map(send_parts)), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(send, 4, key="client")), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(send, key=lambda order: order.client)), Flowable[Receipt])
assert_type(read_jsonl().pipe(adaptive_flat_map(send_fields, key="client")), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(send_now)), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(in_threads(2)(send_now))), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(using(open_session)(send_by))), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(send_in_future)), Flowable[Receipt])
assert_type(orders.pipe(adaptive_flat_map(send_awaited)), Flowable[Receipt])

# Handlers of values with Any in their type.
assert_type(read_jsonl().pipe(adaptive_flat_map(send_fields)), Flowable[Receipt])
assert_type(read_jsonl().pipe(adaptive_flat_map(send_parts_of_fields)), Flowable[Receipt])
assert_type(read_jsonl().pipe(adaptive_flat_map(send_fields_now)), Flowable[Receipt])
assert_type(read_jsonl().pipe(adaptive_flat_map(fields_of)), Flowable[dict[str, Any]])
assert_type(
    read_jsonl().pipe(
        distinct_within(10, by="uuid"),
        group_by("client_id"),
        spread(),
        adaptive_flat_map(send_fields, ordered=True),
    ),
    Flowable[Receipt],
)
assert_type(read_jsonl().pipe(adaptive_flat_map(in_threads(2)(send_fields_now))), Flowable[Receipt])
assert_type(read_jsonl().pipe(batch(send_all_fields)), Flowable[Receipt])

assert_type(orders.pipe(batch(send_all)), Flowable[Receipt])
assert_type(orders.pipe(batch(send_all_now, 100)), Flowable[Receipt])
assert_type(orders.pipe(batch(send_some)), Flowable[Receipt])
assert_type(orders.pipe(batch(store_all)), Flowable[None])
assert_type(orders.pipe(batch(store_all_now)), Flowable[None])
assert_type(orders.pipe(batch(in_threads(2)(send_all_now))), Flowable[Receipt])
assert_type(orders.pipe(batch(in_threads(2)(store_all_now))), Flowable[None])
assert_type(
    orders.pipe(group_by("client"), spread(), batch(send_all, parallel=2)), Flowable[Receipt]
)
assert_type(orders.pipe(chunk(3, 1.5)), Flowable[list[Order]])
assert_type(from_iterable([[1, 2], [3]]).pipe(spread(2)), Flowable[int])


async def pages(site: str) -> AsyncIterator[str]:
    yield site


assert_type(from_iterable([pages("a"), pages("b")]).pipe(spread(2)), Flowable[str])
assert_type(
    orders.pipe(group_by("client", each=lambda group: group.pairwise(), idle=60), spread()),
    Flowable[tuple[Order, Order]],
)

# The fluent spellings.
assert_type(orders.map(lambda order: order.number), Flowable[int])
assert_type(orders.filter(lambda order: order.number > 1), Flowable[Order])
assert_type(orders.flat_map(lambda order: [order.client]), Flowable[str])
assert_type(orders.pairwise(), Flowable[tuple[Order, Order]])
assert_type(orders.scan(lambda total, order: total + order.number, 0), Flowable[int])
assert_type(orders.take(3).skip(1).do_action(lambda order: None), Flowable[Order])
assert_type(orders.debounce(1).retry(2).catch(orders).delay(3), Flowable[Order])
assert_type(orders.timeout(1, orders).take_while(bool).last(), Flowable[Order])
assert_type(orders.buffer_with_time(1).count(), Flowable[int])
assert_type(orders.share().switch_map(lambda order: from_iterable([order.number])), Flowable[int])
assert_type(orders.map(lambda order: order.number).min(), Flowable[int])

# Operators of Rx that are stages of this library take its options, whichever checker is asked.
assert_type(orders.pipe(penstock_ops.retry(3, Backoff(0.1))), Flowable[Order])
assert_type(orders.pipe(penstock_ops.share(prefetch=8)), Flowable[Order])
assert_type(orders.pipe(penstock_ops.group_by("client"), penstock_ops.spread()), Flowable[Order])

# Those that read several streams know what each of them has.
names = from_iterable(["Ada"])
assert_type(orders.pipe(penstock_ops.merge(names)), Flowable[Order | str])
assert_type(orders.pipe(penstock_ops.merge(names, names, prefetch=8)), Flowable[Order | str])
assert_type(orders.pipe(penstock_ops.concat(names)), Flowable[Order | str])
assert_type(orders.pipe(penstock_ops.catch(names)), Flowable[Order | str])
assert_type(orders.pipe(penstock_ops.start_with("first")), Flowable[Order | str])
assert_type(orders.pipe(penstock_ops.zip(names)), Flowable[tuple[Order, str]])
assert_type(orders.pipe(penstock_ops.zip(names, orders)), Flowable[tuple[Order, str, Order]])
assert_type(orders.pipe(penstock_ops.combine_latest(names)), Flowable[tuple[Order, str]])
assert_type(orders.pipe(penstock_ops.with_latest_from(names)), Flowable[tuple[Order, str]])
assert_type(orders.merge(names), Flowable[Order | str])
assert_type(orders.concat(names), Flowable[Order | str])
assert_type(orders.zip(names, prefetch=8), Flowable[tuple[Order, str]])
assert_type(orders.combine_latest(names, names), Flowable[tuple[Order, str, str]])
assert_type(orders.with_latest_from(names), Flowable[tuple[Order, str]])


def streams(order: Order) -> Flowable[str]:
    return from_iterable([order.client])


soon: asyncio.Future[str] = asyncio.get_event_loop().create_future()


def words(order: Order) -> list[str]:
    return order.client.split()


assert_type(orders.pipe(penstock_ops.flat_map(streams)), Flowable[str])
assert_type(orders.pipe(penstock_ops.flat_map(lambda order: names)), Flowable[str])
assert_type(orders.pipe(penstock_ops.flat_map(lambda order: names, 2)), Flowable[str])
assert_type(orders.flat_map(lambda order: names), Flowable[str])
assert_type(orders.pipe(penstock_ops.flat_map(lambda order: soon)), Flowable[str])
assert_type(orders.flat_map(lambda order: soon), Flowable[str])
assert_type(orders.pipe(penstock_ops.flat_map(words)), Flowable[str])
assert_type(orders.pipe(penstock_ops.flat_map(lambda order: [order.client])), Flowable[str])
assert_type(orders.pipe(penstock_ops.concat_map(lambda order: names)), Flowable[str])
assert_type(orders.pipe(penstock_ops.concat_map(words)), Flowable[str])
assert_type(orders.pipe(penstock_ops.switch_map(streams)), Flowable[str])
assert_type(orders.pipe(penstock_ops.switch_map(lambda order: names)), Flowable[str])
assert_type(orders.pipe(penstock_ops.exhaust_map(streams)), Flowable[str])
assert_type(orders.exhaust_map(streams), Flowable[str])
# The methods take the options of the operators.
assert_type(orders.retry(3, Backoff(0.1)), Flowable[Order])
assert_type(orders.retry(retry_count=3, backoff=Backoff(0.1)), Flowable[Order])
assert_type(orders.share(prefetch=8), Flowable[Order])
assert_type(orders.flat_map(lambda order: names, 4), Flowable[str])
assert_type(orders.flat_map(words, max_concurrent=4), Flowable[str])
assert_type(orders.map(streams).merge_all(max_concurrent=3), Flowable[Any])
assert_type(orders.concat_map(words), Flowable[str])
assert_type(orders.concat_map(lambda order: soon), Flowable[str])
assert_type(orders.switch_map(lambda order: soon), Flowable[str])
assert_type(orders.switch_map_indexed(lambda order, index: names), Flowable[str])
assert_type(orders.switch_map_indexed(mapper_indexed=lambda order, index: names), Flowable[str])
assert_type(orders.flat_map_latest(lambda order: soon), Flowable[str])
assert_type(orders.catch(lambda error, source: soon), Flowable[Order | str])
assert_type(orders.on_error_resume_next(lambda error: names), Flowable[Order | str])
assert_type(orders.partition(bool, prefetch=3), list[Flowable[Order]])
assert_type(orders.publish(), Connectable[Order])
assert_type(orders.publish(8), Connectable[Order])
assert_type(orders.publish(prefetch=8), Connectable[Order])
assert_type(orders.publish(lambda shared: shared.zip(shared)), Flowable[tuple[Order, Order]])
assert_type(orders.publish_value(0, prefetch=3), Connectable[Order])
assert_type(orders.publish_value(0, lambda shared: shared.map(send_now)), Flowable[Receipt])
assert_type(orders.replay(3, prefetch=4), Connectable[Order])
assert_type(orders.replay(3, mapper=lambda shared: shared.map(send_now)), Flowable[Receipt])
assert_type(orders.multicast(Subject[Order](), prefetch=4), Connectable[Order])
assert_type(
    orders.multicast(
        subject_factory=lambda scheduler: Subject[Order](),
        mapper=lambda shared: shared.map(send_now),
    ),
    Flowable[Receipt],
)
orders.publish(8).connect().dispose()

# What is connectable has `connect()` behind pipe too.
orders.pipe(penstock_ops.publish()).connect().dispose()
orders.pipe(penstock_ops.publish(8)).connect().dispose()
orders.pipe(penstock_ops.publish_value(0)).connect().dispose()
orders.pipe(penstock_ops.replay(3)).connect().dispose()
orders.pipe(penstock_ops.multicast(Subject[Order]())).connect().dispose()
orders.pipe(ops.map(lambda order: order.number), penstock_ops.publish()).connect().dispose()
assert_type(orders.pipe(penstock_ops.publish(), penstock_ops.ref_count()), Flowable[Order])
assert_type(orders.pipe(penstock_ops.publish(), ops.map(send_now)), Flowable[Receipt])
assert_type(
    orders.pipe(penstock_ops.publish(lambda shared: shared.map(send_now))), Flowable[Receipt]
)

assert_type(orders.pipe(penstock_ops.buffer_with_count(3)), Flowable[list[Order]])
assert_type(orders.pipe(penstock_ops.buffer_with_time(1)), Flowable[list[Order]])
assert_type(orders.pipe(lift(penstock_ops.buffer_with_time(1), hold=9000)), Flowable[list[Order]])
assert_type(orders.pipe(lift(ops.buffer_with_time(1), hold=9000)), Flowable[list[Order]])


async def numbers() -> AsyncIterator[int]:
    yield 1


async def loop() -> None:
    async for receipt in whole:
        assert_type(receipt, Receipt)
    async for number in from_async_iterable(numbers):
        assert_type(number, int)
    assert_type(await whole.to_list(limit=3), list[Receipt])


# Lines, and values decoded from them.
assert_type(read_jsonl(), Flowable[dict[str, Any]])
assert_type(read_lines(), Flowable[str])
assert_type(read_jsonl(decode=Order), Flowable[Order])
assert_type(read_lines(decode=bytes.decode), Flowable[str])
assert_type(read_lines(decode=lambda line: len(line)), Flowable[int])


# Whether an error means overload, or the seconds to hold back, as for adaptive_flat_map.
def wait_after(error: Exception) -> bool | float:
    return 2.5 if isinstance(error, TimeoutError) else False


assert_type(WorkPool().work(send, overload=wait_after), Pipeline)
