"""Every limiter keeps the laws, except for the known flaws of the published ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from penstock.streams.limits import Completion, Fixed, HillClimb, Limiter, Outcome, default
from penstock.streams.testing.limiter_laws import (
    LAWS,
    Law,
    LawBroken,
    check,
    counts_in_lists_as_one_by_one,
    falls_when_everything_is_dropped,
    is_not_raised_while_it_is_not_used,
    recovers,
    repeats_itself,
    stays_within_its_bounds,
    survives_odd_clocks,
)

LIMITERS: dict[str, Callable[[], Limiter]] = {
    "default": lambda: default(1, 100),
    "HillClimb": lambda: HillClimb(ceiling=100),
    "Fixed": lambda: Fixed(8),
}

FLAWS: set[tuple[str, Law]] = {
    # Drops do not count for it.
    ("HillClimb", falls_when_everything_is_dropped),
    # The drift that its author noticed.
    ("HillClimb", is_not_raised_while_it_is_not_used),
    ("Fixed", falls_when_everything_is_dropped),
}

CASES = [pytest.param(name, law, id=f"{name}-{law.__name__}") for name in LIMITERS for law in LAWS]


@pytest.mark.parametrize(("name", "law"), CASES)
def test_a_limiter_keeps_a_law_or_is_known_to_break_it(name: str, law: Law) -> None:
    if (name, law) in FLAWS:
        with pytest.raises(LawBroken):
            law(LIMITERS[name], 1, 100)
    else:
        law(LIMITERS[name], 1, 100)


@pytest.mark.parametrize(("floor", "ceiling"), [(1, 1), (1, 2), (5, 9), (20, 1000)])
def test_the_default_keeps_the_laws_between_any_bounds(floor: int, ceiling: int) -> None:
    check(lambda: default(floor, ceiling), floor, ceiling)


class Growing:
    """Always one more."""

    def __init__(self) -> None:
        self.limit = 1

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.limit += 1


class Remembering(Growing):
    """One object for all: its behaviour depends on earlier runs."""


class Resigned(Growing):
    """Falls at a drop, for good."""

    resigned = False

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        if outcome is Outcome.DROPPED:
            self.resigned, self.limit = True, 1
        elif not self.resigned and self.limit < 20:
            self.limit += 1


@pytest.mark.parametrize(
    ("law", "told"),
    [
        (stays_within_its_bounds, "the limit was 101, which is not from 1 to 100"),
        (is_not_raised_while_it_is_not_used, "the limit rose to 3001, which is above 2"),
        (falls_when_everything_is_dropped, "everything was dropped, and the limit rose from"),
    ],
)
def test_a_limiter_that_always_grows_is_reported_with_what_is_wrong(law: Law, told: str) -> None:
    with pytest.raises(LawBroken, match=told):
        law(Growing, 1, 100)


def test_a_check_names_the_law_that_is_broken_as_it_is_left_out() -> None:
    with pytest.raises(LawBroken, match="everything was dropped") as broken:
        check(lambda: Fixed(8), 1, 100)
    name = "falls_when_everything_is_dropped"
    assert broken.value.__notes__ == [f"the law is `{name}`, which `but=[{name}]` leaves out"]


def test_what_is_left_out_is_a_law() -> None:
    but: Any = ["recovers"]
    told = r"but=\['recovers'\]: 'recovers' is not one of the laws: stays_within_its_bounds, "
    with pytest.raises(ValueError, match=told):
        check(lambda: Fixed(8), 1, 100, but=but)


def test_a_limiter_that_never_recovers_is_reported() -> None:
    with pytest.raises(LawBroken, match="after an outage the limit was 1, not 20"):
        recovers(Resigned, 1, 100)


def test_a_limiter_that_goes_on_from_the_last_run_is_reported() -> None:
    one = Remembering()
    with pytest.raises(LawBroken, match=r"gave 2 once and 2002 the other time, at completion 1$"):
        repeats_itself(lambda: one, 1, 10**6)


class Forgetful(Growing):
    """Uses only the last completion of a list."""

    def on_completions(self, completions: list[Completion]) -> None:
        self.on_complete(*completions[-1])


class Particular(Growing):
    """Does not take lists of more than one."""

    def on_completions(self, completions: list[Completion]) -> None:
        (one,) = completions
        self.on_complete(*one)


@pytest.mark.parametrize(
    ("limiter", "told"),
    [
        (Forgetful, r"reported in lists, the limit was \d+, and \d+ when reported one by one"),
        (Particular, "of a list it raised ValueError"),
    ],
)
def test_a_limiter_that_counts_differently_in_lists_is_reported(
    limiter: Callable[[], Limiter], told: str
) -> None:
    with pytest.raises(LawBroken, match=told):
        counts_in_lists_as_one_by_one(limiter, 1, 10**6)


class Dividing(Growing):
    """Divides by the time that a call took."""

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.limit = max(1, min(100, int(1 / (now - started))))


def test_a_limiter_that_fails_on_work_of_no_duration_is_reported() -> None:
    with pytest.raises(LawBroken, match="on an odd clock it raised ZeroDivisionError"):
        survives_odd_clocks(Dividing, 1, 100)


def test_a_law_that_is_known_to_be_broken_can_be_left_out() -> None:
    with pytest.raises(LawBroken):
        check(lambda: Fixed(8), 1, 100)
    check(lambda: Fixed(8), 1, 100, but=[falls_when_everything_is_dropped])


class Doubling(Growing):
    """Always twice as many: more than there is memory for, soon."""

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.limit *= 2


class Turning(Growing):
    """Becomes something else at its fiftieth completion."""

    def __init__(self, other: object) -> None:
        super().__init__()
        self.told = 0
        self._other = other

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
    ) -> None:
        self.told += 1
        if self.told == 50:
            if isinstance(self._other, Exception):
                raise self._other
            setattr(self, "limit", self._other)  # noqa: B010  No type checker accepts this otherwise.


class Asynchronous(Growing):
    async def on_complete(self, *told: object) -> None:  # type: ignore[override]
        self.limit += 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("make", "told"),
    [
        *((partial(Turning, it), "a limit is a whole number") for it in (None, "8", nan, inf, 2.5)),
        (partial(Turning, ZeroDivisionError("mine")), r"it raised ZeroDivisionError\('mine'\)$"),
        (Asynchronous, "on_complete is an async function or a generator"),
    ],
    ids=["nothing", "text", "nan", "infinite", "half", "raises", "async"],
)
def test_a_broken_limiter_is_reported_by_every_law(law: Law, make: Any, told: str) -> None:
    with pytest.raises(LawBroken, match=told):
        law(make, 1, 100)


def test_a_limiter_that_grows_without_end_ends_every_law() -> None:
    for law in LAWS:
        with suppress(LawBroken):
            law(Doubling, 1, 100)
    with pytest.raises(LawBroken, match="the limit was 128, which is not from 1 to 100"):
        check(Doubling, 1, 100)
