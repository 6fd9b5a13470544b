from __future__ import annotations

import json
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from penstock import (
    Backoff,
    Fixed,
    HillClimb,
    Pipeline,
    RateLimit,
    Shared,
    Store,
    adaptive_flat_map,
    agg,
    collect,
    dead_letters,
    for_each,
    from_iterable,
    group_by,
    in_threads,
    lookup,
    ops,
    rate_limit,
    read_jsonl,
    read_table,
    retry,
    route,
    spread,
    stateful,
    table,
    tumbling,
    using,
    window,
    write_jsonl,
)
from tests.unit.streams.definitions import named
from tests.unit.streams.definitions.named import Colour, Config, Prices, client, count, project

HERE = "tests.unit.streams.definitions.named"


def of(*operators: Callable[[Any], Any]) -> list[Any]:
    """The operators of a definition."""
    stream: Any = from_iterable([1]).pipe(*operators)
    found = stream.to(write_jsonl()).definition()
    # It is plain.
    assert json.loads(json.dumps(found)) == found
    operators_of: list[Any] = found["operators"]
    return operators_of


def test_a_definition_has_the_source_the_operators_and_the_sinks_with_their_options() -> None:
    pipeline = (
        read_jsonl("orders.jsonl")
        .pipe(adaptive_flat_map(project, 8, ordered=True))
        .to(write_jsonl("done.jsonl", append=True), for_each(client))
    )
    found = pipeline.definition()
    del found["stages"]
    assert found == {
        "penstock": 1,
        "source": {"use": "read_jsonl", "path": "orders.jsonl"},
        "operators": [
            {
                "use": "adaptive_flat_map",
                "handler": f"{HERE}:project",
                "limit": 8,
                "ordered": True,
            }
        ],
        "sinks": [
            {"use": "write_jsonl", "path": "done.jsonl", "append": True},
            {"use": "for_each", "function": f"{HERE}:client"},
        ],
    }


def test_a_definition_has_the_stages_with_their_bounds() -> None:
    pipeline = from_iterable([1]).pipe(group_by(client, 64), spread()).to(write_jsonl())
    stages = pipeline.definition()["stages"]
    assert [(one["number"], one["name"], one["holds"], one["reads"]) for one in stages] == [
        (1, "from_iterable", 0, []),
        (2, "group_by", 64, [1]),
        (3, "spread", 0, [2]),
        (4, "write_jsonl", 1024, [3]),
    ]


def test_options_that_have_their_defaults_are_left_out() -> None:
    assert of(group_by("client", 4096, overflow="spill"), spread()) == [
        {"use": "group_by", "by": "client"},
        {"use": "spread"},
    ]


def test_an_operator_is_shown_as_it_was_written_whatever_it_is_made_of() -> None:
    assert of(adaptive_flat_map(str, key="client")) == [
        {"use": "adaptive_flat_map", "handler": "builtins:str", "key": "client"}
    ]


def test_stock_operators_are_shown_by_their_names_and_options() -> None:
    assert of(ops.map(client), ops.take(3), ops.scan(max), ops.buffer_with_count(2)) == [
        {"use": "map", "mapper": f"{HERE}:client"},
        {"use": "take", "count": 3},
        {"use": "scan", "accumulator": "builtins:max"},
        {"use": "buffer_with_count", "count": 2},
    ]


def test_an_operator_of_rx_with_the_name_of_another_is_shown_with_ops() -> None:
    assert of(ops.retry(3)) == [{"use": "ops.retry", "retry_count": 3}]


def test_windows_of_rx_are_shown_with_the_operator_that_reads_them() -> None:
    assert of(ops.window_with_count(2), ops.flat_map(client)) == [
        {"use": "window_with_count", "count": 2},
        {"use": "flat_map", "mapper": f"{HERE}:client"},
    ]


def test_fluent_methods_are_operators_too() -> None:
    pipeline = from_iterable([1]).map(client).filter(bool).to(write_jsonl())
    assert [one["use"] for one in pipeline.definition()["operators"]] == ["map", "filter"]


def test_an_operator_of_the_users_is_shown_by_what_it_pipes_through() -> None:
    def mine(stream: Any) -> Any:
        return stream.pipe(ops.map(client), ops.filter(bool))

    assert [one["use"] for one in of(mine)] == ["map", "filter"]


