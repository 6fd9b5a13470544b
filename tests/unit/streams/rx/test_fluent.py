"""The operators of Rx as methods of a stream: each takes what `penstock.ops` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reactivex import Observable
from reactivex.subject import Subject

from penstock import Backoff, Flowable, from_iterable, ops
from penstock.operators.rx import __all__ as names
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.flowable import Connectable
from penstock.streams.testing import run_virtual

EMPTY = inspect.Parameter.empty


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [one for one in parameters if one.name != "self"]


@pytest.mark.parametrize("name", names)
def test_a_method_takes_what_the_operator_takes(name: str) -> None:
    its = {one.name: one for one in parameters_of(getattr(Flowable, name))}
    wanted = parameters_of(getattr(ops, name))
    for parameter in wanted:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            assert any(one.kind is parameter.kind for one in its.values())
            continue
        assert parameter.name in its
        own = its[parameter.name]
        assert own.kind is parameter.kind
        # One that the operator needs may be left out of the method, as in reactivex.
        assert own.default == parameter.default or parameter.default is EMPTY
    positional = [one.name for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert list(its)[: len(positional)] == positional
    more = [one for one in its.values() if one.name not in {each.name for each in wanted}]
    assert all(one.default is not EMPTY or one.kind is one.VAR_POSITIONAL for one in more)


@pytest.mark.parametrize("name", [name for name in names if hasattr(Observable, name)])
def test_a_method_takes_what_that_of_reactivex_takes(name: str) -> None:
    its = {one.name: one for one in parameters_of(getattr(Flowable, name))}
    wanted = parameters_of(getattr(Observable, name))
    for parameter in wanted:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            assert any(one.kind is parameter.kind for one in its.values())
        else:
            assert parameter.name in its
            assert parameter.default is EMPTY or its[parameter.name].default is not EMPTY
    one_by_one = [one for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert [one.kind for one in its.values()][: len(one_by_one)] == [one.kind for one in one_by_one]


def failing_twice() -> Flowable[int]:
    readings: list[int] = []

    def numbers() -> Iterator[int]:
        readings.append(1)
        yield 1
        if len(readings) < 3:
            raise OSError
        yield 2

    return from_iterable(numbers)


def itself(value: Any) -> Any:
    return value


NUMBERS = from_iterable([1, 2, 3])
STREAMS = from_iterable([from_iterable([1]), from_iterable([2])])


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (failing_twice().retry(3, Backoff(1)), [1, 1, 1, 2]),
        (failing_twice().retry(retry_count=3, backoff=Backoff(1)), [1, 1, 1, 2]),
        (NUMBERS.flat_map(lambda n: from_iterable([n, -n]), 1), [1, -1, 2, -2, 3, -3]),
        (NUMBERS.flat_map(lambda n: [n] * n, max_concurrent=1), [1, 2, 2, 3, 3, 3]),
        (STREAMS.merge_all(max_concurrent=1), [1, 2]),
        (STREAMS.merge_all(1), [1, 2]),
        (STREAMS.flat_map(), [1, 2]),
        (STREAMS.switch_map(), [1, 2]),
        (NUMBERS.switch_map_indexed(lambda n, i: from_iterable([n * i])), [0, 2, 6]),
        (NUMBERS.switch_map_indexed(project=lambda n, i: from_iterable([n * i])), [0, 2, 6]),
        (NUMBERS.switch_map_indexed(mapper_indexed=lambda n, i: from_iterable([n * i])), [0, 2, 6]),
        (NUMBERS.publish(lambda shared: shared.zip(shared), prefetch=3), [(1, 1), (2, 2), (3, 3)]),
        (NUMBERS.publish_value(0, lambda shared: shared.map(str), prefetch=3), list("0123")),
        (NUMBERS.replay(3, mapper=lambda shared: shared.take(2), prefetch=4), [1, 2]),
        (NUMBERS.publish(8).ref_count(), [1, 2, 3]),
        (NUMBERS.share(prefetch=2), [1, 2, 3]),
        (
            NUMBERS.multicast(
                subject_factory=lambda scheduler: Subject(), mapper=lambda shared: shared.skip(1)
            ),
            [2, 3],
        ),
    ],
)
def test_a_method_with_options_does_what_the_operator_does(
    stream: Flowable[Any], values: list[Any]
) -> None:
    assert run_virtual(stream.to_list()) == values


@pytest.mark.parametrize(
    "make",
    [
        lambda: NUMBERS.publish(prefetch=8),
        lambda: NUMBERS.publish(8),
        lambda: NUMBERS.publish_value(0, prefetch=8),
        lambda: NUMBERS.replay(3, prefetch=8),
        lambda: NUMBERS.multicast(Subject(), prefetch=8),
    ],
)
def test_a_method_makes_a_connectable_stream_with_its_prefetch(
    make: Callable[[], Flowable[int]],
) -> None:
    stream = make()
    assert isinstance(stream, Connectable)
    assert stream.info.bound == 8


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flat_map", {"mapper": itself, "max_concurrent": 3}),
        ("merge_all", {"max_concurrent": 3}),
        ("merge", {"max_concurrent": 3}),
        ("merge", {"prefetch": 3}),
        ("zip", {"prefetch": 3}),
        ("combine_latest", {"prefetch": 3}),
        ("share", {"prefetch": 3}),
        ("publish", {"mapper": itself, "prefetch": 3}),
        ("publish_value", {"initial_value": 0, "mapper": itself, "prefetch": 3}),
        ("replay", {"buffer_size": 5, "window": 2, "mapper": itself, "prefetch": 3}),
        ("retry", {"retry_count": 3, "backoff": Backoff(1)}),
    ],
)
def test_a_method_makes_the_stage_that_the_operator_makes(
    name: str, options: dict[str, Any]
) -> None:
    method = getattr(STREAMS, name)(**options).info
    operator = STREAMS.pipe(getattr(ops, name)(**options)).info
    # What is shared is another object each time.
    assert method._replace(shared=None) == operator._replace(shared=None)


def test_partition_and_its_indexed_form_take_a_prefetch() -> None:
    for streams in (
        NUMBERS.partition(bool, prefetch=3),
        NUMBERS.partition_indexed(lambda n, i: bool(i), prefetch=3),
    ):
        assert len(streams) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: NUMBERS.flat_map(lambda n: [n], 0),
        lambda: NUMBERS.merge_all(0),
        lambda: NUMBERS.publish(0),
        lambda: NUMBERS.retry(0),
        lambda: NUMBERS.retry(3, 1.5),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        lambda: NUMBERS.share(prefetch=0),
    ],
)
def test_an_option_that_the_operator_refuses_is_refused_by_the_method(
    make: Callable[[], object],
) -> None:
    with pytest.raises(BuildError):
        make()
