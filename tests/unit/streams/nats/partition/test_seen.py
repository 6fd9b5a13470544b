from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.nats.partition.seen import MOST_RENEWED, Renewed, Seen

IDENTITIES = st.lists(st.one_of(st.integers(0, 5), st.sampled_from("ab")), max_size=5)
MESSAGES = st.lists(st.tuples(st.sampled_from([0, 1, 2, 5]), IDENTITIES), max_size=30)
# Of which few pause for a window.
CHAINS = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.integers(0, 1), max_size=2)), max_size=25
)


@given(MESSAGES)
def test_an_identity_passes_once_in_a_window_which_repetitions_do_not_renew(
    messages: list[tuple[int, list[int | str]]],
) -> None:
    seen = Seen(5.0)
    passed: dict[int | str, int] = {}
    now = 0
    for number, (pause, identities) in enumerate(messages, 1):
        now += pause
        repeated: set[int] = set()
        for place, identity in enumerate(identities):
            if now < passed.get(identity, -9) + 5:
                repeated.add(place)
            else:
                passed[identity] = now
        assert seen.repeats(identities, float(now), number) == repeated


def test_what_is_a_number_and_what_is_a_text_are_not_the_same() -> None:
    assert Seen(5.0).repeats([1, "1"], 0.0, 1) == set()


@given(st.one_of(MESSAGES, CHAINS), st.data())
def test_readers_that_begin_two_windows_before_a_floor_answer_as_one_that_has_read_all(
    messages: list[tuple[int, list[int | str]]], data: st.DataObject
) -> None:
    times = list(accumulate((float(pause) for pause, _ in messages), initial=0.0))[1:]
    answers: dict[int, set[int]] = {}
    floor, renewed = 0, list[Renewed]()
    while True:
        seen = Seen(5.0, renewed)
        begin = times[floor - 1] - 10 if floor else 0.0
        # It is lost when it has read so far, and its floor may be below that.
        end = data.draw(st.integers(floor, len(messages)))
        for number, (_, identities) in enumerate(messages[:end], 1):
            if times[number - 1] >= begin:
                found = seen.repeats(identities, times[number - 1], number)
                if number > floor:
                    assert answers.setdefault(number, found) == found
        if floor == len(messages):
            break
        floor = data.draw(st.integers(floor, end)) if end < len(messages) else end
        renewed = seen.renewed(times[floor - 1]) if floor else []
    whole = Seen(5.0)
    assert answers == {
        number: whole.repeats(identities, times[number - 1], number)
        for number, (_, identities) in enumerate(messages, 1)
    }


def test_notes_are_needed_for_two_windows() -> None:
    stored = [8.0, 11.0, 13.0, 17.0]
    first = Seen(5.0)
    answers = [first.repeats([1], at, number) for number, at in enumerate(stored)]
    assert answers == [set(), {0}, set(), {0}]
    # 20 - 2 * 5 s is after the first message, 13 before the last window, and then all is forgotten.
    second = Seen(5.0, first.renewed(20.0))
    assert [second.repeats([1], at, number) for number, at in enumerate(stored) if number]
    assert second.repeats([1], 21.0, 4) == set()


def test_so_many_renewed_identities_are_remembered() -> None:
    seen = Seen(2.0)
    for number in range(1, 40):
        seen.repeats(list(range(MOST_RENEWED // 4)), number * 1.5, number)
    assert sum(len(one.places) for one in seen.renewed(0.0)) == MOST_RENEWED
    assert seen.renewed(39 * 1.5)[0].stored >= 39 * 1.5 - 4.0
