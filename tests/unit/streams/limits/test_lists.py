"""The default decides the same, however completions are cut into lists."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.limits import Completion, Outcome, default

FLOORS_AND_CEILINGS = [(1, 1000), (1, 8), (4, 64), (8, 8)]

SHARES = {
    "success": (1.0, 0.0, 0.0),
    "some errors": (0.9, 0.1, 0.0),
    "some drops": (0.9, 0.02, 0.08),
    "mostly drops": (0.3, 0.1, 0.6),
}
"""Weights of the outcomes: success, ignored, dropped."""


def completions(draw: random.Random, shares: tuple[float, ...], sort: str) -> list[Completion]:
    """Some thousand, in the order of their ends, and now and then on an odd clock."""
    now, in_flight, made = 100.0, 0, list[Completion]()
    spread, odd = draw.choice([0.0, 0.3, 1.0]), draw.choice([0.0, 0.0, 0.02])
    top = 16
    for _ in range(3000):
        if draw.random() < 0.7:
            now += draw.expovariate(20)
        took = 0.1 * draw.lognormvariate(0, spread)
        if draw.random() < odd:
            now += draw.choice([-5.0, -0.01, 50.0])
            took = draw.choice([0.0, -0.1, took])
        if draw.random() < 0.002:
            top = draw.choice([1, 2, 4, 8, 16, 32, 64])
        if sort == "full":
            in_flight = 1000
        elif sort == "refills":
            in_flight = in_flight % top + 1
        else:
            in_flight = draw.randint(1, 2 * top)
        outcome = draw.choices(list(Outcome), shares)[0]
        made.append((now, now - took, in_flight, outcome))
    return made


SUMS = {
    ("full", "success"): 2850455,
    ("full", "some errors"): 2776652,
    ("full", "some drops"): 2142679,
    ("full", "mostly drops"): 42357,
    ("refills", "success"): 234836,
    ("refills", "some errors"): 397965,
    ("refills", "some drops"): 289367,
    ("refills", "mostly drops"): 210478,
    ("mixed", "success"): 341854,
    ("mixed", "some errors"): 859666,
    ("mixed", "some drops"): 360081,
    ("mixed", "mostly drops"): 42081,
}
"""Digests of the limits after each completion, from the default when it took only single ones."""


@pytest.mark.parametrize(("sort", "name"), SUMS)
def test_after_each_list_the_limit_is_the_one_of_as_many_single_completions(
    sort: str, name: str
) -> None:
    total, moves, shares = 0, set[int](), SHARES[name]
    for seed, (floor, ceiling) in enumerate(FLOORS_AND_CEILINGS):
        draw = random.Random(f"{shares} {sort} {seed}")
        one, lists = default(floor, ceiling), default(floor, ceiling)
        left = completions(draw, shares, sort)
        while left:
            size = draw.randint(1, 40)
            some, left = left[:size], left[size:]
            for completion in some:
                one.on_complete(*completion)
                total += one.limit
            lists.on_completions(some)
            assert (lists.limit, lists.reason, lists.mode) == (one.limit, one.reason, one.mode)
            moves.add(one.limit)
    assert len(moves) > 3
    assert total == SUMS[sort, name]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.floats(-1e3, 1e6),
                st.floats(-1e3, 1e6),
                st.integers(1, 20),
                st.sampled_from(Outcome),
            ),
            max_size=20,
        ),
        max_size=20,
    )
)
def test_nor_does_it_matter_what_the_completions_are(lists: list[list[Completion]]) -> None:
    one, many = default(1, 16), default(1, 16)
    for some in lists:
        for completion in some:
            one.on_complete(*completion)
        many.on_completions(some)
        assert (many.limit, many.reason, many.mode) == (one.limit, one.reason, one.mode)


def test_a_list_is_neither_changed_nor_kept() -> None:
    limiter, ends = default(), [(1.0, 0.5, 1, Outcome.SUCCESS), (2.0, 1.0, 1, Outcome.SUCCESS)]
    limiter.on_completions(ends)
    assert ends == [(1.0, 0.5, 1, Outcome.SUCCESS), (2.0, 1.0, 1, Outcome.SUCCESS)]
    before = limiter.limit
    ends.clear()
    limiter.on_completions(ends)
    assert limiter.limit == before
