"""Runs the monitor of one formula with bounds in time, between arrivals, over the events of many
keys.

Times are whole microseconds. They are the stamps `created` of the events, and the present, with
every event, is its stamp; the stage behind it has a timer for the time between events. About the
events' own times see `kept_watch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count, repeat
from typing import Any

from penstock.streams.monitoring.watching import Instance, Rule, Watch, keys_of
from penstock.streams.protocol.event import Event
from penstock.streams.temporal.monitors.timed.deadlines import Open, in_microseconds
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["TimedWatch", "watch_of"]

# Below this number, entries of keys that are gone are not worth removing.
_FEW = 64


def watch_of(rule: Rule, now: Callable[[], float]) -> Watch:
    """One run of a rule, with or without bounds in time."""
    watch = Watch(rule, now) if rule.monitor.deadlines is None else TimedWatch(rule, now)
    if rule.begun is not None:
        rule.begun(watch)
    return watch


class TimedWatch(Watch):
    """One run of a rule with bounds in time.

    Memory: as for `Watch`, with a deadline for each operator with a bound, and for each key with
    something open an entry of the heap of alarms. `idle` is measured on the same clock as the
    bounds.
    """

    def __init__(self, rule: Rule, now: Callable[[], float]) -> None:
        super().__init__(rule, self._latest)
        assert rule.monitor.deadlines is not None
        self._deadlines = rule.monitor.deadlines
        self._arrival = now
        if rule.idle is not None:
            # More than that: the end of a bound belongs to it.
            self._idle = rule.idle * 1_000_000 + 1
        # The largest present so far; None before the first event.
        self._clock: int | None = None
        # By deadline. An entry whose instance has another alarm, or is gone, is out of date.
        self._heap: list[tuple[int, int, Any, Instance]] = []
        self._numbers = count()
        self._unjudged = 0

    @property
    def next_deadline(self) -> int | None:
        """A time before which no deadline passes; None if nothing is open."""
        return self._heap[0][0] if self._heap else None

    def look(self, events: list[Event[Any]], begin: int) -> tuple[int, Violation[Any] | None]:
        values = [event.value for event in (events[begin:] if begin else events)]
        letters = iter(self._letters_of(values))
        keys = repeat(None) if self._key is None else keys_of(self._key, values)
        self.alarms = alarms = list[Violation[Any]]()
        for place in range(begin, len(events)):
            event = events[place]
            try:
                letter, key, at = next(letters), next(keys), in_microseconds(event.created)
                # One that cannot be hashed must not move the clock.
                hash(key)
            except Exception as error:
                self.place = place
                self._name_key(event.value, error)
                raise
            self._clock = at if self._clock is None else max(self._clock, at)
            alarms += self._missed(at)
            if self._used is not None:
                self._use(key, self._used)
            violation = self._take(key, letter, event.value, at, at)
            if violation is not None or alarms:
                return place, violation
        return len(events), None

    def _take(
        self, key: Any, letter: int, value: Any, at: int, present: float
    ) -> Violation[Any] | None:
        """The violation by an event."""
        one = self._instances[key]
        if isinstance(one, Verdict):
            return None
        one.keep(letter if self._keeps_letters else value, self._most)
        before = one.state
        one.state = self._monitor.next(before, letter)
        state = one.state >> self._monitor.bits
        held = self._deadlines.after(one.held, state, letter, at, one.count, present)
        if key in self.walked:
            self._note_step(key, one, before, Verdict.FALSE if held is None else state)
        untimed = self._monitor.machine.outputs[state]
        output = self._deadlines.output(untimed, state, held, min(at, present))
        if held is not None:
            one.held = held
            self._set_alarm(key, one)
        if output.verdict.is_final or self._rule.mode == "rv":
            return self._tell(key, one, output.presumable)
        return None

    def _set_alarm(self, key: Any, one: Instance) -> None:
        first = self._deadlines.earliest(one.held)
        if first is None or (one.alarm is not None and one.alarm <= first.deadline):
            return
        one.alarm = first.deadline
        heap = self._heap
        heappush(heap, (first.deadline, next(self._numbers), key, one))
        if len(heap) > _FEW + 2 * len(self._instances):
            heap[:] = [entry for entry in heap if self._is_set(*entry)]
            heapify(heap)

    def _is_set(self, deadline: int, number: int, key: Any, one: Instance) -> bool:
        return one.alarm == deadline and self._instances.get(key) is one

    def _missed(self, present: int) -> Iterator[Violation[Any]]:
        """The violations by deadlines that are past, in their order."""
        heap = self._heap
        while heap and heap[0][0] < present:
            entry = heappop(heap)
            if not self._is_set(*entry):
                continue
            _, _, key, one = entry
            one.alarm = None
            missed = self._deadlines.missed(one.held, present)
            if missed is None:
                self._set_alarm(key, one)
            else:
                yield self._lapsed(key, one, missed)

    def _lapsed(self, key: Any, one: Instance, missed: Open) -> Violation[Any]:
        """The violation by a deadline that is past."""
        if key in self.walked:
            self.walked[key].add((one.state >> self._monitor.bits, Verdict.FALSE))
        self._settle(key, Verdict.FALSE)
        return self._overdue(key, one, missed)

    def ring(self) -> list[Violation[Any]]:
        """The violations by deadlines that are past now; no event has come."""
        return list(self._missed(in_microseconds(self._arrival())))

    def at_end(self) -> Iterator[Violation[Any]]:
        # Fixed here, however slowly the violations are taken.
        self._clock = in_microseconds(self._arrival())
        yield from self._missed(self._clock)
        yield from super().at_end()

    def _ended(self, key: Any, one: Instance) -> Violation[Any] | None:
        first = self._deadlines.earliest(one.held)
        if first is None:
            return super()._ended(key, one)
        return self._overdue(key, one, first, self._clock)

    def _overdue(
        self, key: Any, one: Instance, missed: Open, end: int | None = None
    ) -> Violation[Any]:
        violation = self._violation(key, one, Verdict.FALSE, at_end=end is not None)
        return replace(
            violation,
            deadline=missed.deadline / 1_000_000,
            opened=missed.opened,
            left=None if end is None else (missed.deadline - end) / 1_000_000,
        )

    def _latest(self) -> float:
        # Before the first event no key has been used.
        return 0 if self._clock is None else self._clock

    def _drop(self, key: Any) -> None:
        one = self._instances.get(key)
        if isinstance(one, Instance) and self._clock is not None:
            self._unjudged += self._deadlines.any_open(one.held, self._clock)
        super()._drop(key)

    def statistics(self) -> dict[str, int]:
        """As of `Watch`; and keys that were forgotten while something was open, which are
        `unjudged`."""
        return {**super().statistics(), "unjudged": self._unjudged}
