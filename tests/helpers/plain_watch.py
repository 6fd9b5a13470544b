"""The violations of a formula by the times of events, found by looking at every key after each."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from penstock.streams.temporal import Violation
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.timed.deadlines import Open
from penstock.streams.temporal.monitors.verdict import Output, Verdict

__all__ = ["PlainWatch"]

_FINE = (Verdict.TRUE, Verdict.PRESUMABLY_TRUE)


class _Progress:
    def __init__(self, monitor: Monitor) -> None:
        self.state = monitor.first
        self.held = () if monitor.deadlines is None else monitor.deadlines.nothing
        self.seen: list[Any] = []
        self.presumed = Verdict.PRESUMABLY_TRUE
        self.is_decided = False
        self.used = -inf


class PlainWatch:
    """Collects in `found` what `violations` with these options emits. Times are in seconds."""

    def __init__(
        self, formula: str, mode: str, evidence: Any, restart: bool, idle: Any, max_keys: Any
    ) -> None:
        self.found: list[Violation[Any]] = []
        self._monitor = Monitor(formula)
        self._formula, self._mode, self._evidence = formula, mode, evidence
        self._restart, self._idle, self._max_keys = restart, idle, max_keys
        # In the order of their last use.
        self._keys: dict[Any, _Progress] = {}
        self._clock = -inf

    def take(self, key: Any, value: Any, names: set[str], at: int, lateness: int) -> None:
        monitor, keys = self._monitor, self._keys
        self._clock = max(self._clock, (at - lateness) * 1_000_000)
        self._miss()
        for other, one in list(keys.items()):
            if self._idle is not None and one.used + self._idle * 1_000_000 < self._clock:
                del keys[other]
        one = keys[key] = keys.pop(key, None) or _Progress(monitor)
        one.used = self._clock
        if not one.is_decided:
            letter = monitor.letter(names & set(monitor.propositions))
            is_letters = self._evidence == "letters"
            one.seen.append(monitor.true_in(letter) if is_letters else value)
            one.state = monitor.next(one.state, letter)
            output = self._output(one, letter, at * 1_000_000)
            if output.verdict.is_final or self._mode == "rv":
                self._tell(key, one, output.presumable)
        # A late event may have set a deadline that is past.
        self._miss()
        while self._max_keys is not None and len(keys) > self._max_keys:
            del keys[next(iter(keys))]

    def _output(self, one: _Progress, letter: int, at: int) -> Output:
        deadlines, clock = self._monitor.deadlines, self._clock
        if deadlines is None:
            return self._monitor.output(one.state)
        state = one.state >> self._monitor.bits
        held = deadlines.after(one.held, state, letter, at, len(one.seen), clock)
        if held is not None:
            one.held = held
        untimed = self._monitor.machine.outputs[state]
        return deadlines.output(untimed, state, held, min(at, clock))

    def _tell(self, key: Any, one: _Progress, verdict: Verdict) -> None:
        if verdict.is_final:
            self._decide(key, one, verdict)
        if verdict is not one.presumed and verdict not in _FINE:
            self._find(key, one, verdict)
        one.presumed = verdict

    def _decide(self, key: Any, one: _Progress, verdict: Verdict) -> None:
        one.is_decided = True
        if self._restart and verdict is Verdict.FALSE:
            del self._keys[key]

    def _undecided(self) -> Iterator[tuple[Any, _Progress, Open | None]]:
        deadlines = self._monitor.deadlines
        for key, one in list(self._keys.items()):
            if not one.is_decided:
                yield key, one, None if deadlines is None else deadlines.earliest(one.held)

    def _miss(self) -> None:
        for key, one, first in self._undecided():
            if first is not None and first.deadline < self._clock:
                self._decide(key, one, Verdict.FALSE)
                self._find(key, one, Verdict.FALSE, first)

    def end(self) -> None:
        for key, one, first in self._undecided():
            if first is not None or self._monitor.at_end(one.state) is Verdict.FALSE:
                self._find(key, one, Verdict.FALSE, first, at_end=True)

    def _find(
        self,
        key: Any,
        one: _Progress,
        verdict: Verdict,
        first: Open | None = None,
        *,
        at_end: bool = False,
    ) -> None:
        count = len(one.seen)
        most = self._evidence if isinstance(self._evidence, int) else count
        kept = tuple(one.seen[max(0, count - most) :])
        deadline = opened = left = None
        if first is not None:
            deadline, opened = first.deadline / 1_000_000, first.opened
            left = (first.deadline - self._clock) / 1_000_000 if at_end else None
        options = kept, len(kept) < count, at_end, deadline, opened, left
        self.found.append(Violation(self._formula, key, count, verdict, *options))