def test_what_an_option_is_made_of_is_shown() -> None:
    errors = retry(3, Backoff(cap=5), route(dead_letters("bad.jsonl")), on=(OSError, ValueError))
    assert of(adaptive_flat_map(project, (1, 8), on_error=errors))[0] == {
        "use": "adaptive_flat_map",
        "handler": f"{HERE}:project",
        "limit": [1, 8],
        "on_error": {
            "use": "retry",
            "times": 3,
            "backoff": {"use": "Backoff", "cap": 5},
            "then": {"use": "route", "sink": {"use": "dead_letters", "path": "bad.jsonl"}},
            "on": ["builtins:OSError", "builtins:ValueError"],
        },
    }


def test_a_wrapped_handler_is_shown_with_what_wraps_it() -> None:
    first, second = of(
        adaptive_flat_map(in_threads(8)(client)), adaptive_flat_map(using(Prices)(named.slowly))
    )
    assert first["handler"] == {"use": "in_threads", "n": 8, "handler": f"{HERE}:client"}
    assert second["handler"] == {
        "use": "using",
        "make": f"{HERE}:Prices",
        "handler": f"{HERE}:slowly",
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (client, {"import": f"{HERE}:client"}),
        (Prices.first, {"import": f"{HERE}:Prices.first"}),
        (Colour.RED, {"import": f"{HERE}:Colour.RED"}),
        (str.upper, {"import": "builtins:str.upper"}),
        ((1, 2), {"use": "builtins:tuple", "args": [[1, 2]]}),
        ({3: 4}, {"use": "builtins:dict", "args": [[[3, 4]]]}),
        ({"use": 1}, {"use": "builtins:dict", "args": [[["use", 1]]]}),
        ("$HOME and ${x}", "$$HOME and $${x}"),
        ({2, 1}, {"use": "builtins:set", "args": [[1, 2]]}),
        (b"\xff", {"use": "builtins:bytes.fromhex", "args": ["ff"]}),
        (float("inf"), {"use": "builtins:float", "args": ["inf"]}),
        (Fraction(1, 3), {"use": "fractions:Fraction", "args": [1, 3]}),
        (operator.itemgetter("a"), {"use": "operator:itemgetter", "args": ["a"]}),
        (
            partial(max, 1, key=client),
            {
                "use": "functools:partial",
                "args": [{"import": "builtins:max"}, 1],
                "key": {"import": f"{HERE}:client"},
            },
        ),
        (
            Config("a", (1,)),
            {
                "use": f"{HERE}:Config",
                "name": "a",
                "sizes": [1],
            },
        ),
        ({"a": [None, True, 1.5, "b:c"]}, {"a": [None, True, 1.5, "b:c"]}),
    ],
)
def test_a_value_is_shown_by_what_makes_an_equal_one(value: Any, shown: Any) -> None:
    assert of(ops.start_with(value)) == [{"use": "start_with", "args": [shown]}]


def test_a_text_is_not_taken_for_a_function() -> None:
    assert of(group_by("a:b"), spread())[0] == {"use": "group_by", "by": {"text": "a:b"}}


def test_a_password_is_not_in_a_definition() -> None:
    pipeline = read_table("postgresql://me:secret@host/shop").to(write_jsonl())
    assert "secret" not in json.dumps(pipeline.definition()["source"]["url"]["secret"])
    assert pipeline.definition()["source"]["url"] == {"secret": "postgresql://me:***@host/shop"}


def test_a_store_of_two_stages_is_shared() -> None:
    store = Store("sqlite:///shop.db")
    pipeline = (
        from_iterable([1])
        .pipe(stateful(count, "a", store=store), stateful(count, "b", store=store, name="b"))
        .to(write_jsonl())
    )
    found = pipeline.definition()
    assert found["shared"] == {"store": {"use": "Store", "path": "sqlite:///shop.db"}}
    assert [one["store"] for one in found["operators"]] == [{"shared": "store"}] * 2


