"""What becomes of the values of a window."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, fsum, inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orjson import dumps, loads

from penstock.streams.aggregates import agg
from penstock.streams.aggregates.aggregate import Aggregate
from penstock.streams.base.errors import BuildError, notes_of
from penstock.streams.windows.shapes import session, sliding, tumbling
from penstock.streams.windows.windows import aggregate_of, windows_of

# A time and a value.
Event = tuple[float, dict[str, Any]]


class Longest:
    """A user's own: the longest text."""

    def start(self) -> Any:
        return ""

    def add(self, acc: Any, value: Any, time: float) -> Any:
        return max(acc, value["text"], key=len)

    def merge(self, acc: Any, other: Any) -> Any:
        return max(acc, other, key=len)

    def result(self, acc: Any) -> str:
        return str(acc)


def of(name: str) -> Callable[[list[Event]], list[Any]]:
    """The values of a field, in order of time; those with equal times in order of arrival."""
    return lambda events: [value[name] for _, value in sorted(events, key=lambda one: one[0])]


# Each with its definition.
ALL: dict[str, tuple[Aggregate[Any], Callable[[list[Event]], Any]]] = {
    "count": (agg.count(), len),
    "sum of ints": (agg.sum("int"), lambda events: sum(of("int")(events))),
    "sum of floats": (agg.sum("float"), lambda events: fsum(of("float")(events))),
    "sum": (agg.sum("number"), lambda events: _sum(events)),
    "mean": (agg.mean("number"), lambda events: float(_total(events) / len(events))),
    "least": (agg.least("number"), lambda events: min(of("number")(events))),
    "greatest": (agg.greatest("text"), lambda events: max(of("text")(events))),
    "first": (agg.first("plain"), lambda events: of("plain")(events)[0]),
    "last": (agg.last("plain"), lambda events: of("plain")(events)[-1]),
    "list": (agg.list("plain", most=5), lambda events: of("plain")(events)[:5]),
    "distinct": (agg.distinct("text"), lambda events: len(set(of("text")(events)))),
    "top": (
        agg.top(3, by="text"),
        lambda events: sorted(
            Counter(of("text")(events)).items(), key=lambda one: (-one[1], one[0])
        )[:3],
    ),
    "fold": (
        agg.fold(0, lambda acc, value: max(acc, value["int"]), max),
        lambda events: max([0, *of("int")(events)]),
    ),
    "own": (Longest(), lambda events: max(of("text")(events), key=len)),
}
ALL["all"] = (
    aggregate_of({name: one for name, (one, _) in ALL.items()}),
    lambda events: {name: by_hand(events) for name, (_, by_hand) in ALL.items() if name != "all"},
)


def _total(events: list[Event]) -> Fraction:
    return sum(map(Fraction, of("number")(events)), Fraction())


def _sum(events: list[Event]) -> float:
    total = _total(events)
    has_floats = any(isinstance(one, float) for one in of("number")(events))
    return float(total) if has_floats else int(total)


INTS = st.integers(-(1 << 62), 1 << 62)
FLOATS = st.floats(-1e250, 1e250)
PLAIN = st.sampled_from([None, True, 7, -0.5, "a", "b'\"\u00e9", [1, [None]], {"a": {"b": [2]}}])
VALUES = st.fixed_dictionaries(
    {
        "int": INTS,
        "float": FLOATS,
        "number": INTS | FLOATS,
        # Of each length one, so that there is one longest.
        "text": st.sampled_from(["", "a", "éa", 'a"b', "ab'c", "\\abcd"]),
        "plain": PLAIN,
    }
)
NUMBERS = st.just(0.0) | st.floats(1e-300, 1e299) | st.floats(-1e299, -1e-300)
EVENTS = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.5, 2.0]), VALUES), min_size=1, max_size=12)


