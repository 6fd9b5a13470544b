from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops
from reactivex.internal import curry_flip

from penstock.streams.rx.recognise import recognise
from penstock.streams.rx.table import SPECIAL, Kind

Operator = Callable[[Any], Any]

# Some calls below are the mistakes under test, which a type checker would refuse.
unchecked: Any = ops


def double(number: int) -> int:
    return 2 * number


STOCK: list[Operator] = [
    ops.map(double),
    ops.filter(bool),
    ops.scan(max),
    ops.take(3),
    ops.skip_last(1),
    ops.starmap(),
]


def names(operator: Operator) -> list[str | None]:
    return [part.name for part in recognise(operator)]


async def fetch(number: int) -> int:
    return number


async def pages(number: int) -> AsyncIterator[int]:
    yield number


def map_(source: Observable[int]) -> Observable[int]:
    return source


@curry_flip
def filter_(source: Observable[int], predicate: Any) -> Observable[int]:
    return source


class Doubling:
    def __call__(self, source: Observable[int]) -> Observable[int]:
        return source.pipe(ops.map(double))


def test_a_part_holds_the_arguments_by_name_with_defaults_filled_in() -> None:
    [mapped] = recognise(ops.map(double))
    assert mapped.arguments == {"mapper": double}
    [buffered] = recognise(ops.buffer_with_count(3))
    assert buffered.arguments == {"count": 3, "skip": None}
    [started] = recognise(ops.start_with(1, 2))
    assert started.arguments == {"args": (1, 2)}


def test_a_part_of_an_operator_that_is_not_curried_holds_what_its_closure_uses() -> None:
    [found] = recognise(ops.first_or_default(None, 7))
    assert found.arguments == {"has_default": True, "default_value": 7}


def test_two_operators_of_one_internal_function_are_distinguished() -> None:
    assert names(unchecked.find(bool)) == ["find"]
    assert names(unchecked.find_index(bool)) == ["find_index"]
    assert names(ops.element_at(1)) == ["element_at"]
    assert names(ops.element_at_or_default(1)) == ["element_at_or_default"]


def test_an_operator_with_a_predicate_is_opened_into_filter_and_the_rest() -> None:
    assert names(ops.first_or_default(bool, 7)) == ["filter", "first_or_default"]


def test_a_composition_is_opened_however_deep() -> None:
    inner = reactivex.compose(ops.map(double), ops.buffer_with_count(3))
    outer = reactivex.compose(ops.take(9), reactivex.compose(inner, ops.pairwise()))
    assert names(outer) == ["take", "map", "buffer_with_count", "pairwise"]


def test_an_empty_composition_has_no_parts() -> None:
    assert recognise(reactivex.compose(*STOCK[:0])) == []


@given(
    st.recursive(
        st.sampled_from(STOCK),
        lambda inner: st.lists(inner, max_size=3).map(lambda parts: reactivex.compose(*parts)),
    ),
    st.lists(st.integers(), max_size=6),
)
def test_the_parts_in_turn_do_what_the_whole_does(whole: Operator, numbers: list[int]) -> None:
    def play(*operators: Operator) -> list[int]:
        seen: list[int] = []
        reactivex.of(*numbers).pipe(*operators).subscribe(seen.append)
        return seen

    assert play(*(part.operator for part in recognise(whole))) == play(whole)


@pytest.mark.parametrize(
    "unknown",
    [
        lambda source: source.pipe(ops.map(double)),
        map_,
        filter_(bool),
        functools.partial(map_),
        Doubling(),
        list,
    ],
    ids=["lambda", "same name", "curried", "partial", "callable object", "built-in"],
)
def test_an_unknown_function_is_one_part_that_holds(unknown: Operator) -> None:
    [part] = recognise(unknown)
    assert (part.name, part.entry.kind, part.operator) == (None, Kind.HOLDS, unknown)


def test_a_function_without_a_module_is_unknown() -> None:
    scope: dict[str, Any] = {"__name__": None}
    exec("def nowhere(source): return source", scope)
    assert names(scope["nowhere"]) == [None]


def test_a_closure_that_is_not_yet_filled_is_unknown_and_no_error() -> None:
    def early() -> list[str | None]:
        seen = names(lambda source: later)
        later = None
        return [*seen, later]

    assert early() == [None, None]


def test_what_cannot_be_called_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not callable"):
        recognise(unchecked)


def test_an_operator_whose_parentheses_were_forgotten_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"call ops\.pairwise\(\.\.\.\)"):
        recognise(unchecked.pairwise)


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (ops.slice(1, 5), Kind.AT_ONCE),
        (ops.slice(-2), Kind.HOLDS),
        (ops.slice(0, -2), Kind.HOLDS),
        (ops.sample(1), Kind.HOLDS),
        (ops.sample(reactivex.of(1)), Kind.OURS),
        (ops.timeout(1), Kind.OURS),
        (ops.timeout(1, reactivex.of(1)), Kind.OURS),
        (ops.flat_map(range), Kind.AT_ONCE),
        (ops.flat_map([1, 2]), Kind.AT_ONCE),
        (unchecked.flat_map(fetch), Kind.REFUSED),
        (unchecked.flat_map(pages), Kind.REFUSED),
        (unchecked.flat_map_indexed(fetch), Kind.REFUSED),
        (unchecked.map(fetch), Kind.REFUSED),
        (unchecked.filter(fetch), Kind.REFUSED),
        (unchecked.scan(fetch, 0), Kind.REFUSED),
        (unchecked.do_action(fetch), Kind.REFUSED),
        (unchecked.do_action(on_completed=fetch), Kind.REFUSED),
        (unchecked.take_while(fetch), Kind.REFUSED),
    ],
)
def test_arguments_can_change_what_the_table_says(operator: Operator, kind: Kind) -> None:
    [part] = recognise(operator)
    assert part.entry.kind is kind


def test_what_an_async_function_and_an_async_generator_would_leave_undone_is_told() -> None:
    [coroutines], [generators] = recognise(unchecked.map(fetch)), recognise(unchecked.map(pages))
    assert coroutines.entry.why.endswith("whose coroutines it would not await")
    assert generators.entry.why.endswith("whose generators it would not read")
    assert "for spread()" in generators.entry.instead


def test_a_special_entry_is_used_for_no_other_name() -> None:
    assert set(SPECIAL) == {"sample", "slice"}


def test_a_replay_is_distinguished_from_other_multicasts() -> None:
    assert names(ops.replay(2)) == ["replay"]
    assert names(ops.publish_value(0)) == ["publish_value"]
    assert names(ops.multicast(reactivex.Subject())) == ["multicast"]


def test_recognising_calls_nothing() -> None:
    def never(*_: Any) -> None:
        raise AssertionError(inspect.stack()[1].function)

    assert names(ops.map(never)) == ["map"]
    assert names(reactivex.compose(unchecked.filter(never), never)) == ["filter", None]
