"""The limiters of the comparison keep the laws, except for their known flaws."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.limits.aimd import AIMD
from benchmarks.limits.gradient import Gradient
from benchmarks.limits.vegas import Vegas
from penstock.streams.base.errors import BuildError
from penstock.streams.limits import Limiter
from penstock.streams.testing.limiter_laws import (
    LAWS,
    Law,
    LawBroken,
    falls_when_everything_is_dropped,
)

LIMITERS: dict[str, Callable[[], Limiter]] = {
    "AIMD": lambda: AIMD(1, 100),
    "Gradient": lambda: Gradient(1, 100),
    "Vegas": lambda: Vegas(1, 100),
}

FLAWS: set[tuple[str, Law]] = {
    # Drops do not count for it.
    ("Gradient", falls_when_everything_is_dropped),
}

CASES = [pytest.param(name, law, id=f"{name}-{law.__name__}") for name in LIMITERS for law in LAWS]


@pytest.mark.parametrize(("name", "law"), CASES)
def test_a_limiter_keeps_a_law_or_is_known_to_break_it(name: str, law: Law) -> None:
    if (name, law) in FLAWS:
        with pytest.raises(LawBroken):
            law(LIMITERS[name], 1, 100)
    else:
        law(LIMITERS[name], 1, 100)


def test_what_succeeds_because_it_began_before_an_outage_may_raise_the_limit() -> None:
    # Some thousand calls are in the queue when the outage begins.
    falls_when_everything_is_dropped(lambda: AIMD(1, 1000), 1, 1000)


BAD_VALUES: list[tuple[Callable[[], object], str]] = [
    (lambda: AIMD(floor=0), "floor must be at least 1, got 0"),
    (lambda: AIMD(backoff=1.1), "backoff must be from 0 to 1, got 1.1"),
    (lambda: Gradient(3, 2), "floor must not be above ceiling, got floor=3 and ceiling=2"),
    (lambda: Gradient(queue=0), "queue must be at least 1, got 0"),
    (lambda: Vegas(ceiling=0), "ceiling must be at least 1, got 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD_VALUES)
def test_a_value_out_of_range_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BuildError) as caught:
        make()
    assert str(caught.value) == message