def added(aggregate: Aggregate[Any], events: list[Event]) -> Any:
    acc = aggregate.start()
    for time, value in events:
        acc = aggregate.add(acc, value, time)
    return acc


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20)
@given(events=EVENTS)
def test_a_result_is_that_of_its_definition(name: str, events: list[Event]) -> None:
    aggregate, by_hand = ALL[name]
    assert aggregate.result(added(aggregate, events)) == by_hand(events)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20)
@given(events=EVENTS, cut=st.floats(0, 1))
def test_parts_that_are_merged_are_the_whole(name: str, events: list[Event], cut: float) -> None:
    aggregate, by_hand = ALL[name]
    at = round(cut * len(events))
    acc, other = added(aggregate, events[:at]), added(aggregate, events[at:])
    before = dumps(other)
    assert aggregate.result(aggregate.merge(acc, other)) == by_hand(events)
    assert dumps(other) == before


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20)
@given(events=EVENTS)
def test_no_values_and_some_are_these(name: str, events: list[Event]) -> None:
    aggregate, _ = ALL[name]
    other = added(aggregate, events)
    whole = aggregate.merge(aggregate.start(), other)
    assert aggregate.result(whole) == aggregate.result(other)
    assert aggregate.result(aggregate.merge(other, aggregate.start())) == aggregate.result(whole)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20)
@given(events=EVENTS, more=EVENTS)
def test_what_is_known_may_be_json_in_between(
    name: str, events: list[Event], more: list[Event]
) -> None:
    aggregate, by_hand = ALL[name]
    acc = added(aggregate, events)
    read = loads(dumps(acc))
    assert read == acc
    for time, value in more:
        read = aggregate.add(read, value, time)
    assert aggregate.result(read) == by_hand(events + more)


@pytest.mark.parametrize("name", ALL)
def test_a_merged_part_stays_as_it_is_when_the_whole_changes(name: str) -> None:
    aggregate, _ = ALL[name]
    value = {"int": 1, "float": 0.5, "number": 2, "text": "a", "plain": [1]}
    other = added(aggregate, [(1.0, value)])
    before = dumps(other)
    whole = aggregate.merge(aggregate.start(), other)
    for time in (0.0, 1.0, 2.0):
        whole = aggregate.add(whole, value, time)
    assert dumps(other) == before


def test_a_sum_of_ints_beyond_64_bits_is_exact() -> None:
    aggregate = agg.sum("n")
    acc = added(aggregate, [(0.0, {"n": n}) for n in (1 << 63, 1 << 63, 1 << 63, -3)])
    assert aggregate.result(loads(dumps(acc))) == 3 * (1 << 63) - 3
    acc = aggregate.add(acc, {"n": 0.5}, 0.0)
    assert aggregate.result(aggregate.add(acc, {"n": -3 * (1 << 63)}, 0.0)) == -2.5


BAD = [None, nan, inf, "1", Decimal(1), [1]]


@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize(
    "aggregate",
    [agg.sum("x"), agg.mean("x"), agg.quantiles("x", 0.5)],
    ids=["sum", "mean", "quantiles"],
)
def test_what_is_not_a_number_is_an_error_that_names_the_aggregate(
    aggregate: Aggregate[Any], bad: Any
) -> None:
    with pytest.raises(ValueError, match=r"(sum|mean|quantiles)\(x\): .* is not a number"):
        aggregate.add(aggregate.start(), {"x": bad}, 0.0)


@pytest.mark.parametrize("bad", [None, nan, True, [1]], ids=repr)
def test_what_has_no_order_has_no_least(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"least\(x\): .* is not a number or a text"):
        agg.least("x").add(None, {"x": bad}, 0.0)


def test_texts_and_numbers_have_no_greatest() -> None:
    aggregate = agg.greatest("x")
    acc = aggregate.add(aggregate.start(), {"x": 1}, 0.0)
    with pytest.raises(ValueError, match=r"greatest\(x\): 'a' cannot be compared with 1"):
        aggregate.add(acc, {"x": "a"}, 0.0)


