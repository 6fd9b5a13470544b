"""The states of a machine from which something can continue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal.monitors.continuations import leading_on

STATES = 7

graphs = st.lists(
    st.sets(st.integers(0, STATES - 1), min_size=1, max_size=3), min_size=STATES, max_size=STATES
)


def reached(successors: list[set[int]], state: int) -> set[int]:
    found = {state}
    work = [state]
    for one in work:
        new = successors[one] - found
        found |= new
        work += new
    return found


@given(graphs, st.sets(st.integers(0, STATES - 1)))
def test_it_goes_on_from_all_that_lead_to_where_it_does(
    successors: list[set[int]], good: set[int]
) -> None:
    def goes_on(state: int) -> bool:
        return not reached(successors, state).isdisjoint(good)

    assert leading_on(successors, goes_on) == {one for one in range(STATES) if goes_on(one)}


def test_nothing_is_asked_of_states_behind_one_from_which_nothing_goes_on() -> None:
    asked: list[int] = []
    chain = [{at + 1} for at in range(9)]

    def goes_on(state: int) -> bool:
        asked.append(state)
        return False

    assert leading_on([*chain, {9}], goes_on) == set()
    assert asked == [9, 0]
