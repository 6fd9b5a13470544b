from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from orjson import dumps, loads

from penstock.streams.nats.partition.doubt import Doubt

ATTEMPTS = st.integers(1, 5)


@given(ATTEMPTS)
def test_an_event_that_ends_each_worker_is_certain_after_its_attempts_and_two_at_least(
    attempts: int,
) -> None:
    doubt = Doubt().after_a_loss(8, attempts, 0)
    lost = 1
    while not doubt.is_certain("3.0", attempts):
        alone = doubt.cost("3.0") >= attempts - 1
        doubt = doubt._replace(trying="3.0", alone=alone).after_a_loss(8, attempts, 0)
        lost += 1
    assert lost == max(attempts, 2)


@given(ATTEMPTS, st.lists(st.sampled_from(["1.0", "2.0", "2.1"]), max_size=20))
def test_an_event_that_was_never_alone_is_never_certain(attempts: int, lost: list[str]) -> None:
    doubt = Doubt()
    for event in lost:
        doubt = doubt.after_a_loss(8, attempts, 0)._replace(trying=event)
    doubt = doubt.after_a_loss(8, attempts, 0)
    assert not any(doubt.is_certain(event, attempts) for event in lost)


@given(
    st.integers(0, 9),
    st.sampled_from(["", "7.1"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(["7.1", "8.0"]), st.integers(2, 4)),
)
def test_a_doubt_is_read_as_it_was_written(
    left: int, trying: str, alone: bool, tries: dict[str, int]
) -> None:
    doubt = Doubt(left, trying, alone, tuple(tries.items()))
    assert Doubt.of(loads(dumps(doubt.said()))) == doubt
    assert Doubt().said() == {}


def test_what_is_below_the_floor_is_forgotten() -> None:
    doubt = Doubt(tries=(("3.0", 2), ("9.1", 2)))
    assert doubt.after_a_loss(8, 3, 5).tries == (("9.1", 2),)


def test_all_that_a_lost_worker_may_have_had_is_in_doubt() -> None:
    doubt = Doubt(window=500).after_a_loss(8, 3, 0)
    assert (doubt.left, doubt.window) == (500, 8)
    assert doubt.cleared("1.0") == Doubt(499, window=8)
    assert Doubt(window=5).after_a_loss(8, 3, 0).left == 8
