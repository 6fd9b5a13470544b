"""Reports of ended calls to a limiter, in lists or one by one, and the use of its limit."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams.execution.limit_control import LimitControl
from penstock.streams.limits import Completion, Fixed, Limiter, Outcome

S, D, IGNORED = Outcome.SUCCESS, Outcome.DROPPED, Outcome.IGNORED
ENDS: list[Completion] = [(2.0, 1.0, 3, S), (2.0, 1.5, 4, D), (4.0, 1.0, 2, IGNORED)]


class OneByOne:
    """Records its completions; the limit is their number plus one."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @property
    def limit(self) -> int:
        return 1 + len(self.heard)

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.heard.append((now, started, in_flight_at_start, outcome))


class InLists(OneByOne):
    def on_completions(self, completions: list[Completion]) -> None:
        self.heard.append(list(completions))


class Overridden(InLists):
    """Takes every completion, and ignores the lists of its base class."""

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        super().on_complete(now, started, in_flight_at_start, outcome)


class Opted(InLists):
    on_completions = None  # type: ignore[assignment]


class Departures(InLists):
    def on_arrive(self) -> None:
        self.heard.append("arrived")

    def on_depart(self, now: float, arrived: float, in_flight: int, outcome: Outcome) -> None:
        self.heard.append((now, arrived, in_flight, outcome))


def control(
    limiter: Limiter,
    on_limit_change: Callable[[int, int, str], None] | None = None,
    broken: list[str] | None = None,
) -> LimitControl:
    def broke(error: Exception, what: str) -> None:
        assert broken is not None, error
        broken.append(f"{what}: {error!r}")

    return LimitControl(limiter, broke, on_limit_change=on_limit_change, moved=lambda: None)


@pytest.mark.parametrize("kind", [OneByOne, Overridden, Opted])
def test_a_limiter_without_lists_hears_of_one_completion_after_the_other(
    kind: type[OneByOne],
) -> None:
    limiter = kind()
    control(limiter).completed(ENDS)
    assert limiter.heard == ENDS


def test_a_limiter_that_takes_lists_hears_of_all_at_once() -> None:
    limiter = InLists()
    control(limiter).completed(ENDS)
    assert limiter.heard == [ENDS]


def test_an_object_with_its_own_on_complete_is_called_by_that() -> None:
    limiter, heard = InLists(), list[Any]()
    limiter.on_complete = lambda *completion: heard.append(completion)  # type: ignore[method-assign]
    control(limiter).completed(ENDS)
    assert heard == ENDS
    assert not limiter.heard


def test_a_limiter_that_measures_from_arrival_hears_of_arrivals_and_departures() -> None:
    limiter = Departures()
    told = control(limiter)
    assert told.from_arrival
    told.arrived()
    told.arrived()
    told.completed(ENDS)
    assert limiter.heard == ["arrived", "arrived", *ENDS]


def test_a_limiter_that_does_not_measure_from_arrival_hears_of_none() -> None:
    limiter = OneByOne()
    told = control(limiter)
    assert not told.from_arrival
    told.arrived()
    told.arrived()
    assert not limiter.heard


def test_the_limit_is_read_once_after_a_list() -> None:
    changes: list[tuple[int, int, str]] = []
    told = control(OneByOne(), lambda *change: changes.append(change))
    told.completed(ENDS)
    assert told.limit == 1
    assert told.follow()
    assert not told.follow()
    assert told.limit == 4
    assert changes == [(1, 4, "")]


def test_a_limiter_that_raises_hears_no_more_of_the_list_and_keeps_its_last_limit() -> None:
    class Breaks(OneByOne):
        def on_complete(self, *completion: Any) -> None:
            if completion[3] is D:
                raise ValueError("drops")
            super().on_complete(*completion)

    limiter, broken = Breaks(), list[str]()
    told = control(limiter, broken=broken)
    told.completed(ENDS)
    assert limiter.heard == ENDS[:1]
    assert broken == ["limiter 'Breaks': ValueError('drops')"]
    assert told.limit == 1


def test_a_limiter_that_raises_at_a_list_is_named() -> None:
    class Breaks(InLists):
        def on_completions(self, completions: list[Completion]) -> None:
            raise CancelledError

    broken = list[str]()
    control(Breaks(), broken=broken).completed(ENDS)
    assert len(broken) == 1
    assert broken[0].startswith("limiter 'Breaks': HandlerCancelled(")


def test_a_fixed_limit_stays_whatever_it_hears() -> None:
    told = control(Fixed(3))
    told.completed(ENDS)
    assert not told.follow()
    assert told.limit == 3