@pytest.mark.parametrize("bad", [nan, (1,), {1: 2}, {"a": [b""]}, "\ud800", 1 << 64], ids=repr)
def test_what_json_would_change_is_not_kept(bad: Any) -> None:
    for aggregate in (agg.first("x"), agg.last("x"), agg.list("x")):
        with pytest.raises(ValueError, match=r"\(x\): .* is not plain"):
            aggregate.add(aggregate.start(), {"x": bad}, 0.0)


@pytest.mark.parametrize("bad", [nan, [{}], b"", Decimal("0.1"), "\ud800"], ids=repr)
def test_what_has_no_text_is_not_counted_by_it(bad: Any) -> None:
    for aggregate in (agg.distinct("x"), agg.top(1, by="x")):
        with pytest.raises(ValueError, match=r"\(x\): .* is not a text, a number"):
            aggregate.add(aggregate.start(), {"x": bad}, 0.0)


def test_a_missing_field_is_an_error_with_the_name_of_the_aggregate() -> None:
    with pytest.raises(KeyError) as raised:
        agg.sum("x").add(0, {}, 0.0)
    assert notes_of(raised.value) == ["in sum(x)"]


def test_equal_values_are_one_and_a_number_is_not_its_text() -> None:
    aggregate = aggregate_of({"n": agg.distinct("x"), "top": agg.top(9, by="x")})
    values: list[Any] = [1, 1.0, "1", "'1", '"1"', None, "None", ("a", 1), "é", 'é"']
    acc = added(aggregate, [(0.0, {"x": value}) for value in values])
    result = aggregate.result(acc)
    assert result["n"] == 9
    assert {key for key, _ in result["top"]} == set(values)
    assert result["top"][0] == (1, 2)


class Sometimes(Longest):
    def add(self, acc: Any, value: Any, time: float) -> Any:
        if value["text"] == "fails":
            raise RuntimeError("fails")
        return super().add(acc, value, time)


def _appended(acc: builtins.list[Any], value: Any) -> builtins.list[Any]:
    acc.append(value["text"])
    return acc


@pytest.mark.parametrize("failing", [Sometimes(), agg.greatest("mixed"), agg.sum("number")])
def test_an_event_is_in_all_aggregates_or_in_none(failing: Aggregate[Any]) -> None:
    parts: dict[str, Aggregate[Any]] = {
        "list": agg.list("text"),
        "fold": agg.fold([], _appended),
        "failing": failing,
        "fold after it": agg.fold([], _appended),
        "mean": agg.mean("int"),
    }
    aggregate = aggregate_of(parts)
    acc = added(aggregate, [(0.0, {"text": "a", "int": 1, "number": 2, "mixed": 3})])
    before = dumps(acc)
    with pytest.raises((ValueError, RuntimeError)):
        aggregate.add(acc, {"text": "fails", "int": 1, "number": "no", "mixed": "text"}, 0.0)
    assert dumps(acc) == before


def test_a_result_is_not_part_of_what_is_known() -> None:
    parts = {"list": agg.list("x"), "fold": agg.fold([], _appended), "top": agg.top(1, by="x")}
    aggregate = aggregate_of(parts)
    acc = added(aggregate, [(0.0, {"x": "a", "text": "a"})])
    before = dumps(acc)
    for part in aggregate.result(acc).values():
        part.clear()
    assert dumps(acc) == before


def test_the_number_of_different_values_is_exact_up_to_a_thousand() -> None:
    aggregate = agg.distinct("x")
    acc = added(aggregate, [(0.0, {"x": n % 1000}) for n in range(3000)])
    assert aggregate.result(acc) == 1000
    assert aggregate.add(acc, {"x": 1000}, 0.0).__class__ is list


