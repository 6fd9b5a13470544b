"""The time lines of a source with several partitions: which of them the watermark waits for."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from random import Random
from typing import Any

import pytest

from penstock.streams.event_time import line
from penstock.streams.event_time.line import LateTime, arrived
from penstock.streams.event_time.lines import TimeLines
from penstock.streams.event_time.source_time import SourceTime, first_term
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.partitions import PartitionsWatcher
from penstock.streams.runtime.sources import Pauses
from tests.helpers.walks import seeds


class Clock:
    """A run without a loop, whose clock the test moves."""

    has_loop = False

    def __init__(self) -> None:
        self.time = 0.0
        self.pauses = Pauses()
        self.root = self

    def now(self) -> float:
        return self.time

    wall = now


class Source:
    """A source whose partitions are named by letters, and that does what the test says."""

    def __init__(self, names: str = "", lateness: float = 0.0, idle: float = 30) -> None:
        self.run = Clock()
        run: Any = self.run
        self.time = SourceTime(run, "event_time at", lateness, idle)
        self.time.watch(self)
        # As a stage that reads it.
        self.stage = TimeLines(run, Any, (), None, bool)
        self.stage._add(self.time)
        self.waiting: set[str] = set()
        for name in names:
            self.watcher.joined(name, name)

    def watch(self, watcher: PartitionsWatcher, /) -> None:
        self.watcher = watcher

    def partition_of(self, token: Any, /) -> str:
        name: str = token[0]
        return name

    def sequence_of(self, token: Any, /) -> int:
        number: int = token[1]
        return number

    def hold(self, partition: str, by: object, /) -> None:
        self.waiting.add(partition)

    def let_go_of(self, partition: str, by: object, /) -> None:
        self.waiting.remove(partition)

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None: ...

    def emit(self, name: str, *times: float) -> list[Event[Any]]:
        """Emit events that are on their way from then on."""
        self.time.demand.requested(len(times))
        self.time.demand.came(len(times))
        events: list[Event[Any]] = [Event(time, 0.0, self, (name, 0)) for time in times]
        place, origin = self.time.place(events[0])
        place.emit(origin, events, list(times))
        return events

    def put(self, name: str, *times: float) -> list[Event[Any]]:
        """Emit events that arrive at once."""
        events = self.emit(name, *times)
        for event in events:
            arrived(event)
        return events

    def silence(self, seconds: float) -> None:
        """So much time passes in which events are requested and none comes."""
        self.time.demand.requested(1)
        self.run.time += seconds
        self.time.demand.came(1)

    @property
    def watermark(self) -> float:
        return self.stage.watermark()


def late(events: Iterable[Event[Any]]) -> list[float]:
    return [event.value for event in events if isinstance(event.time, LateTime)]


def test_a_partition_of_which_nothing_is_known_holds_the_watermark_back() -> None:
    source = Source("ab")
    source.put("a", 100)
    assert source.watermark == -inf
    source.put("b", 50)
    assert source.watermark == 50


def test_only_its_own_partition_makes_an_event_late() -> None:
    source = Source("ab")
    assert late(source.put("a", 100, 99)) == [99]
    assert late(source.put("b", 50, 51, 10)) == [10]


def test_a_partition_is_silent_only_while_its_source_says_that_it_is_empty() -> None:
    source = Source("ab")
    source.put("a", 100)
    source.put("b", 50)
    source.silence(100)
    assert source.watermark == 50
    source.watcher.emptied("b")
    assert source.watermark == 100
    source.watcher.filled("b")
    source.put("b", 120)
    source.put("a", 130)
    assert source.watermark == 120


def test_time_goes_on_with_the_clock_when_all_are_silent() -> None:
    source = Source("ab")
    for name, time in (("a", 100), ("b", 50)):
        source.put(name, time)
        source.watcher.emptied(name)
    source.silence(29)
    assert source.watermark == 50
    source.silence(3)
    assert source.watermark == 132


def test_while_another_is_not_silent_the_clock_makes_no_event_late() -> None:
    source = Source("ab")
    source.put("a", 100)
    source.watcher.emptied("a")
    source.silence(40)
    source.put("b", 105)
    assert source.watermark == 105
    assert late(source.put("a", 106)) == []


def test_a_partition_that_has_left_is_waited_for_only_until_its_events_have_arrived() -> None:
    source = Source("ab")
    source.put("a", 100)
    (event,) = source.emit("b", 50)
    source.watcher.left("b")
    assert source.watermark == 50
    arrived(event)
    assert source.watermark == 100


def test_a_partition_that_joins_does_not_put_the_watermark_back() -> None:
    source = Source("a")
    source.put("a", 100)
    assert source.watermark == 100
    source.watcher.joined("b", "b")
    assert source.watermark == 100
    assert late(source.put("b", 50)) == []
    source.put("a", 120)
    assert source.watermark == 100
    source.put("b", 110)
    assert source.watermark == 110


def test_the_lines_of_partitions_that_have_left_are_forgotten() -> None:
    source = Source("a")
    for number in range(100):
        source.watcher.joined(number, str(number))
        source.watcher.left(number)
    assert len(list(source.time.lines)) < 5


def test_without_any_partition_the_watermark_stays_where_it_is() -> None:
    source = Source("a")
    source.put("a", 100)
    assert source.watermark == 100
    source.watcher.left("a")
    source.silence(100)
    assert source.watermark == 100
    assert source.time.statistics() == {"watermarks": []}


def test_a_source_without_any_partition_holds_back_the_watermark_of_others() -> None:
    source, other = Source(), Source("b", idle=inf)
    stage = TimeLines(other.run, Any, (), None, bool)  # type: ignore[arg-type]
    stage._add(source.time)
    stage._add(other.time)
    other.put("b", 100)
    # It is not known yet which it reads.
    assert stage.watermark() == -inf
    source.watcher.joined("a", "a")
    source.put("a", 50)
    assert stage.watermark() == 50
    other.put("b", 200)
    # They are given to it anew.
    source.watcher.left("a")
    assert stage.watermark() == 50
    source.watcher.joined("a", "a")
    source.put("a", 150)
    assert stage.watermark() == 150
    source.watcher.left("a")
    other.put("b", 300)
    source.silence(31)
    assert stage.watermark() == 300


def test_each_partition_goes_on_from_what_is_stored_of_it() -> None:
    source = Source("a")
    one = b'"a":{"greatest":100.0,"first":100.0,"ahead":[]}'
    other = b'"b":{"greatest":50.0,"first":50.0,"ahead":[]}'
    stored = b"{%s,%s}" % (one, other)
    source.time.restore("store", stored, bool)
    assert late(source.put("a", 99)) == [99]
    # Also while it is not read.
    assert source.time.mark(lambda root, event: False) == b"{%s,%s}" % (other, one)
    source.watcher.joined("b", "b")
    assert late(source.put("b", 49, 60)) == [49]


# What is ahead.


@pytest.fixture
def _short_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_LEAD", 2)


@pytest.mark.usefixtures("_short_lead")
@pytest.mark.parametrize("ends", ["comes", "is silent", "leaves"])
def test_what_is_ahead_waits_until_the_other(ends: str) -> None:
    source = Source("ab")
    source.put("b", 1)
    source.put("a", 10, 11)
    assert not source.waiting
    source.put("a", 20, 21)
    assert source.waiting == {"a"}
    # One that waits is not silent: nothing is asked of it.
    source.watcher.emptied("a")
    source.silence(100)
    assert source.watermark == 1
    if ends == "comes":
        source.put("b", 10)
        assert source.watermark == 10
        assert source.waiting == {"a"}
        source.put("b", 12)
    elif ends == "is silent":
        source.watcher.emptied("b")
        source.silence(31)
    else:
        source.watcher.left("b")
    assert source.watermark == (12 if ends == "comes" else 21)
    assert not source.waiting


@pytest.mark.usefixtures("_short_lead")
def test_a_partition_that_leaves_while_it_waits_does_not_wait_when_it_comes_back() -> None:
    source = Source("ab")
    source.put("b", 1)
    source.put("a", 10, 11)
    source.put("a", 20, 21)
    assert source.waiting == {"a"}
    source.watcher.left("a")
    assert not source.waiting
    source.watcher.joined("a", "a")
    source.put("a", 30)
    assert not source.waiting


class Partition:
    """What is known of a partition by the definition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.greatest = -inf
        self.is_empty = False
        self.silence = 0.0

    @property
    def is_silent(self) -> bool:
        return self.is_empty and self.silence >= 30


