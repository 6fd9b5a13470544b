from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.nats.partition.seen import Seen

IDENTITIES = st.lists(st.one_of(st.integers(0, 5), st.sampled_from("ab")), max_size=5)
MESSAGES = st.lists(st.tuples(st.sampled_from([0, 1, 2, 5]), IDENTITIES), max_size=30)


@given(MESSAGES)
def test_an_identity_passes_once_in_a_window_which_repetitions_do_not_renew(
    messages: list[tuple[int, list[int | str]]],
) -> None:
    seen = Seen(5.0)
    passed: dict[int | str, int] = {}
    now = 0
    for pause, identities in messages:
        now += pause
        repeated: set[int] = set()
        for place, identity in enumerate(identities):
            if now < passed.get(identity, -9) + 5:
                repeated.add(place)
            else:
                passed[identity] = now
        assert seen.repeats(identities, float(now)) == repeated


def test_what_is_a_number_and_what_is_a_text_are_not_the_same() -> None:
    assert Seen(5.0).repeats([1, "1"], 0.0) == set()
