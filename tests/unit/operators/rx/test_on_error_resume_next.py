from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as stock

from penstock import from_iterable, ops
from penstock.streams.testing import COMPLETED, CountedSource, ManualPublisher, Probe, play
from tests.helpers.like_stock import assert_like_stock, messages

ERROR = ValueError("no")


def test_the_other_stream_follows_an_error_and_an_end() -> None:
    resumed = ops.on_error_resume_next(from_iterable("a"))
    assert play("-1#", resumed) == [(1.0, 1), (2.0, "a"), (2.0, COMPLETED)]
    assert play("-1|", resumed) == [(1.0, 1), (2.0, "a"), (2.0, COMPLETED)]


def test_the_error_of_the_other_stream_is_passed_over_too() -> None:
    failing = from_iterable([0]).pipe(ops.map(lambda value: 1 // value))
    assert play("-1|", ops.on_error_resume_next(failing)) == [(1.0, 1), (2.0, COMPLETED)]


@given(messages(), messages())
def test_it_is_like_stock(source: Any, other: Any) -> None:
    assert_like_stock(lambda make: stock.on_error_resume_next(make()), source, other)


def test_a_function_gets_the_error_or_none() -> None:
    seen = list[Any]()

    def choose(error: BaseException | None) -> Any:
        seen.append(error)
        return from_iterable("b")

    play("#", ops.on_error_resume_next(choose), error=ERROR)
    play("|", ops.on_error_resume_next(choose))
    assert seen == [ERROR, None]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 12))
def test_no_more_is_requested_of_either_stream_than_of_it(first: int, other: int, n: int) -> None:
    publisher, fallback = ManualPublisher[int](), CountedSource(range(other))
    probe = Probe[int](request=n)
    publisher.pipe(ops.on_error_resume_next(fallback)).connect(probe)
    sent = min(first, n)
    publisher.send(*range(sent))
    publisher.complete()
    assert probe.values == [*range(sent), *range(min(other, n - sent))]
    assert fallback.emitted == min(other, n - sent)