@seeds(300)
def test_the_watermark_of_random_partitions_is_that_of_its_definition(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come, go, are silent and wait for each other, while events are on their way."""
    chance = Random(seed)
    monkeypatch.setattr(line, "_LEAD", chance.choice([1, 3, 10**6]))
    lateness = float(chance.choice([0, 2]))
    source = Source(lateness=lateness)
    here: list[Partition] = []
    on_their_way: list[tuple[float, Event[Any]]] = []
    expected, names = -inf, iter(range(100))
    for _ in range(60):
        step = chance.choice(["join", "leave", *["put"] * 4, "arrive", "empty", "silence"])
        one = chance.choice(here) if here else None
        if step == "join" and len(here) < 4:
            here.append(Partition(str(next(names))))
            source.watcher.joined(here[-1].name, here[-1].name)
        elif step == "arrive" and on_their_way:
            arrived(on_their_way.pop(chance.randrange(len(on_their_way)))[1])
        elif step == "silence":
            seconds = chance.choice([1, 10, 31])
            source.silence(seconds)
            for other in here:
                # Nothing is asked of one that waits.
                waits = other.name in source.waiting
                other.silence = 0.0 if waits else other.silence + seconds
        elif one is None:
            continue
        elif step == "leave":
            here.remove(one)
            source.watcher.left(one.name)
        elif step == "empty":
            one.is_empty = True
            source.watcher.emptied(one.name)
        elif step == "put" and one.name not in source.waiting:
            if one.is_empty:
                one.is_empty = False
                source.watcher.filled(one.name)
            time, first = float(chance.randint(0, 30)), one.greatest - lateness
            (event,) = source.emit(one.name, time)
            assert isinstance(event.time, LateTime) == (time < first)
            one.greatest, one.silence = max(one.greatest, time), 0.0
            on_their_way.append((max(time, first), event))
        active = [other for other in here if not other.is_silent]
        if here and not active:
            # The clock counts now: that has a test of its own.
            return
        first = min((other.greatest - lateness for other in active), default=-inf)
        assert first_term(source.time.lines) == first
        waited = set(source.waiting)
        expected = max(expected, min([first, *(time for time, _ in on_their_way)]))
        assert source.watermark == expected
        for other in here:
            if other.name in waited - source.waiting:
                other.silence = 0.0
        furthest_behind = [other for other in active if other.greatest - lateness == first]
        assert not source.waiting & {other.name for other in furthest_behind}