@pytest.mark.parametrize("count", [1001, 2000, 5000, 12_000, 20_000, 50_000])
def test_the_error_of_an_estimate_is_within_four_standard_errors(count: int) -> None:
    aggregate = agg.distinct("x")
    parts = [
        added(aggregate, [(0.0, {"x": f"{n}"}) for n in range(start, count, 3)])
        for start in range(3)
    ]
    acc = aggregate.start()
    for part in parts:
        acc = aggregate.merge(acc, part)
    assert acc == added(aggregate, [(0.0, {"x": f"{n}"}) for n in range(count)])
    assert abs(aggregate.result(acc) / count - 1) < 4 * 0.016


@given(
    numbers=st.lists(NUMBERS, min_size=1),
    share=st.floats(0, 1),
)
def test_a_quantile_is_off_by_less_than_a_twentieth_of_a_percent(
    numbers: list[float], share: float
) -> None:
    aggregate = agg.quantiles("x", share)
    half = len(numbers) // 2
    parts = [[(0.0, {"x": x}) for x in part] for part in (numbers[:half], numbers[half:])]
    acc = aggregate.merge(*(added(aggregate, part) for part in parts))
    exact = sorted(numbers)[max(1, floor(share * len(numbers) + 0.5)) - 1]
    assert aggregate.result(acc) == [pytest.approx(exact, rel=1 / 2048, abs=0)]


def test_too_many_keys_are_counted_with_an_error_of_at_most_a_5000th() -> None:
    random = Random(1)
    keys = [f"{int(random.paretovariate(0.25)) % 10**6}" for _ in range(60_000)]
    aggregate = agg.top(20, by="x")
    acc = aggregate.start()
    for start in range(3):
        part = added(aggregate, [(0.0, {"x": key}) for key in keys[start::3]])
        acc = aggregate.merge(acc, part)
    assert len(acc) <= 10_000
    assert len(set(keys)) > 10_000
    exact = Counter(keys)
    most = ceil(len(keys) / 5000)
    for key, count in aggregate.result(acc):
        assert exact[key] - most <= count <= exact[key]
    found = {key for key, _ in aggregate.result(acc)}
    assert {key for key, count in exact.most_common(20) if count > 1000} <= found


def test_a_fold_without_merge_is_refused_where_windows_are_put_together() -> None:
    fold = agg.fold(0, lambda acc, _: acc + 1)
    windows_of(tumbling(60), fold)
    windows_of(sliding(60, every=60), fold)
    windows_of(tumbling(count=3), fold)
    for shape, keep in [(sliding(60, every=20), 0.0), (session(9), 0.0), (tumbling(60), 1.0)]:
        with pytest.raises(BuildError, match="needs merge="):
            windows_of(shape, aggregate_of({"fold": fold}), keep)


def test_a_fold_that_returns_what_is_not_plain_is_an_error() -> None:
    aggregate = agg.fold(0, lambda acc, _: {acc})  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="returned"):
        aggregate.add(0, {}, 0.0)


async def _asleep(acc: int, value: Any) -> int:
    return acc


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agg.sum(None), "not a valid key"),  # type: ignore[arg-type]
        (lambda: agg.list(most=0), "most=0"),
        (lambda: agg.top(0, by="x"), "top"),
        (lambda: agg.quantiles("x"), "shares"),
        (lambda: agg.quantiles("x", 99), "shares from 0 to 1"),
        (lambda: agg.fold(0, _asleep), "plain function"),  # type: ignore[arg-type]
        (lambda: agg.fold(0, lambda acc: acc), "two values"),  # type: ignore[arg-type,misc]
        (lambda: agg.fold({1}, lambda acc, _: acc), "not plain"),
        (lambda: aggregate_of({}), "at least one"),
        (lambda: aggregate_of({1: agg.count()}), "a text as its name"),  # type: ignore[dict-item]
        (lambda: aggregate_of(agg.count), "no start, add, merge, result"),  # type: ignore[call-overload]
        (lambda: aggregate_of({"n": Longest}), "is a class"),  # type: ignore[dict-item]
    ],
)
def test_wrong_aggregates_are_errors_when_they_are_made(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(BuildError, match=message):
        make()
