"""A stage that reads a field which no value of its stream has is refused when it is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import pytest
from msgspec import Struct
from msgspec.json import Decoder
from pydantic import BaseModel, TypeAdapter, computed_field, model_validator
from reactivex import operators as ops
from typing_extensions import TypedDict

import penstock
from penstock import Flowable, group_by, read_jsonl, spread
from penstock.streams.base.errors import BuildError

T = TypeVar("T")


class Order(Struct, rename="camel"):
    order_id: int
    customer: str = ""


class Late(Order):
    days: int = 0


class Opened(Struct, tag="opened"):
    at: int


class Closed(Struct, tag="closed"):
    until: int


class Boxed(Struct, Generic[T]):
    content: T


class Asked(Struct):
    n: int

    def __getattr__(self, name: str) -> Any:
        return 0


class Row(TypedDict):
    n: int


class Wide(Row, total=False):
    more: int


class Pair(NamedTuple):
    n: int


@dataclass
class Plain:
    n: int

    @property
    def twice(self) -> int:
        return 2 * self.n

    @cached_property
    def later(self) -> int:
        return 3


@dataclass
class Extended(Plain):
    def __post_init__(self) -> None:
        self.added = 1


class Model(BaseModel):
    n: int
    _own: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.n


class Open(BaseModel, extra="allow"):
    n: int


class Replaced(BaseModel):
    n: int

    @model_validator(mode="wrap")
    @classmethod
    def other(cls, value: Any, handler: Any) -> Any:
        return {"more": 1}


# What decodes, the keys that its values have or may have, and those that none of them has.
DECODED: list[tuple[Any, list[Any], list[Any]]] = [
    (Order, ["order_id", "customer"], ["orderId", "kunde", "customer.name", 0]),
    (Decoder(Order), ["order_id"], ["orderId"]),
    (Late, ["order_id", "days"], ["weeks"]),
    (Decoder(Boxed[int]), ["content"], ["n"]),
    (Decoder(Annotated[Order, "an order"]), ["order_id"], ["n"]),
    (Decoder(Opened | Closed), ["at", "until"], ["n"]),
    (Decoder(Order | None), ["order_id"], ["n"]),
    (Decoder(Asked), ["n", "whatever"], []),
    (Decoder(Row), ["n"], ["more", 0]),
    (Decoder(Wide), ["n", "more"], ["most"]),
    (Decoder(Pair), ["n", 0], ["more"]),
    (Decoder(Plain), ["n", "twice", "later"], ["more", 0]),
    (Decoder(Extended), ["n", "added"], []),
    (Model, ["n", "twice", "_own"], ["more", 0]),
    (TypeAdapter(Model), ["n"], ["more"]),
    (TypeAdapter(Wide), ["n", "more"], ["most"]),
    (Open, ["n", "more"], []),
    (Replaced, ["n", "more"], []),
    (Decoder(dict[str, int]), ["n", 0], []),
    (Decoder(list[int]), [0], []),
    (Decoder(Any), ["n"], []),
    (Decoder(), ["n"], []),
    (TypeAdapter(list[Model]), [0], []),
    (lambda line: line, ["n"], []),
    (None, ["n", 0], []),
]


@pytest.mark.parametrize(("decode", "known", "missing"), DECODED)
def test_a_key_is_refused_if_the_decoded_values_cannot_have_it(
    decode: Any, known: list[Any], missing: list[Any]
) -> None:
    for key in known:
        read_jsonl(decode=decode).pipe(group_by(key))
        read_jsonl(decode=decode).pipe(group_by(lambda value: value))
    for key in missing:
        with pytest.raises(BuildError, match=r"stage 2 'group_by' reads (the field|item) "):
            read_jsonl(decode=decode).pipe(group_by(key))


def orders() -> Flowable[Order]:
    return read_jsonl(decode=Order)


READERS: dict[str, Callable[[str], object]] = {
    "group_by": lambda key: orders().pipe(group_by(key)),
    "distinct_within": lambda key: orders().pipe(penstock.distinct_within(5, key)),
    "distinct_within(time)": lambda key: orders().pipe(
        penstock.distinct_within(5, "order_id", key)
    ),
    "rate_limit(cost)": lambda key: orders().pipe(penstock.rate_limit(5, cost=key)),
    "monitor": lambda key: orders().pipe(penstock.monitor("G a", key, a=bool)),
    "monitor(time)": lambda key: orders().pipe(penstock.monitor("G[<=5s] a", time=key, a=bool)),
    "violations": lambda key: orders().pipe(penstock.violations("G a", key, a=bool)),
    "count_over_time": lambda key: orders().pipe(penstock.count_over_time(begin=key)),
    "created": lambda key: read_jsonl(decode=Order, created=key),
    "read_lines": lambda key: penstock.read_lines(decode=Order).pipe(group_by(key)),
    "read_kafka": lambda key: penstock.read_kafka("t", "g", decode=Order).pipe(group_by(key)),
    "write_kafka": lambda key: orders().to(penstock.write_kafka("t", key=key)),
    "write_jetstream": lambda key: orders().to(penstock.write_jetstream("t", id=key)),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_stage_and_sink_that_reads_a_key_is_refused(reader: str) -> None:
    READERS[reader]("customer")
    with pytest.raises(BuildError, match=r"reads the field 'orderId'.* order_id, customer"):
        READERS[reader]("orderId")


EACH: dict[str, Callable[[Any, str], Any]] = {
    "directly": lambda group, key: group.pipe(penstock.distinct_within(5, key)),
    "below a stage": lambda group, key: group.pipe(ops.take(5), penstock.rate_limit(5, cost=key)),
    "in groups of it": lambda group, key: group.pipe(group_by(key), spread()),
    "in groups of groups": lambda group, key: group.pipe(
        group_by("order_id", each=lambda one: one.pipe(penstock.distinct_within(5, key)), idle=1),
        spread(),
    ),
}


@pytest.mark.parametrize("place", EACH)
def test_a_stage_inside_groups_that_reads_a_key_is_refused(place: str) -> None:
    def made(key: str) -> object:
        each = EACH[place]
        return orders().pipe(group_by("customer", each=lambda group: each(group, key), idle=1))

    made("order_id")
    with pytest.raises(BuildError, match=r"reads the field 'orderId'.* order_id, customer"):
        made("orderId")


def test_operators_of_groups_that_need_a_real_key_are_left_to_the_run() -> None:
    seconds = {"a": 5}
    for each in (
        lambda group: group.pipe(penstock.distinct_within(seconds[group.key], "orderId")),
        lambda group: group.pipe(penstock.distinct_within(seconds.get(group.key), "orderId")),
        lambda group: group.pipe(ops.map(dict), penstock.distinct_within(5, "orderId")),
    ):
        orders().pipe(group_by("customer", each=each, idle=1))  # type: ignore[arg-type]


PASSING: list[Any] = [
    *(ops.filter(bool), ops.filter_indexed(lambda v, i: True), ops.take(5), ops.skip(1)),
    *(ops.take_while(bool), ops.do_action(print), penstock.distinct_within(5, "customer")),
    *(penstock.rate_limit(5), penstock.monitor("G a", a=bool)),
]


@pytest.mark.parametrize("operator", PASSING)
def test_the_type_is_known_behind_a_stage_that_sends_on_what_came(operator: Any) -> None:
    orders().pipe(operator, group_by("customer"))
    with pytest.raises(BuildError, match="stage 3 'group_by' reads the field 'kunde'"):
        orders().pipe(operator, group_by("kunde"))
    grouped = orders().pipe(operator, group_by("customer"), spread())
    with pytest.raises(BuildError, match="stage 5 'distinct_within' reads the field 'kunde'"):
        grouped.pipe(penstock.distinct_within(5, "kunde"))


@pytest.mark.parametrize(
    "operator", [ops.map(lambda v: v), penstock.adaptive_flat_map(print), penstock.chunk(2)]
)
def test_the_type_is_not_known_behind_a_stage_that_makes_values(operator: Any) -> None:
    orders().pipe(operator, group_by("kunde"))


@pytest.mark.parametrize("kind", [Row, Plain])
def test_a_function_may_have_added_fields_where_that_is_possible(kind: Any) -> None:
    values: Flowable[Any] = read_jsonl(decode=Decoder(kind))
    values.pipe(ops.do_action(print), group_by("more"))
    with pytest.raises(BuildError, match="reads the field 'more'"):
        values.pipe(penstock.distinct_within(5, "n"), group_by("more"))


def test_records_are_not_what_their_values_are_decoded_to() -> None:
    records: Flowable[Any] = penstock.read_kafka("t", "g", decode=Order, records=True)
    records.pipe(group_by("key"))
