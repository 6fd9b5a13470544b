"""Windows and states, whose results mypy and pyright must infer; this file is checked, not run."""

from __future__ import annotations

from typing import Any, assert_type

from penstock import (
    Context,
    Flowable,
    Store,
    Window,
    agg,
    calendar,
    database_table,
    event_time,
    from_iterable,
    join,
    lookup,
    read_jsonl,
    session,
    sliding,
    stateful,
    table,
    tumbling,
    window,
)


class Order:
    client = "a"
    at = 0.0
    cents = 0


def longest(found: str, order: Order) -> str:
    return max(found, order.client)


class Median:
    """An aggregate of the user's own."""

    def start(self) -> list[float]:
        return []

    def add(self, acc: list[float], value: Order, time: float, /) -> list[float]:
        return [*acc, value.cents]

    def merge(self, acc: list[float], other: list[float], /) -> list[float]:
        return acc + other

    def result(self, acc: list[float], /) -> float:
        return sorted(acc)[len(acc) // 2]


orders = from_iterable([Order()]).pipe(event_time(lambda order: order.at, lateness=5))
assert_type(orders, Flowable[Order])
assert_type(read_jsonl().pipe(event_time("at")), Flowable[dict[str, Any]])

minute = tumbling(60)
assert_type(orders.pipe(window(minute, agg.count())), Flowable[Window[int]])
assert_type(orders.pipe(window(minute, agg.count(), "client")), Flowable[Window[int]])
assert_type(
    orders.pipe(window(minute, agg.count(), lambda order: order.client)), Flowable[Window[int]]
)
assert_type(orders.pipe(window(sliding(3600, every=60), agg.sum("cents"))), Flowable[Window[float]])
assert_type(orders.pipe(window(session(1800), agg.mean("cents"))), Flowable[Window[float]])
assert_type(orders.pipe(window(calendar("day"), agg.least("cents"))), Flowable[Window[Any]])
assert_type(orders.pipe(window(minute, agg.greatest("cents"))), Flowable[Window[Any]])
assert_type(orders.pipe(window(minute, agg.first())), Flowable[Window[Any]])
assert_type(orders.pipe(window(minute, agg.last("cents"))), Flowable[Window[Any]])
assert_type(orders.pipe(window(minute, agg.list("cents", 10))), Flowable[Window[list[Any]]])
assert_type(orders.pipe(window(minute, agg.distinct("client"))), Flowable[Window[int]])
assert_type(
    orders.pipe(window(minute, agg.quantiles("cents", 0.5, 0.99))), Flowable[Window[list[float]]]
)
assert_type(
    orders.pipe(window(minute, agg.top(3, "client"))), Flowable[Window[list[tuple[Any, int]]]]
)
assert_type(orders.pipe(window(minute, agg.fold("", longest, max))), Flowable[Window[str]])
assert_type(orders.pipe(window(minute, Median())), Flowable[Window[float]])
assert_type(
    orders.pipe(window(minute, {"pages": agg.count(), "entry": agg.first("url")}, "client")),
    Flowable[Window[dict[str, Any]]],
)
assert_type(
    orders.pipe(window(minute, {"a": agg.count(), "b": agg.distinct("client")})),
    Flowable[Window[dict[str, Any]]],
)

# The handler behind it.
counts = orders.pipe(window(minute, agg.count(), "client", early=5, store=Store.memory()))


def row(one: Window[int]) -> dict[str, int]:
    assert_type(one.value, int)
    assert_type(one.start, float)
    assert_type(one.is_final, bool)
    return {"views": one.value}


assert_type(counts.map(row), Flowable[dict[str, int]])
assert_type(counts.map(lambda one: one.value), Flowable[int])


# States.


def visit(n: int, order: Order) -> tuple[int, list[str]]:
    return n + 1, [order.client]


def last(n: int | None, order: Order) -> tuple[int | None, list[Order]]:
    return order.cents, [order]


def timed(n: int, order: Order, ctx: Context) -> tuple[int, tuple[str, ...]]:
    ctx.timer("silent", after=30)
    return n, (ctx.key,)


def silent(n: int, timer: str, ctx: Context) -> tuple[int | None, list[str]]:
    return None, [timer]


assert_type(orders.pipe(stateful(visit, "client", start=0)), Flowable[str])
assert_type(orders.pipe(stateful(last, "client")), Flowable[Order])
assert_type(orders.pipe(stateful(timed, "client", start=0, on_timer=silent)), Flowable[str])
assert_type(
    orders.pipe(
        stateful(visit, lambda order: order.client, start=0, store=Store.memory()),
        window(minute, agg.count()),
    ),
    Flowable[Window[int]],
)


class Payment:
    client = "a"
    at = 0.0


payments = from_iterable([Payment()]).pipe(event_time(lambda payment: payment.at))
assert_type(orders.pipe(join(payments, "client", 60)), Flowable[tuple[Order, Payment]])
assert_type(
    orders.pipe(join(payments, "client", 60, how="left")), Flowable[tuple[Order, Payment | None]]
)
assert_type(
    orders.pipe(join(payments, "client", 60, how="outer")),
    Flowable[tuple[Order | None, Payment | None]],
)
newest = table(payments, lambda payment: payment.client)
assert_type(orders.pipe(lookup(newest, "client", wait=5)), Flowable[tuple[Order, Payment | None]])
plans = database_table("sqlite:///shop.db", "plans", "user_id", ttl=60)
assert_type(orders.pipe(lookup(plans, "client")), Flowable[tuple[Order, dict[str, Any] | None]])
