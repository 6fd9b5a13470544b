from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.diagnostics.distances import Distances


def numbers(*distances: int) -> dict[int, int]:
    counted = Distances()
    for distance in distances:
        counted.count(distance)
    return counted.numbers()


@given(st.lists(st.integers(1, 15)))
def test_distances_below_16_are_exact_and_ascending(distances: list[int]) -> None:
    assert list(numbers(*distances).items()) == sorted(Counter(distances).items())


@given(st.integers(1, 2**60))
def test_a_distance_is_counted_as_one_that_is_at_most_an_eighth_smaller(distance: int) -> None:
    ((counted, times),) = numbers(distance).items()
    assert times == 1
    assert counted <= distance < counted * 9 / 8 or counted == distance


@given(st.lists(st.integers(1, 2**20), min_size=1))
def test_a_greater_distance_is_never_counted_as_a_smaller_one(distances: list[int]) -> None:
    counted = [next(iter(numbers(distance))) for distance in sorted(distances)]
    assert counted == sorted(counted)


def test_the_counts_have_a_bound_whatever_is_counted() -> None:
    distances = range(1, 2**16)
    assert len(numbers(*distances)) <= 15 + 8 * 12
