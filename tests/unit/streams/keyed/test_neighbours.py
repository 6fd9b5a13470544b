"""The sample of distances between the events of a group."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, from_iterable, group_by, run, spread


def spread_out(keys: list[int], buffer: int = 1024) -> tuple[list[int], dict[int, int]]:
    """The keys in the order in which their events leave, and the distances that were counted."""
    out: list[int] = []
    # A new object for each event, as from a file.
    rows = from_iterable([(str(key), key) for key in keys])
    pipeline = rows.pipe(group_by(lambda row: row[0], buffer=buffer), spread())
    report = run(pipeline.map(lambda row: row[1]).to(collect(out)))
    distances: dict[int, int] = report.statistics["stages"][2]["distances"]
    return out, distances


@given(st.lists(st.integers(0, 5), max_size=200), st.sampled_from([1, 4, 1024]))
def test_each_counted_distance_is_one_of_two_neighbours_of_a_group(
    keys: list[int], buffer: int
) -> None:
    out, distances = spread_out(keys, buffer)
    places: dict[int, int] = {}
    true = Counter[int]()
    for place, key in enumerate(out):
        if key in places:
            true[place - places[key]] += 1
        places[key] = place
    below_16 = {distance: count for distance, count in distances.items() if distance < 16}
    assert not Counter(below_16) - true


def test_about_one_group_in_eight_is_counted_where_all_have_events() -> None:
    _, distances = spread_out([number % 5 for number in range(1000)])
    assert distances.keys() == {5}
    assert 1000 / 5 / 8 * 0.8 < distances[5] < 1000 / 5 / 8 * 1.2


def test_a_group_that_ends_has_no_neighbour_even_if_its_queue_is_used_again() -> None:
    assert spread_out(list(range(1000)), buffer=4)[1] == {}
    # The same key comes back when its group has ended.
    assert spread_out([0, 1, 2, 3] * 100, buffer=1)[1] == {}


def test_the_distances_of_one_group_after_another_are_one() -> None:
    assert spread_out([0] * 500, buffer=1024)[1].keys() == {1}
