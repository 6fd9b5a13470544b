from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from orjson import dumps, loads

from penstock.streams.nats.partition.above import Above, Known
from penstock.streams.nats.partition.arrival import Arrival

SIZE = 4
# The events of a message, of which each is done or not, and how many sequence numbers before it
# are of other partitions. More events than a message should hold may be in one.
MESSAGES = st.lists(
    st.tuples(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(0, 3)), max_size=12
)


def arrivals_of(messages: list[tuple[list[bool], int]]) -> list[Arrival]:
    anything: Any = None
    arrivals: list[Arrival] = []
    sequence = 7
    for done, others in messages:
        sequence += 1 + others
        arrival = Arrival(anything, sequence, 0, float(sequence), b"", "", len(done))
        arrival.left = done.count(False)
        if arrival.left:
            arrival.end([place for place, one in enumerate(done) if one])
        arrivals.append(arrival)
    return arrivals


@given(MESSAGES, st.integers(0, 12))
def test_the_next_owner_knows_what_is_done_above_the_floor_and_nothing_else(
    messages: list[tuple[list[bool], int]], read: int
) -> None:
    arrivals = arrivals_of(messages)
    last = arrivals[-1].sequence if arrivals else 7
    above = Known(Above(), SIZE).with_those(7, last, arrivals)
    above = Above.of(loads(dumps(above.said())))
    expected = [
        {place for place, one in enumerate(done) if one} if len(done) <= SIZE else set[int]()
        for done, _ in messages
    ]

    def known(above: Above) -> list[set[int]]:
        next_owner = Known(above, SIZE)
        return [next_owner.places(one.sequence, one.count) for one in arrivals]

    assert known(above) == expected
    # It says the same when it has read some of them again.
    again = arrivals[:read]
    last = again[-1].sequence if again else 0
    assert known(Known(above, SIZE).with_those(7, last, again)) == expected
    # The message by which a stream is recognised is one of these.
    times = {one.sequence: one.stored for one in arrivals} | {0: 0.0}
    assert times[above.sequence] == above.stored
    assert bool(above.sequence) == bool(above.text)


def test_what_does_not_fit_is_counted_and_the_first_of_it_is_noted() -> None:
    arrivals = arrivals_of([([True], 999), ([False], 999)] * 10_000)
    above = Known(Above(), 1).with_those(7, arrivals[-1].sequence, arrivals)
    known = Known(above, 1)
    noted = sum(len(known.places(one.sequence, 1)) for one in arrivals)
    assert 3_000 < noted < 10_000
    assert noted + above.left_out == 10_000
    assert len(above.text) <= 1 << 14
    assert known.places(arrivals[0].sequence, 1) == {0}


def test_an_entry_that_says_nothing_of_it_or_nothing_that_is_understood_is_read_as_none() -> None:
    assert Above.of({}) == Above()
    assert Above.of({"above": "x"}) == Above()
    assert not Known(Above(1, "?", 2, 3.0), 1)
