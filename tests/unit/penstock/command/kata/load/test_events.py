from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.kata import DUPLICATE_WINDOW, FIRST_CLIENT, Load

loads = st.builds(
    Load,
    rate=st.floats(1, 500),
    clients=st.integers(1, 50),
    duplicates=st.floats(0, 1),
    seconds=st.floats(0, 15),
    seed=st.integers(),
).filter(lambda load: len(load) <= 1500)


@given(loads)
def test_one_event_is_due_in_each_period_of_the_rate(load: Load) -> None:
    schedule = list(load)
    assert len(schedule) == len(load) == round(load.rate * load.seconds)
    for position, (due, _) in enumerate(schedule):
        assert position / load.rate <= due <= (position + 1) / load.rate


@given(loads)
def test_events_have_random_uuids(load: Load) -> None:
    for _, event in islice(load, 20):
        found = UUID(event["uuid"])
        assert (str(found), found.version, found.variant) == (event["uuid"], 4, RFC_4122)


@given(loads)
def test_events_are_ordered_by_due_time(load: Load) -> None:
    dues = [due for due, _ in load]
    assert dues == sorted(dues)


def repeated(load: Load) -> int:
    uuids = Counter(event["uuid"] for _, event in load)
    return sum(uuids.values()) - len(uuids)


def asked_for(load: Load) -> int:
    # The first event has nothing to repeat.
    return min(round(len(load) * load.duplicates), max(0, len(load) - 1))


@given(loads.filter(lambda load: load.seconds < 9.9))
def test_the_share_of_duplicates_is_exact_within_the_window(load: Load) -> None:
    assert repeated(load) == asked_for(load)


@given(loads)
def test_the_share_of_duplicates_is_never_exceeded(load: Load) -> None:
    assert repeated(load) <= asked_for(load)


def test_the_share_of_duplicates_is_exact_in_a_long_load_of_the_usual_rate() -> None:
    assert repeated(Load(seconds=30)) == 300


def test_a_load_of_nothing_but_duplicates_needs_a_new_event_in_each_window() -> None:
    load = Load(duplicates=1, seconds=30)
    assert len(load) - repeated(load) == 3


@given(loads)
def test_a_duplicate_repeats_uuid_and_client_of_an_event_of_the_last_ten_seconds(
    load: Load,
) -> None:
    first: dict[str, tuple[float, int]] = {}
    for due, event in load:
        sent, client = first.setdefault(event["uuid"], (due, event["client_id"]))
        assert due - sent < DUPLICATE_WINDOW
        assert event["client_id"] == client


def test_duplicates_come_up_to_the_end_of_the_window() -> None:
    first: dict[str, float] = {}
    distances = [
        due - first.setdefault(event["uuid"], due)
        for due, event in Load(duplicates=0.5, seconds=90)
    ]
    assert 9.99 < max(distances) < DUPLICATE_WINDOW


@given(loads)
def test_each_client_has_its_deliveries_numbered_from_zero(load: Load) -> None:
    sequences: defaultdict[int, list[int]] = defaultdict(list)
    for _, event in load:
        sequences[event["client_id"]].append(event["sequence"])
    assert all(numbers == list(range(len(numbers))) for numbers in sequences.values())
    assert sequences.keys() <= set(range(FIRST_CLIENT, FIRST_CLIENT + load.clients))


@given(loads)
def test_the_same_seed_makes_the_same_schedule_each_time(load: Load) -> None:
    assert list(load) == list(load)


def test_another_seed_makes_other_events() -> None:
    assert {event["uuid"] for _, event in Load(seed=1)}.isdisjoint(
        event["uuid"] for _, event in Load(seed=2)
    )


@given(loads, st.floats(0, 1e6))
def test_created_is_the_due_time_after_the_start(load: Load, start: float) -> None:
    assert all(event["created"] == start + due for due, event in load.schedule(start))


def test_all_clients_of_the_default_load_get_events() -> None:
    assert {event["client_id"] for _, event in Load()} == set(range(1000, 1100))


def test_a_load_too_slow_to_repeat_anything_within_the_window_sends_new_events() -> None:
    load = Load(rate=1e-4, duplicates=1, seconds=5e5)
    assert len({event["uuid"] for _, event in load}) == 50


def test_a_load_without_end_in_sight_can_be_begun_at_once() -> None:
    load = Load(duplicates=0, seconds=1e9)
    assert [event["sequence"] for _, event in islice(load, 1)] == [0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate", 0),
        ("rate", float("nan")),
        ("clients", 0),
        ("duplicates", -0.1),
        ("duplicates", 1.1),
        ("seconds", -1),
        ("seconds", float("inf")),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        Load(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
