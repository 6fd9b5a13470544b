from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock import adaptive_flat_map
from penstock.streams.base.errors import BuildError
from penstock.streams.limits import (
    ArrivalLimiter,
    Fixed,
    HillClimb,
    Limiter,
    Outcome,
    Shared,
    default,
)


def test_a_fixed_limit_stays_whatever_happens() -> None:
    limiter = Fixed(3)
    for outcome in Outcome:
        limiter.on_complete(1.0, 0.0, 3, outcome)
    assert (limiter.limit, limiter.floor, limiter.ceiling) == (3, 3, 3)


def test_a_limiter_of_ones_own_needs_a_limit_and_one_method() -> None:
    class Backwards:
        limit = 10

        def on_complete(
            self, now: float, started: float, in_flight_at_start: int, outcome: Outcome
        ) -> None:
            self.limit = max(1, self.limit - 1)

    limiter: Limiter = Backwards()
    limiter.on_complete(1.0, 0.0, 1, Outcome.SUCCESS)
    assert limiter.limit == 9


def test_only_the_hill_climb_measures_from_arrival() -> None:
    limiters = [Fixed(1), HillClimb(), default()]
    assert [isinstance(limiter, ArrivalLimiter) for limiter in limiters] == [False, True, False]


def test_an_outcome_is_written_as_its_word() -> None:
    assert [str(outcome) for outcome in Outcome] == ["success", "ignored", "dropped"]


def test_every_call_of_default_gives_a_limiter_of_its_own() -> None:
    assert default() is not default()


BAD_VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: Fixed(0), "the limit of Fixed must be at least 1, got 0"),
    (lambda: Fixed(-4), "the limit of Fixed must be at least 1, got -4"),
    (lambda: default(floor=0), "floor must be at least 1, got 0"),
    (lambda: default(ceiling=-1), "ceiling must be at least 1, got -1"),
    (
        lambda: default(floor=9, ceiling=8),
        "floor must not be above ceiling, got floor=9 and ceiling=8",
    ),
    (lambda: HillClimb(1.5, 0.1), "learning_rate must be from 0 to 1, got 1.5"),
    (lambda: HillClimb(0.1, -0.1), "exploration_rate must be from 0 to 1, got -0.1"),
    (lambda: HillClimb(0.1, float("nan")), "exploration_rate must be from 0 to 1, got nan"),
    (lambda: HillClimb(ceiling=0), "ceiling must be at least 1, got 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD_VALUES)
def test_a_value_out_of_range_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        make()
    assert str(caught.value) == message


BAD_TYPES: list[tuple[Callable[[], object], str]] = [
    (lambda: Fixed(2.5), "the limit of Fixed must be an int, got 2.5"),  # type: ignore[arg-type]  # the test
    (lambda: Fixed(True), "the limit of Fixed must be an int, got True"),
    (lambda: Fixed("8"), "the limit of Fixed must be an int, got '8'"),  # type: ignore[arg-type]  # the test
    (lambda: default(floor=1.0), "floor must be an int, got 1.0"),  # type: ignore[arg-type]  # the test
    (lambda: HillClimb("fast"), "learning_rate must be a number, got 'fast'"),  # type: ignore[arg-type]  # the test
]


@pytest.mark.parametrize(("make", "message"), BAD_TYPES)
def test_a_value_of_the_wrong_type_is_refused_by_name(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(BuildError) as caught:
        make()
    assert str(caught.value) == message


_GIVE = (
    "give a number, a pair (floor, ceiling), a limiter such as HillClimb(), "
    "or nothing for the default"
)
_CALL = "this makes limiters but is not one: call it, as in Fixed(8) or default()"


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ((0, 4), "limit=(0, 4): floor must be at least 1, got 0"),
        ((9, 8), "limit=(9, 8): floor must not be above ceiling, got floor=9 and ceiling=8"),
        ((1,), "limit=(1,): a pair (floor, ceiling) has two numbers"),
        ((1, 2, 3), "limit=(1, 2, 3): a pair (floor, ceiling) has two numbers"),
        ((1, "x"), "limit=(1, 'x'): ceiling must be an int, got 'x'"),
        ((-3, 4), "limit=(-3, 4): floor must be at least 1, got -3"),
        ((3, -4), "limit=(3, -4): ceiling must be at least 1, got -4"),
        ((True, 4), "limit=(True, 4): floor must be an int, got True"),
        ((0, 0), "limit=(0, 0): the limit of Fixed must be at least 1, got 0"),
        *((wrong, f"limit={wrong!r}: {_GIVE}") for wrong in (8.0, "8", True, [1, 2])),
        *((n, f"limit={n}: the limit of Fixed must be at least 1, got {n}") for n in (0, -1)),
        (Fixed, f"limit=Fixed: {_CALL}"),
        (Shared, f"limit=Shared: {_CALL}"),
        (default, f"limit=default: {_CALL}"),
    ],
)
def test_an_invalid_limit_is_refused_when_the_pipeline_is_built(limit: Any, told: str) -> None:
    async def work(value: int) -> int:
        return value

    with pytest.raises(BuildError) as caught:
        adaptive_flat_map(work, limit=limit)
    assert str(caught.value) == told


@pytest.mark.parametrize("method", ["on_complete", "on_completions", "on_arrive", "on_depart"])
def test_a_limiter_that_would_have_to_be_awaited_is_refused(method: str) -> None:
    async def work(value: int) -> int:
        return value

    def generator(*told: object) -> Iterator[object]:
        yield told

    for function in (work, generator):
        later = type("Later", (HillClimb,), {method: function})()
        with pytest.raises(BuildError, match=rf"{method} is an async function or a generator"):
            adaptive_flat_map(work, limit=later)
