"""Windows of random events, which arrive in any order, are those of their definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from math import inf
from random import Random
from typing import Any

import pytest
from orjson import dumps, loads

from penstock.streams.aggregates import agg
from penstock.streams.windows.shapes import Regular, Session, session, sliding, tumbling
from penstock.streams.windows.window import Window
from penstock.streams.windows.windows import Windows, windows_of
from tests.helpers.windows_by_definition import Arrived, FixedWindows, Sessions

_LENGTHS = [1, 2, 3, 4, 6, 7, 10, 0.1, 0.3, 1.5]


class Line:
    """Events of one key on their way from their emission to the windows, in seconds or tenths."""

    def __init__(self, random: Random, windows: Windows[list[int]]) -> None:
        self.random = random
        self.windows = windows
        self.state = windows.new()
        self.unit = random.choice([1.0, 0.1, 0.5])
        # Whole seconds since 1970, or a time in our century.
        self.now = random.choice([0, 1_700_000_000])
        self.back = random.choice([0, 2, 10, 40])
        self.lateness = random.choice([0, 3])
        self.in_order = random.random() < 0.5
        self.emitted = -inf
        self.in_flight: list[Arrived] = []
        self.numbers = iter(range(10**6))

    def emit(self) -> None:
        self.now += self.random.choice([0, 0, 0, 1, 1, 2, 5, 20]) * self.random.choice([0, 1])
        at = self.now - self.random.choice([0, 0, 0, self.random.randint(0, self.back)])
        # As a user writes it: 1.3, not thirteen times 0.1.
        time = round(at + self.random.randint(0, 9) * self.unit, 1)
        watermark = self.emitted if time < self.emitted else -inf
        self.in_flight.append(Arrived(time, watermark, next(self.numbers)))
        self.emitted = max(self.emitted, time - self.lateness)

    def arrive(self) -> Arrived:
        at = 0 if self.in_order else self.random.randrange(len(self.in_flight))
        return self.in_flight.pop(at)

    def put(self, event: Arrived) -> bool:
        return self.windows.add(self.state, event.time, event.number, event.watermark)

    @property
    def watermark(self) -> float:
        """Of the windows: none of the events in flight is late by it."""
        held = (max(event.time, event.watermark) for event in self.in_flight)
        return min(self.emitted, *held, inf)

    def steps(self, count: int) -> Iterator[str]:
        for _ in range(count):
            if self.random.random() < 0.1:
                self.state = loads(dumps(self.state))
            step = self.random.choice(["emit", "emit", "arrive", "arrive", "close", "early"])
            if step == "emit":
                self.emit()
            elif step != "arrive" or self.in_flight:
                yield step
        while self.in_flight:
            yield "arrive"
        yield "end"

    def close(self, until: float) -> list[Window[list[int]]]:
        due = self.windows.due(self.state)
        found = self.windows.close("key", self.state, until)
        assert loads(dumps(self.state)) == self.state
        if due is None or due > until:
            assert found == []
        after = self.windows.due(self.state)
        assert after is None or after > until
        assert found == sorted(found, key=lambda one: (one.end, one.start, one.revision))
        return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    walks: int = metafunc.config.option.walks
    one: int | None = metafunc.config.option.walk
    first: int = metafunc.config.option.seed
    # Many in one test: each takes a few milliseconds.
    seeds = [range(one, one + 1)] if one is not None else _parts(range(first, first + walks))
    metafunc.parametrize("seeds", seeds, ids=str)


def _parts(seeds: range) -> list[range]:
    return [seeds[at : at + 100] for at in range(0, len(seeds), 100)]


def test_fixed_windows_are_those_of_their_definition(seeds: range) -> None:
    for seed in seeds:
        print("windows of fixed shape, --walk", seed)
        _compare_fixed(Random(seed))


def test_sessions_are_those_of_their_definition(seeds: range) -> None:
    for seed in seeds:
        print("sessions, --walk", seed)
        _compare_sessions(Random(seed))


def _compare_fixed(random: Random) -> None:
    shape = _fixed_shape(random)
    keep = random.choice([0.0, 0.0, 1.5, 4.0, 30.0])
    definition = FixedWindows(shape.length, shape.every, keep)
    line = Line(random, windows_of(shape, agg.list(_itself, 10**6), keep))
    results: dict[tuple[float, float], list[Window[list[int]]]] = defaultdict(list)
    changed: set[tuple[float, float]] = set()
    passed = -inf

    def check(found: list[Window[list[int]]], until: float) -> None:
        for one in found:
            assert one.is_final
            assert one.end <= until
            results[one.start, one.end].append(one)
        for window in definition.all():
            if window[1] > until:
                continue
            number = len(definition.corrected(window)) - len(definition.on_time(window))
            expected = number + (1 if definition.on_time(window) else 0)
            final = [one for one in results[window] if one.is_final]
            earlier = [one for one in results[window] if not one.is_final]
            revisions = [one.revision for one in results[window]]
            assert revisions == sorted(set(revisions))
            if expected:
                assert sorted(final[-1].value) == definition.corrected(window)
                assert final[-1].revision == len(earlier) + expected
            else:
                assert final == []

    first_final: dict[tuple[float, float], list[int]] = {}
    for step in line.steps(random.choice([5, 30, 80])):
        if step == "arrive":
            event = line.arrive()
            assert line.put(event) == definition.counts(event)
            if definition.counts(event):
                definition.arrived.append(event)
                for window in definition.windows_at(event.time):
                    if window[1] > event.watermark:
                        changed.add(window)
        elif step == "early":
            found = line.windows.early("key", line.state)
            for one in found:
                assert not one.is_final
                results[one.start, one.end].append(one)
                assert sorted(one.value) == definition.on_time((one.start, one.end))
            got = [(one.start, one.end) for one in found]
            assert got == sorted((one for one in changed if one[1] > passed), key=lambda w: w[::-1])
            changed.clear()
        else:
            passed = inf if step == "end" else line.watermark
            found = line.close(passed)
            for one in found:
                window = one.start, one.end
                if window not in first_final and definition.on_time(window):
                    first_final[window] = sorted(one.value)
                    assert first_final[window] == definition.on_time(window)
                if line.in_order:
                    by_time = {event.number: event.time for event in definition.arrived}
                    order = sorted(sorted(one.value), key=by_time.__getitem__)
                    assert one.value == order
            check(found, passed)
    assert line.windows.is_empty(line.state)
    assert line.state == line.windows.new()


def _fixed_shape(random: Random) -> Regular:
    length = random.choice(_LENGTHS)
    if random.random() < 0.3:
        return tumbling(length)
    return sliding(length, every=random.choice([one for one in _LENGTHS if one <= length]))


def _compare_sessions(random: Random) -> None:
    gap = random.choice(_LENGTHS)
    most = gap + random.choice([1, 5, 10**9])
    shape: Session = session(gap, most=most)
    definition = Sessions(Fraction(repr(gap)), Fraction(repr(most)))
    line = Line(random, windows_of(shape, agg.list(_itself, 10**6)))
    got: list[Window[list[int]]] = []
    arrived: list[Arrived] = []
    until = -inf
    for step in line.steps(random.choice([5, 30, 80])):
        if step == "arrive":
            event = line.arrive()
            arrived.append(event)
            assert line.put(event) == definition.put(event)
        elif step == "early":
            for one in line.windows.early("key", line.state):
                assert not one.is_final
                events = next(
                    events
                    for events in definition.sessions
                    if {event.number for event in events} == set(one.value)
                )
                assert (one.start, one.end) == _floats(definition.bounds(events))
            assert line.windows.early("key", line.state) == []
        else:
            until = inf if step == "end" else line.watermark
            got += line.close(until)
            assert _of(got) == _expected(definition, until)
    assert line.windows.is_empty(line.state)
    if most >= 10**9:
        # They do not depend on the order of arrival.
        in_time = [event for event in arrived if event.time >= event.watermark]
        assert sorted(sorted(one.value) for one in got) == sorted(_components(in_time, gap))


def _of(found: list[Window[list[int]]]) -> list[tuple[Any, ...]]:
    assert all(one.is_final for one in found)
    return sorted((one.start, one.end, sorted(one.value)) for one in found)


def _expected(definition: Sessions, until: float) -> list[tuple[Any, ...]]:
    bounds = [(*_floats(definition.bounds(events)), events) for events in definition.sessions]
    return sorted(
        (start, end, sorted(event.number for event in events))
        for start, end, events in bounds
        if end <= until
    )


def _floats(bounds: tuple[Fraction, Fraction]) -> tuple[float, float]:
    return float(bounds[0]), float(bounds[1])


def _components(arrived: list[Arrived], gap: float) -> list[list[int]]:
    """The numbers of events that are connected by steps shorter than the gap."""
    found: list[list[int]] = []
    before: Fraction | None = None
    for event in sorted(arrived, key=lambda event: event.time):
        time = Fraction(repr(event.time))
        if before is None or time - before >= Fraction(repr(gap)):
            found.append([])
        found[-1].append(event.number)
        before = time
    return [sorted(numbers) for numbers in found]


def _itself(value: int) -> int:
    return value
