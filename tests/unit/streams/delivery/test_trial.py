"""An event that ends its holder is found, however many others are at work beside it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.streams.delivery.ledger import Ledger
from penstock.streams.delivery.ranges import Range
from penstock.streams.delivery.trial import HELD, NOTE, Doubt, Trial, doubt_in
from tests.helpers.walks import examples


class Log:
    """The events of a log, some of which end their holder, and what is stored beside it.

    Each holder has at most `window` events at work, and has what it has finished stored every now
    and then, and with each note. `knows_window` is whether the note of a holder says how many.
    """

    def __init__(
        self,
        seed: int,
        count: int,
        guilty: set[int],
        *,
        window: int = 100,
        attempts: int = 3,
        knows_window: bool = False,
    ) -> None:
        self.guilty = guilty
        self.losses: Counter[int] = Counter()
        """By event: the holders that were lost while it was at work, as far as is stored."""
        self.alone: Counter[int] = Counter()
        """The event that alone was at work, as far as is stored, when each of the last holders was
        lost, and how many these are; empty if there were several at the last loss."""
        self.blamed: set[int] = set()
        self.done: set[int] = set()
        self._drawn = Random(seed)
        self._count = count
        self._window = window
        self._attempts = attempts
        self._held = Doubt(begun=window) if knows_window else HELD
        # Positions without an entry lie between others.
        self.at = sorted(self._drawn.sample(range(2 * count), count))
        self._place = {position: place for place, position in enumerate(self.at)}
        self._stored: tuple[int, list[Range], Doubt | None] = (0, [], None)
        self.lost = 0

    def live(self, patience: float = 1.0, killed: float = 0.0) -> bool:
        """One holder; returns whether it has finished all. `killed` is the chance that it is lost
        for another reason at each step, and `patience` that it waits for what is at work."""
        floor, known, note = self._stored
        self._ledger = Ledger[None](floor, known)
        self._unread = [position for position in self.at if position >= floor]
        self._working: list[int] = []
        if note is not None:
            trial = Trial(self._ledger, note.after(), self._attempts, 2 * self._count)
            self._store(trial.note)
            while trial.more() is not None or (trial.may_have_more and self._unread):
                self._read(self._window)
                if (guilty := trial.guilty) is not None:
                    assert self.alone[self._place[guilty]] >= self._attempts
                    self.blamed.add(self._place[guilty])
                    self._ledger.finish(guilty)
                    break
                if (more := trial.more()) is not None:
                    self._store(more)
                    before, unfinished = trial.reach, self._ledger.first(self._count)
                    trial.begin(more)
                    self._working += [one for one in unfinished if before <= one < trial.reach]
                elif not self._working:
                    break
                waits = self._drawn.random() < patience
                while self._working and (waits or self._drawn.random() < 0.5):
                    if not self._step(killed):
                        return False
        self._store(self._held)
        self._working += [
            one for one in self._ledger.first(self._count) if one not in self._working
        ]
        while self._working or self._unread:
            for position in self._read(self._window - len(self._working)):
                self._working.append(position)
            if self._drawn.random() < 0.1:
                self._store(self._held)
            if not self._step(killed):
                return False
        return True

    def _read(self, most: int) -> list[int]:
        """The next events that are not finished."""
        new = list[int]()
        while self._unread and len(self._ledger) < self._window and len(new) < most:
            position = self._unread.pop(0)
            if self._ledger.read(position, None):
                new.append(position)
        return new

    def _step(self, killed: float) -> bool:
        """One of the events at work ends, or the holder."""
        if not self._working:
            return True
        at_work = {self._place[one] for one in self._working}
        one = self._drawn.choice(self._working)
        if self._drawn.random() < killed or self._place[one] in self.guilty:
            self.lost += 1
            suspects = at_work | self._unstored
            self.losses.update(suspects)
            before, self.alone = self.alone, Counter[int]()
            if len(suspects) == 1:
                self.alone.update({one: before[one] + 1 for one in suspects})
            return False
        self._working.remove(one)
        self._ledger.finish(one)
        self._unstored.add(self._place[one])
        self.done.add(self._place[one])
        return True

    def _store(self, note: Doubt) -> None:
        self._unstored = set[int]()
        stored = doubt_in(str(note).removeprefix(NOTE))
        self._stored = self._ledger.floor or 0, list(self._ledger.finished()), stored


@examples(300)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 300),
    st.sets(st.integers(0, 299), max_size=4),
    st.sampled_from([1, 8, 100, 300]),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
)
@example(0, 300, {299}, 300, 3, False, 1.0)
@example(0, 300, {0, 1, 2, 3}, 300, 3, True, 1.0)
def test_every_guilty_event_is_blamed_and_no_other_and_all_others_are_finished(
    seed: int,
    count: int,
    guilty: set[int],
    window: int,
    attempts: int,
    knows_window: bool,
    patience: float,
) -> None:
    guilty = {one for one in guilty if one < count}
    log = Log(seed, count, guilty, window=window, attempts=attempts, knows_window=knows_window)
    while not log.live(patience):
        assert log.lost < 200, "holders are lost without end"
    assert log.blamed == guilty
    assert log.done == set(range(count)) - guilty
    if patience == 1:
        # Some more than its attempts, until it is alone.
        assert log.lost <= len(guilty) * (attempts + 3)


@examples(300)
@given(
    st.integers(0, 1 << 30),
    st.integers(1, 200),
    st.sets(st.integers(0, 199), max_size=2),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
)
def test_who_is_lost_for_another_reason_costs_no_event_but_one_that_was_alone_each_time(
    seed: int, count: int, guilty: set[int], attempts: int, knows_window: bool, patience: float
) -> None:
    guilty = {one for one in guilty if one < count}
    log = Log(seed, count, guilty, window=50, attempts=attempts, knows_window=knows_window)
    # Each that is blamed was alone when as many in a row were lost as it has attempts.
    while not log.live(patience, killed=0.02):
        assert log.lost < 2_000, "holders are lost without end"
    assert guilty <= log.blamed
    assert log.done | log.blamed == set(range(count))


def test_one_loss_for_another_reason_beside_a_guilty_event_blames_no_innocent_one() -> None:
    # The second of the last part, after two losses by the third.
    doubt = HELD.after()._replace(reach=40, begun=12).after()._replace(reach=39, begun=1).after()
    assert not doubt.is_certain(2)
    # With the guilty one the count begins anew.
    for lost in (1, 2, 3):
        doubt = doubt._replace(reach=40, begun=1).after()
        assert (doubt.lost, doubt.is_certain(3)) == (lost, lost == 3)


@pytest.mark.parametrize(("place", "most"), [(0, 2), (31, 2), (500, 3), (4_000, 4)])
def test_an_event_among_thousands_is_alone_after_few_losses(place: int, most: int) -> None:
    log = Log(1, 4_096, {place}, window=4_096)
    while not log.live():
        pass
    assert log.blamed == {place}
    assert log.lost <= most + 3


def test_a_holder_that_began_nothing_adds_no_loss() -> None:
    doubt = HELD.after()
    assert doubt.after() == doubt
    assert doubt.lost == 1


def test_what_takes_long_does_not_keep_the_others_from_being_tried() -> None:
    ledger = Ledger[None](0)
    for position in range(40):
        ledger.read(position, None)
    trial = Trial(ledger, Doubt(1, 40, 20, -1), 3)
    began = list[int]()
    while (more := trial.more()) is not None:
        trial.begin(more)
        began.append(more.begun)
    # Together with those that are at work.
    assert began == [1, 2, 4, 8, 16, 32, 40]


@given(st.tuples(*[st.integers(-1, 1 << 40)] * 5))
def test_a_note_is_read_as_it_was_written(numbers: tuple[int, int, int, int, int]) -> None:
    doubt = Doubt(*numbers)
    assert doubt_in(str(doubt).removeprefix(NOTE)) == doubt
    assert doubt_in("") is None
