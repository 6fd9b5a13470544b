"""The progress of a formula for one key, as a state that can be stored.

It has the form of the windows of a key (see `streams/windows/windows.py`): an event is added, and
what is due is closed: a deadline that is past, or at the end of the stream the whole. A state is
changed by what was done to it alone: not by the events of other keys, nor by when it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Any
from zlib import crc32

from penstock.streams.monitoring.timed_watching import TimedWatch
from penstock.streams.monitoring.watching import Instance, Rule, Watch
from penstock.streams.state.changes import Cell
from penstock.streams.temporal.monitors.timed.deadlines import Open, in_microseconds
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["KeptWatch", "Progress"]

_MICROSECOND = 1e-6


class Progress:
    """The progress for a key: none before its first event, an instance, or a verdict; and the time
    of its last event."""

    __slots__ = ("one", "used")

    def __init__(self, one: Instance | Verdict | None = None) -> None:
        self.one = one
        self.used = -inf


class KeptWatch:
    """Watches the formula of a rule for keys whose progress others keep, and forgets those that are
    idle.

    A value that is added has the letter of an event, as each proposition is asked only once, its
    value, the watermark when it was emitted, and its key: what was due by then comes before it,
    however the events of other keys came. `found` are the violations by it, `present` is how far
    the time had come for it. `clock` is the watermark at the end of the stream.
    """

    def __init__(self, rule: Rule) -> None:
        self.clock = -inf
        self._rule = rule
        self._watch = _Timed(rule) if rule.monitor.deadlines else _Untimed(rule, _no_clock)
        # A bound includes its end, and what is forgotten then has none open.
        self._idle = inf if rule.idle is None else rule.idle + _MICROSECOND
        self.walked = self._watch.walked
        # Where those stood that the end has closed, if someone asks.
        self._last: dict[Any, int | Verdict] = {}
        self.found: list[Violation[Any]] = []
        self.present = -inf
        self.late = 0
        """How many events were late; they are judged all the same."""
        self.expired = 0
        """How many keys were idle, and are forgotten."""

    @property
    def machine(self) -> int:
        """A number that tells this machine from others: the states of another mean nothing here."""
        monitor = self._rule.monitor
        return crc32(repr((monitor.machine.outputs, monitor.table)).encode())

    @property
    def violations(self) -> int:
        """How many were found."""
        return self._watch.statistics()["violations"]

    def new(self) -> Progress:
        """The progress of a key without events."""
        return Progress()

    def begin(self, state: Progress) -> None:
        """Begin the only key there is, whose formula the end judges also if no event comes."""
        state.one = self._watch.new()

    def standing(self, keys: Iterable[Cell]) -> Iterator[tuple[Any, int | Verdict]]:
        """Each key with its state of the machine, or its verdict, also after the end."""
        yield from self._last.items()
        for cell in keys:
            if cell.state.one is not None:
                yield cell.key, self._watch.where(cell.state.one)

    def add(self, state: Progress, time: float, value: Any, watermark: float, /) -> bool:
        letter, of_event, emitted, key = value
        self.present = present = max(emitted, watermark)
        self.late += watermark > -inf
        found = self.close(key, state, present) if present > -inf else []
        state.used = max(state.used, time, present)
        violation = self._watch.step(key, state, letter, of_event, time, present)
        self.found = found if violation is None else [*found, violation]
        return True

    def due(self, state: Progress, /) -> float | None:
        one = state.one
        if not isinstance(one, Instance):
            return None if one is None or self._idle == inf else state.used + self._idle
        deadlines = self._rule.monitor.deadlines
        first = None if deadlines is None else deadlines.earliest(one.held)
        # A bound includes its end.
        due = inf if first is None else (first.deadline + 1) / 1_000_000
        return min(due, state.used + self._idle)

    def close(self, key: Any, state: Progress, watermark: float, /) -> list[Violation[Any]]:
        violation = None
        if isinstance(state.one, Instance):
            if watermark == inf and self._rule.begun is not None:
                self._last[key] = self._watch.where(state.one)
            violation = self._watch.closed(key, state, watermark, self.clock)
        if state.one is not None and self._idle < inf and state.used + self._idle <= watermark:
            state.one = None
            # The end forgets those that are decided.
            self.expired += watermark < inf
        return [] if violation is None else [violation]

    def is_unjudged(self, state: Progress, watermark: float) -> bool:
        """Whether something is open, so that a key which is forgotten has no verdict."""
        one, deadlines = state.one, self._rule.monitor.deadlines
        if not isinstance(one, Instance) or deadlines is None:
            return False
        return deadlines.any_open(one.held, watermark * 1_000_000)

    def open(self, state: Progress, /) -> int:
        """Whether a key is undecided."""
        return isinstance(state.one, Instance)

    def is_empty(self, state: Progress, /) -> bool:
        return state.one is None

    def stored(self, state: Progress, /) -> Any:
        """The progress as plain values."""
        one = state.one
        if not isinstance(one, Instance):
            return None if one is None else one.value
        held = [None if each is None else list(each) for each in one.held]
        return [one.state, one.count, one.kept, one.presumed.value, held]

    def restored(self, values: Any, /) -> Progress:
        """The progress that was stored as these values."""
        if values.__class__ is not list:
            return Progress(None if values is None else Verdict(values))
        number, count, kept, presumed, held = values
        one = Instance(number, kept, tuple(None if each is None else Open(*each) for each in held))
        one.count, one.presumed = count, Verdict(presumed)
        return Progress(one)


class _Untimed(Watch):
    """A watch that has the instance of one key at a time."""

    def step(
        self, key: Any, state: Progress, letter: int, value: Any, time: float, watermark: float
    ) -> Violation[Any] | None:
        _begin(self._instances, key, state)
        one = self._instances[key]
        violation = None
        if isinstance(one, Instance):
            one.keep(letter if self._keeps_letters else value, self._most)
            one.state = self._monitor.next(one.state, letter)
            if one.state in self._telling:
                violation = self._decided(key, one)
        state.one = self._instances.get(key)
        return violation

    def closed(
        self, key: Any, state: Progress, watermark: float, clock: float
    ) -> Violation[Any] | None:
        """The violation of the end."""
        if watermark < inf or not isinstance(state.one, Instance):
            return None
        one, state.one = state.one, None
        return self._ended(key, one)


class _Timed(TimedWatch):
    """The same for a formula with bounds in time."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule, _no_clock)
        # Keys are forgotten by those who keep them.
        self._used = None

    def step(
        self, key: Any, state: Progress, letter: int, value: Any, time: float, watermark: float
    ) -> Violation[Any] | None:
        _begin(self._instances, key, state)
        violation = self._take(key, letter, value, in_microseconds(time), watermark * 1_000_000)
        state.one = self._instances.get(key)
        return violation

    def closed(
        self, key: Any, state: Progress, watermark: float, clock: float
    ) -> Violation[Any] | None:
        """The violation by a deadline that is past, or of the end."""
        one = state.one
        assert isinstance(one, Instance)
        if watermark == inf:
            # Without events there is none, and nothing is open.
            self._clock = None if clock == -inf else in_microseconds(clock)
            state.one = None
            return self._ended(key, one)
        missed = self._deadlines.missed(one.held, in_microseconds(watermark))
        if missed is None:
            return None
        _begin(self._instances, key, state)
        violation = self._lapsed(key, one, missed)
        state.one = self._instances.get(key)
        return violation

    def _set_alarm(self, key: Any, one: Instance) -> None:
        """The watermark passes its deadline."""


def _no_clock() -> float:
    return 0.0


def _begin(instances: dict[Any, Instance | Verdict], key: Any, state: Progress) -> None:
    instances.clear()
    if state.one is not None:
        instances[key] = state.one
