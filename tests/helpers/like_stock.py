"""Compares an operator of Rx with the one of reactivex, on the virtual time of a TestScheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from reactivex import Observable
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.recorded import Recorded

from penstock import Flowable, buffer
from penstock.streams.testing import on_scheduler

__all__ = ["ERROR", "assert_like_stock", "messages"]

ERROR = ValueError("no")

Make = Callable[[Callable[[], Observable[Any]]], Any]


@st.composite
def messages(
    draw: st.DrawFn, longest: int = 60, *, later: float = 0, may_fail: bool = True
) -> list[Recorded[Any]]:
    """What a cold Observable emits: values, and mostly an end or an error, at different times.

    All come `later` than at a whole tick: a stream with demand subscribes to its further sources
    first, so at the same tick their order may not be that of reactivex.
    """
    ticks = draw(st.sets(st.integers(1, longest), max_size=6))
    times: list[Any] = sorted(tick + later for tick in ticks)
    ending = draw(st.sampled_from(["completed", "never", *(["error"] if may_fail else [])]))
    found: list[Recorded[Any]] = [ReactiveTest.on_next(time, time) for time in times[:-1]]
    if times and ending == "completed":
        found.append(ReactiveTest.on_completed(times[-1]))
    elif times and ending == "error":
        found.append(ReactiveTest.on_error(times[-1], ERROR))
    return found


def assert_like_stock(
    operator: Make, source: list[Recorded[Any]], *others: list[Recorded[Any]], until: float = 1000
) -> None:
    """Both emit the same values at the same times, from sources with the same subscriptions.

    `operator(*makers)` makes the stock operator; each maker returns one of the other sources.
    """
    assert _run(operator, source, others, until, ours=True) == _run(
        operator, source, others, until, ours=False
    )


def _run(
    operator: Make, source: Any, others: Any, until: float, *, ours: bool
) -> tuple[list[Any], list[Any]]:
    scheduler = TestScheduler()
    sources = [scheduler.create_cold_observable(each) for each in (source, *others)]
    first, *rest = sources
    stock = operator(*(lambda each=each: each for each in rest))

    def create() -> Observable[Any]:
        if not ours:
            return first.pipe(stock)
        return on_scheduler(Flowable.of(first, on_overflow=buffer(10**6)).pipe(stock))

    result = scheduler.start(create, disposed=until)
    return result.messages, [each.subscriptions for each in sources]
