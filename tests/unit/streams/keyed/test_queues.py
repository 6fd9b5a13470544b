"""The keyed queues by themselves, and compared with a simple model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams.base.keys import Key
from penstock.streams.keyed.overflow import Overflow
from penstock.streams.keyed.queues import KeyedQueues, close_turns, hand_over, open_turns, release
from penstock.streams.protocol.acknowledgement import Nobody
from penstock.streams.protocol.event import Event, finish_all, give_back_all
from penstock.streams.protocol.stage_info import StageInfo

NOBODY = Nobody()


def event(value: Any) -> Event[Any]:
    return Event(value, 0.0, NOBODY)


def events(*values: Any) -> list[Event[Any]]:
    return [event(value) for value in values]


def values(taken: list[Event[Any]]) -> list[Any]:
    return [one.value for one in taken]


def turns(taken: list[Event[Any]]) -> list[Any]:
    return [one.turn for one in taken]


def all_fits() -> Overflow:
    """An overflow of a stage whose keys may wait in the whole buffer."""
    run: Any = None
    return Overflow(run, StageInfo("group_by"), 1, "wait", 1, 1)


def queues(*first: Any, feeders: int | None = None) -> KeyedQueues:
    made = KeyedQueues(Key(0), lambda: None, all_fits(), feeders)
    made.put(events(*first))
    return made


def in_turn(made: KeyedQueues) -> list[Any]:
    """The output, one at a time, each processed before the next."""
    seen: list[Any] = []
    while taken := made.take(1):
        seen += values(taken)
        release(turns(taken))
    return seen


# Rotation.


def test_one_event_of_each_waiting_group_is_taken_in_the_order_in_which_they_came() -> None:
    made = queues("b1", "a1", "b2", "c1", "a2")
    assert values(made.take(9)) == ["b1", "a1", "c1"]
    assert made.take(9) == []
    assert made.waiting == 2


def test_no_more_are_taken_than_wanted_and_the_next_ones_begin_where_it_stopped() -> None:
    made = queues("a1", "b1", "c1", "a2")
    assert values(made.take(2)) == ["a1", "b1"]
    assert values(made.take(2)) == ["c1"]


def test_a_group_goes_to_the_end_of_the_line_when_its_turn_ends() -> None:
    made = queues("a1", "a2", "a3", "b1", "b2", "c1")
    assert in_turn(made) == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.mark.parametrize(
    ("feeders", "order"),
    [
        (1, "a1 a2 a3 b1 c1 c2 c3"),
        (2, "a1 b1 a2 c1 a3 c2 c3"),
        (3, "a1 b1 c1 a2 c2 a3 c3"),
        (4, "a1 b1 c1 a2 c2 a3 c3"),
    ],
)
def test_feeders_work_on_as_many_groups_and_open_the_next_when_one_runs_empty(
    feeders: int, order: str
) -> None:
    made = queues("a1", "a2", "a3", "b1", "c1", "c2", "c3", feeders=feeders)
    assert " ".join(in_turn(made)) == order


def test_a_group_is_not_opened_before_a_feeder_is_free() -> None:
    made = queues("a1", "b1", "c1", feeders=1)
    first = made.take(9)
    assert (values(first), made.outside) == (["a1"], 2)
    # It has run empty, and its turn is still held.
    assert made.take(9) == []
    release(turns(first))
    assert (values(made.take(9)), made.outside) == (["b1"], 1)


def test_what_leaves_groups_is_noted_with_the_queues_that_end() -> None:
    made = KeyedQueues(Key(0), lambda: None, all_fits(), leaves=True)
    made.put(events("a1", "b1", "a2"))
    first = made.take(9)
    assert (made.taken, made.ended) == (["a", "b"], [])
    release(turns(first))
    assert made.ended == ["b"]
    release(turns(made.take(9)))
    assert (made.taken, made.ended, list(made.keys)) == (["a", "b", "a"], ["b", "a"], [])


# Turns.


def test_no_event_of_a_group_is_taken_while_its_turn_is_held() -> None:
    made = queues("a1", "a2")
    first = made.take(9)
    assert made.take(9) == []
    made.put(events("a3"))
    assert made.take(9) == []
    release(turns(first))
    assert values(made.take(9)) == ["a2"]


def test_a_turn_that_is_shared_ends_with_its_last_share() -> None:
    made = queues("a1", "a2")
    (turn,) = turns(made.take(1))
    turn.holders += 2
    release([turn, turn])
    assert made.take(9) == []
    release([turn])
    assert values(made.take(9)) == ["a2"]


def test_groups_whose_turns_end_together_are_all_in_line_before_the_next_event_goes() -> None:
    lines: list[list[Any]] = []
    made = KeyedQueues(Key(0), lambda: lines.append(values(made.take(9))), all_fits())
    made.put(events("a1", "b1", "a2", "b2"))
    release(turns(made.take(9))[::-1])
    assert lines == [["b2", "a2"]]


@pytest.mark.parametrize("end", [finish_all, give_back_all])
def test_the_turns_of_events_that_end_together_end_together(end: Any) -> None:
    ready: list[int] = []
    made = KeyedQueues(Key(0), lambda: ready.append(made.ready), all_fits())
    made.put(events("a1", "b1", "c1", "a2", "b2"))
    taken = made.take(3)
    end(taken)
    assert ready == [2]
    assert turns(taken) == [None, None, None]
    assert values(made.take(9)) == ["a2", "b2"]


def test_turns_of_two_stages_that_end_together_make_room_each_in_its_own_queues() -> None:
    one, other = queues("a1", "a2"), queues("a3", "a4")
    release(turns(one.take(1) + other.take(1)))
    assert (values(one.take(9)), values(other.take(9))) == (["a2"], ["a4"])


def test_a_turn_that_an_event_held_before_ends_with_the_one_that_it_got_here() -> None:
    outer, inner = queues("a1", "a2"), KeyedQueues(Key(1), lambda: None, all_fits())
    inner.put(outer.take(1))
    (turn,) = turns(inner.take(1))
    assert outer.take(1) == []
    release([turn])
    assert values(outer.take(1)) == ["a2"]
    assert (len(inner), len(outer)) == (0, 1)


def test_all_turns_end_although_the_next_event_reaches_a_function_that_raises() -> None:
    def raises() -> None:
        raise KeyboardInterrupt

    outer, other = queues("a1", "a2"), queues("b1", "b2")
    inner = KeyedQueues(Key(1), raises, all_fits())
    inner.put(outer.take(1))
    with pytest.raises(KeyboardInterrupt):
        release(turns(inner.take(1) + other.take(1)))
    assert (values(outer.take(1)), values(other.take(1))) == (["a2"], ["b2"])


def test_what_was_made_of_several_events_has_the_turns_of_all() -> None:
    made = queues("a1", "b1", "a2", "b2")
    turn = hand_over(made.take(9))
    assert made.take(9) == []
    release([turn])
    assert values(made.take(9)) == ["a2", "b2"]


def test_a_group_lives_only_while_it_holds_an_event_or_a_turn() -> None:
    made = queues("a1")
    assert len(made) == 1
    taken = made.take(1)
    assert (len(made), made.held) == (1, 1)
    release(turns(taken))
    assert (len(made), made.held, made.fullest(1)) == (0, 0, [])


# Turns that are open.


def test_the_holder_of_an_open_turn_gets_more_of_its_group_when_no_other_waits() -> None:
    made = queues("a1", "a2", "a3", "b1", "b2", "c1", "c2")
    batch = made.take(2)
    made.open(turns(batch))
    assert values(made.take(3)) == ["c1", "a2", "b2"]
    assert values(made.take(9)) == ["a3"]
    made.put(events("b3"))
    assert values(made.take(9)) == ["b3"]


def test_a_turn_that_is_closed_is_as_any_other_that_is_held() -> None:
    made = queues("a1", "a2", "a3")
    batch = made.take(1)
    open_turns(turns(batch))
    batch += made.take(1)
    close_turns(turns(batch))
    assert made.take(9) == []
    release(turns(batch))
    assert values(made.take(9)) == ["a3"]


def test_an_open_turn_that_ends_is_closed() -> None:
    made = queues("a1")
    batch = made.take(1)
    made.open(turns(batch))
    release(turns(batch))
    made.put(events("a2", "a3"))
    assert values(made.take(9)) == ["a2"]


# The rest.


def test_an_event_without_a_key_is_named_by_its_place_and_those_before_it_are_in() -> None:
    made = queues()
    refused = made.put(events("a1", "b1", None, "c1"))
    assert refused is not None
    place, error = refused
    assert (place, type(error), made.waiting) == (2, TypeError, 2)
    assert values(made.take(9)) == ["a1", "b1"]


def test_a_key_that_cannot_be_hashed_is_refused_as_well() -> None:
    refused = queues().put(events([[]]))
    assert refused is not None
    assert isinstance(refused[1], TypeError)


def test_closing_gives_all_that_waits_and_leaves_nothing_behind() -> None:
    made = queues("a1", "a2", "b1", "b2", "c1", feeders=1)
    held = made.take(1)
    assert values(made.close()) == ["a2", "b1", "b2", "c1"]
    assert (made.waiting, len(made), made.has_next, made.ready, made.outside) == (0, 0, False, 0, 0)
    release(turns(held))
    assert made.take(9) == []


def test_the_numbers_name_the_fullest_group() -> None:
    made = queues("a1", "b1", "b2", "c1", feeders=2)
    assert [(queue.key, len(queue.events)) for queue in made.fullest(1)] == [("b", 2)]
    assert (made.ready, made.outside, len(made), made.waiting) == (2, 1, 3, 4)


class Model:
    """The same, in the simplest form: lists that are searched."""

    def __init__(self, feeders: int | None) -> None:
        self.feeders = feeders
        self.waiting: dict[str, list[int]] = {}
        self.line: list[str] = []
        self.outside: list[str] = []
        self.shares: Counter[str] = Counter()
        self.open: set[str] = set()
        # Those of them with an event, in the order in which they got one.
        self.more: list[str] = []

    def _is_inside(self, key: str) -> bool:
        return key in self.waiting and key not in self.outside

    def put(self, key: str, number: int) -> None:
        if key not in self.waiting:
            inside = sum(map(self._is_inside, self.waiting))
            self.waiting[key] = []
            is_in = self.feeders is None or inside < self.feeders
            (self.line if is_in else self.outside).append(key)
        self.waiting[key].append(number)
        self._look_at(key)

    def take(self, n: int) -> list[tuple[str, int]]:
        taken: list[tuple[str, int]] = []
        while len(taken) < n and self.line:
            taken.append(self._next(self.line.pop(0)))
        while len(taken) < n and self.more:
            key = self.more.pop(0)
            taken.append(self._next(key))
            self._look_at(key)
        return taken

    def _look_at(self, key: str) -> None:
        if key in self.open and self.waiting[key] and key not in self.more:
            self.more.append(key)

    def open_turn(self, key: str) -> None:
        self.open.add(key)
        self._look_at(key)

    def close_turn(self, key: str) -> None:
        self.open.discard(key)
        if key in self.more:
            self.more.remove(key)

    def _next(self, key: str) -> tuple[str, int]:
        self.shares[key] += 1
        return key, self.waiting[key].pop(0)

    def withdraw(self, is_gone: Callable[[int], bool]) -> list[tuple[str, int]]:
        gone = [(key, one) for key, all in self.waiting.items() for one in all if is_gone(one)]
        emptied: list[str] = []
        for key, numbers in self.waiting.items():
            rest = [one for one in numbers if not is_gone(one)]
            if numbers and not rest:
                emptied.append(key)
            self.waiting[key] = rest
        self.more = [key for key in self.more if self.waiting[key]]
        gone_inside = 0
        for key in emptied:
            if self.shares[key]:
                continue
            gone_inside += key not in self.outside
            del self.waiting[key]
        self.line = [key for key in self.line if key in self.waiting]
        self.outside = [key for key in self.outside if key in self.waiting]
        self.line += self.outside[:gone_inside]
        del self.outside[:gone_inside]
        return gone

    def release(self, keys: list[str]) -> None:
        for key in keys:
            self.shares[key] -= 1
            if self.shares[key]:
                continue
            self.close_turn(key)
            if self.waiting[key]:
                self.line.append(key)
                continue
            del self.waiting[key]
            if self.outside:
                self.line.append(self.outside.pop(0))


@pytest.mark.parametrize("feeders", [None, 1, 2, 5])
def test_a_walk_at_random_gives_what_the_model_gives(
    feeders: int | None, pytestconfig: pytest.Config
) -> None:
    for number in range(150):
        walk(random.Random(f"{pytestconfig.option.seed} {feeders} {number}"), feeders)


STEPS = ["put", "put", "put", "take", "take", "release", "release", "open", "close", "share"]
STEPS += ["withdraw"]


def walk(rng: random.Random, feeders: int | None) -> None:
    made, model = queues(feeders=feeders), Model(feeders)
    held: list[Event[Any]] = []
    last: dict[str, int] = {}
    keys = "abcdefgh"[: rng.choice([1, 3, 8])]
    for number in range(rng.choice([20, 100])):
        match rng.choice(STEPS):
            case "put":
                new = [(rng.choice(keys), number) for _ in range(rng.randrange(4))]
                made.put(events(*new))
                for key, one in new:
                    model.put(key, one)
            case "take":
                n = rng.randrange(4)
                taken = made.take(n)
                assert values(taken) == model.take(n)
                for key, one in values(taken):
                    # In order within a group.
                    assert last.get(key, -1) <= one
                    last[key] = one
                held += taken
            case "release":
                ended = rng.sample(held, min(len(held), rng.randrange(4)))
                held = [one for one in held if one not in ended]
                release(turns(ended))
                model.release([one.value[0] for one in ended])
            case "open":
                if held:
                    one = rng.choice(held)
                    open_turns([one.turn])
                    model.open_turn(one.value[0])
            case "withdraw":
                gone = set(rng.sample(range(number + 1), rng.randrange(number + 2)))
                withdrawn = made.withdraw(lambda one, gone=gone: one.value[1] in gone)
                assert values(withdrawn) == model.withdraw(gone.__contains__)
            case "close":
                if held:
                    one = rng.choice(held)
                    close_turns([one.turn])
                    model.close_turn(one.value[0])
            case _:
                if held:
                    one = rng.choice(held)
                    assert one.turn is not None
                    one.turn.holders += 1
                    child = event(one.value)
                    child.turn = one.turn
                    held.append(child)
                    model.shares[one.value[0]] += 1
        assert made.waiting == sum(map(len, model.waiting.values()))
        assert len(made) == len(model.waiting)
        assert (made.ready, made.outside) == (len(model.line), len(model.outside))
        assert made.held == sum(map(bool, model.shares.values()))
    waiting = made.close()
    assert Counter(values(waiting)) == Counter(
        (key, number) for key, numbers in model.waiting.items() for number in numbers
    )