def test_a_stream_that_is_read_twice_is_shared() -> None:
    orders = read_jsonl("orders.jsonl").pipe(ops.share())
    found = orders.pipe(ops.merge(orders.pipe(ops.map(client)))).to(write_jsonl()).definition()
    assert found["shared"] == {
        "stream": {
            "source": {"use": "read_jsonl", "path": "orders.jsonl"},
            "operators": [{"use": "share"}],
        }
    }
    assert found["source"] == {"shared": "stream"}
    assert found["operators"][0]["sources"] == [
        {
            "source": {"shared": "stream"},
            "operators": [{"use": "map", "mapper": f"{HERE}:client"}],
        }
    ]


def test_a_limit_of_two_stages_is_shared_and_one_of_equal_limits_is_not() -> None:
    one = Shared(4)
    shared = of(adaptive_flat_map(project, one), adaptive_flat_map(project, one))
    assert [stage["limit"] for stage in shared] == [{"shared": "shared"}] * 2
    apart = of(adaptive_flat_map(project, Shared(4)), adaptive_flat_map(project, Shared(4)))
    assert [stage["limit"] for stage in apart] == [{"use": "Shared", "limiter": 4}] * 2


def test_a_lambda_is_shown_by_its_file_and_line() -> None:
    (stage,) = of(ops.map(lambda order: order))
    assert stage["mapper"]["unnamed"].startswith(
        "lambda at tests/unit/streams/definitions/test_definition.py:"
    )


def test_a_method_is_shown_by_its_object() -> None:
    one, other = of(ops.map(Prices().look_up), ops.map(Config("a").__call__))
    assert one["mapper"] == {
        "use": "builtins:getattr",
        "args": [{"unnamed": "a Prices"}, "look_up"],
    }
    assert other["mapper"]["args"] == [{"use": f"{HERE}:Config", "name": "a"}, "__call__"]


def orders() -> Pipeline:
    """A pipeline of named functions, with what is made anew each time."""
    store = Store("shop.db")
    return (
        read_jsonl("orders.jsonl")
        .pipe(
            stateful(count, "client", store=store),
            adaptive_flat_map(project, HillClimb(0.2), on_error=retry(3)),
            rate_limit(RateLimit(5)),
            group_by(client),
            spread(feeders=2),
            adaptive_flat_map(in_threads(2)(client), Fixed(4)),
        )
        .to(write_jsonl("done.jsonl"))
    )


def joined() -> Pipeline:
    plans = table(read_jsonl("plans.jsonl"), "client", time="at")
    return (
        read_jsonl("orders.jsonl")
        .pipe(
            window(tumbling(60), {"n": agg.count(), "total": agg.sum("total")}, time="at"),
            lookup(plans, client),
        )
        .to(write_jsonl("done.jsonl"))
    )


@pytest.mark.parametrize("make", [orders, joined])
def test_pipelines_made_alike_of_named_functions_are_equal(make: Callable[[], Pipeline]) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert len({make(), make()}) == 1


def test_pipelines_that_differ_in_an_option_are_not_equal() -> None:
    def made(limit: int) -> Pipeline:
        return from_iterable([1]).pipe(adaptive_flat_map(project, limit)).to(write_jsonl())

    assert made(8) != made(9)
    assert made(8) != "a pipeline"


def test_a_lambda_is_equal_to_itself_only() -> None:
    def made(function: Callable[[Any], Any]) -> Pipeline:
        return from_iterable([1]).pipe(ops.map(function)).to(write_jsonl())

    one, other = (lambda order: order), (lambda order: order)
    assert made(one) == made(one)
    assert made(one) != made(other)


def test_a_closure_is_equal_to_itself_only() -> None:
    def adding(number: int) -> Callable[[Any], Any]:
        def add(order: Any) -> Any:
            return order + number

        return add

    def made(function: Callable[[Any], Any]) -> Pipeline:
        return from_iterable([1]).pipe(ops.map(function)).to(write_jsonl())

    assert made(adding(1)) != made(adding(1))


def test_pipelines_that_write_into_two_lists_are_not_equal() -> None:
    into: list[int] = []
    assert from_iterable([1]).to(collect(into)) == from_iterable([1]).to(collect(into))
    assert from_iterable([1]).to(collect(into)) != from_iterable([1]).to(collect([]))
