"""Runs the monitor of one formula over the events of many keys."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead, check_max_ahead
from penstock.streams.base.duration import in_seconds, is_duration
from penstock.streams.base.errors import BuildError, add_note, describe
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.validation import is_count, is_positive
from penstock.streams.execution.handler import called_name
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError, routed_by
from penstock.streams.keyed.key_faults import KeyFaults
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import Picture, Placement, StageInfo
from penstock.streams.temporal.automata.automaton import Automaton, text_of
from penstock.streams.temporal.formula.formula import Formula
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.propositions import Letters, Test, letters
from penstock.streams.temporal.monitors.timed.deadlines import Held
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.monitors.violation import Violation

if TYPE_CHECKING:
    from penstock.streams.runtime.context import Run

__all__ = ["Evidence", "Instance", "Mode", "Rule", "Watch", "Watched", "keys_of"]

log = logging.getLogger("penstock")

Evidence = int | Literal["full", "letters"]
Mode = Literal["ltl3", "rv"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The validated options of `monitor` and `violations`.

    Raises FormulaSyntaxError, FormulaTooLarge, UnknownProposition, and BuildError for an invalid
    option. Logs a warning for a formula that no event can decide.
    """

    stage: str
    formula: str | Formula | Automaton
    by: By[Any] | None
    mode: Mode
    evidence: Evidence
    idle: float | None
    max_keys: int | None
    restart: bool
    strict: bool
    tests: Mapping[str, Test[Any]]
    time: By[Any] | None = None
    lateness: float | timedelta = 0.0
    max_ahead: MaxAhead = MAX_AHEAD
    follow: frozenset[Any] = frozenset()
    """The keys whose steps from state to state are kept, since they last began."""
    begun: Callable[[Watched], object] | None = None
    """Called with what each run watches when it begins."""

    def __post_init__(self) -> None:
        evidence: object = self.evidence
        number = isinstance(evidence, int) and not isinstance(evidence, bool) and evidence >= 0
        if not number and evidence not in ("full", "letters"):
            self._refuse(f"evidence={evidence!r}", 'a number of events, "full" or "letters"')
        if self.mode not in ("ltl3", "rv"):
            self._refuse(f"mode={self.mode!r}", '"ltl3" or "rv"')
        if self.idle is not None and not is_positive(self.idle):
            self._refuse(f"idle={self.idle!r}", "a positive number of seconds")
        if self.max_keys is not None and not is_count(self.max_keys):
            self._refuse(f"max_keys={self.max_keys!r}", "a whole number of at least 1")
        if self.by is None and (self.idle is not None or self.max_keys is not None):
            self._refuse("idle or max_keys", "them together with by: without it there is one key")
        if isinstance(self.formula, Automaton) and self.mode == "rv":
            self._refuse('mode="rv"', 'mode="ltl3": an automaton says nothing about finite traces')
        self._check_times()
        for option, key in (("by", self.by), ("time", self.time)):
            if key is not None:
                Key(key, option)
        # When built, not at the first event: an unknown proposition is a mistake in the program.
        _ = self.letters_of
        verdict = self.monitor.verdict(self.monitor.first)
        if verdict.is_final:
            log.warning("%s: %s is %s whatever happens", self.stage, self.text, verdict.value)
        elif not self.monitor.monitorable:
            if isinstance(self.formula, Automaton):
                more = "not at the end of the stream either"
            elif self.mode == "rv":
                more = "it is judged at the end of the stream"
            else:
                more = (
                    'it is judged at the end of the stream (mode="rv" reports what is presumed '
                    "meanwhile)"
                )
            log.warning(
                "%s: there are events after which nothing that follows can decide %s; %s",
                self.stage,
                self.text,
                more,
            )

    def _check_times(self) -> None:
        check_max_ahead(self.stage, self.max_ahead, has_time=self.time is not None)
        if not is_duration(self.lateness):
            self._refuse(f"lateness={self.lateness!r}", "a number of seconds that is not negative")
        if self.time is None and self.seconds_late:
            self._refuse("lateness", "it together with time, by which events may be late")
        deadlines = self.monitor.deadlines
        if deadlines is None:
            if self.time is not None:
                self._refuse("time", "it for a formula with a bound in time, such as F[<=10s] p")
        elif self.idle is not None and self.idle < deadlines.longest / 1_000_000:
            self._refuse(
                f"idle={self.idle!r}",
                f"at least {deadlines.longest / 1_000_000:g} seconds, the longest bound of the "
                "formula: keys would be forgotten before their deadlines",
            )

    @property
    def seconds_late(self) -> float:
        return in_seconds(self.lateness)

    def _refuse(self, what: str, wanted: str) -> None:
        raise BuildError(f"{self.stage}({what}): give {wanted}")

    @cached_property
    def monitor(self) -> Monitor:
        return Monitor(self.formula)

    @cached_property
    def text(self) -> str:
        return self.formula.strip() if isinstance(self.formula, str) else text_of(self.formula)

    @cached_property
    def letters_of(self) -> Letters:
        return letters(self.monitor.formula, self.tests, strict=self.strict)

    @cached_property
    def key(self) -> Key | None:
        return None if self.by is None else Key(self.by)

    def faults(self, on_error: OnError, run: Run, info: StageInfo) -> ErrorPolicy:
        """The policy of a running stage for events that cannot be judged."""
        if self.by is None:
            return ErrorPolicy(on_error, run, info)
        return KeyFaults(on_error, run, info, self.by)

    def info(self, *policies: object, bound: int = 0) -> StageInfo:
        """The description of the stage, in which `bound` events may wait; `policies` may send dead
        letters."""
        by = "" if self.by is None else f" by {key_name(self.by)}"
        most = "" if self.max_keys is None else f", at most {self.max_keys:,}"
        notes = [] if self.by is None else [f"remembers a state for each key{most}"]
        unused = [name for name in self.tests if name not in self.monitor.propositions]
        if unused:
            notes.append(f"given and not in the formula: {', '.join(unused)}")
        routed = routed_by(*policies)
        # The calls with one event are traced together, by the name of the first function.
        return StageInfo(
            *(self.stage, self.text + by, bound, "; ".join(notes)),
            routed=routed,
            placement=Placement(reads=(self.by,)),
            picture=Picture(calls=called_name(self.by, *self.tests.values())),
        )


class Watched(Protocol):
    """What is seen of the progress of a formula."""

    @property
    def walked(self) -> dict[Any, set[tuple[int, int | Verdict]]]:
        """The steps of the keys that are followed, from state to state of the machine, or to a
        verdict that no event has made."""
        ...

    def standing(self) -> Iterator[tuple[Any, int | Verdict]]:
        """Each remembered key with its state of the machine, or its verdict. O(keys)."""
        ...


class Instance:
    """The progress of the formula for one key.

    `kept` is the evidence, values or letters. If their number is limited it is a ring buffer:
    `count` is the index of the last one, and the oldest follows it. With bounds in time, `held` is
    what is open, and `alarm` the deadline for which an alarm is set.
    """

    __slots__ = ("alarm", "count", "held", "kept", "presumed", "state")

    def __init__(self, state: int, kept: list[Any], held: Held) -> None:
        self.state = state
        self.count = 0
        self.kept = kept
        self.presumed = Verdict.PRESUMABLY_TRUE
        self.held = held
        self.alarm: int | None = None

    def keep(self, what: Any, most: int) -> None:
        """Count an event, and keep it as evidence: the last `most`, or all if it is negative."""
        count = self.count
        self.count = count + 1
        if most:
            if count < most or most < 0:
                self.kept.append(what)
            else:
                self.kept[count % most] = what


class _Instances(dict[Any, Instance | Verdict]):
    """Instances by key; the verdict of a decided one. A new key begins in the first state."""

    def __init__(self, first: int, keeps: bool, held: Held) -> None:
        super().__init__()
        self._first = first
        self._keeps = keeps
        self._held = held

    def __missing__(self, key: Any) -> Instance:
        one = self[key] = self.new()
        return one

    def new(self) -> Instance:
        return Instance(self._first, [] if self._keeps else _NOTHING, self._held)


def keys_of(key: Key, values: list[Any]) -> Iterator[Any]:
    # Not a map, which a StopIteration from a key function would end.
    get = key.get
    for value in values:
        try:
            found = get(value)
        except Exception:
            if not key.adapts(value):
                raise
            get = key.get
            found = get(value)
        yield found


class Watch:
    """One run of a rule.

    Memory: an instance for each undecided key, a dict entry for each decided one. `idle` and
            `max_keys` bound both; a key that they drop begins anew when it comes again. The idle
            time is the same for all keys, so an OrderedDict in the order of last use is enough: an
            event costs 0.3 us with it, and 2.1 us with cachetools.TTLCache (100 keys; 0.6 and 3.2
            us with 10,000).
    """

    alarms: Sequence[Violation[Any]] = ()
    """Violations by deadlines, to be reported before that of the event at which `look` stopped."""

    def __init__(self, rule: Rule, now: Callable[[], float]) -> None:
        self._rule = rule
        self._now = now
        self._monitor = monitor = rule.monitor
        self._letters_of = rule.letters_of
        self._key = rule.key
        self._table = monitor.table
        self._most = rule.evidence if isinstance(rule.evidence, int) else -1
        self._keeps_letters = rule.evidence == "letters"
        self._telling = monitor.deciding if rule.mode == "ltl3" else monitor.states
        nothing = () if monitor.deadlines is None else monitor.deadlines.nothing
        self._instances = _Instances(monitor.first, bool(self._most), nothing)
        self._idle = rule.idle
        self._used: OrderedDict[Any, float] | None = None
        if rule.idle is not None or rule.max_keys is not None:
            self._used = OrderedDict()
        if rule.by is None:
            _ = self._instances[None]
        self.walked: dict[Any, set[tuple[int, int | Verdict]]] = {key: set() for key in rule.follow}
        self.place = 0
        self._violations = self._expired = self._evicted = self._inconclusive = 0

    def look(self, events: list[Event[Any]], begin: int) -> tuple[int, Violation[Any] | None]:
        """Process events from the index `begin` up to the first violation.

        Returns its index with the violation, or the number of events. Errors of propositions and
        keys pass through: `place` is the index of the event, which has changed nothing.
        """
        used, instances, most = self._used, self._instances, self._most
        keeps_letters = self._keeps_letters
        table, step, telling = self._table, self._monitor.next, self._telling
        walked = self.walked
        values = [event.value for event in (events[begin:] if begin else events)]
        coming = iter(values)
        keys = repeat(None, len(values)) if self._key is None else keys_of(self._key, values)
        try:
            # One of the two iterators raised, after the value was taken.
            for value, letter, key in zip(coming, self._letters_of(values), keys, strict=True):
                if used is not None:
                    self._use(key, used)
                one = instances[key]
                if isinstance(one, Verdict):
                    continue
                one.keep(letter if keeps_letters else value, most)
                before = one.state
                one.state = state = (
                    table[before | letter] if table is not None else step(before, letter)
                )
                if walked and key in walked:
                    self._note_step(key, one, before, state >> self._monitor.bits)
                if state in telling and (violation := self._decided(key, one)) is not None:
                    return len(events) - length_hint(coming) - 1, violation
        except Exception as error:
            self.place = len(events) - length_hint(coming) - 1
            self._name_key(events[self.place].value, error)
            raise
        return len(events), None

    def _name_key(self, value: Any, error: Exception) -> None:
        if self._key is not None:
            # A missing key is reported elsewhere.
            with suppress(Exception):
                add_note(error, f"of the key {describe(self._key.get(value))}")

    def _decided(self, key: Any, one: Instance) -> Violation[Any] | None:
        return self._tell(key, one, self._monitor.presumable(one.state))

    def _tell(self, key: Any, one: Instance, verdict: Verdict) -> Violation[Any] | None:
        """The violation by an event, if the verdict after it is a new one."""
        if verdict.is_final:
            self._settle(key, verdict)
        known, one.presumed = one.presumed, verdict
        if verdict is known or verdict in (Verdict.TRUE, Verdict.PRESUMABLY_TRUE):
            return None
        return self._violation(key, one, verdict, at_end=False)

    def _settle(self, key: Any, verdict: Verdict) -> None:
        if verdict is Verdict.FALSE and self._rule.restart:
            self._forget(key)
        else:
            self._instances[key] = verdict

    def _note_step(self, key: Any, one: Instance, before: int, after: int | Verdict) -> None:
        """Keep a step of a key that is followed."""
        if one.count == 1:
            self.walked[key].clear()
        self.walked[key].add((before >> self._monitor.bits, after))

    def standing(self) -> Iterator[tuple[Any, int | Verdict]]:
        for key, one in self._instances.items():
            yield key, self.where(one)

    def new(self) -> Instance:
        """The progress of a key before its first event."""
        return self._instances.new()

    def where(self, one: Instance | Verdict) -> int | Verdict:
        """The state of the machine, or the verdict."""
        return one if isinstance(one, Verdict) else one.state >> self._monitor.bits

    def at_end(self) -> Iterator[Violation[Any]]:
        """The violations of the keys that are undecided, and not idle, when the stream ends."""
        if self._used is not None:
            self._expire(self._now(), self._used)
            # From here on no key expires, however slowly the violations are taken.
            self._used = None
        for key, one in self._instances.items():
            if isinstance(one, Instance) and (violation := self._ended(key, one)) is not None:
                yield violation

    def _ended(self, key: Any, one: Instance) -> Violation[Any] | None:
        verdict = self._monitor.at_end(one.state)
        if verdict is Verdict.INCONCLUSIVE:
            self._inconclusive += 1
        if verdict is not Verdict.FALSE:
            return None
        return self._violation(key, one, Verdict.FALSE, at_end=True)

    def _violation(
        self, key: Any, one: Instance, verdict: Verdict, *, at_end: bool
    ) -> Violation[Any]:
        self._violations += 1
        oldest = one.count % self._most if one.count > self._most > 0 else 0
        kept: list[Any] = one.kept[oldest:] + one.kept[:oldest]
        if self._keeps_letters:
            kept = [self._monitor.true_in(letter) for letter in kept]
        truncated = len(kept) < one.count
        return Violation(self._rule.text, key, one.count, verdict, tuple(kept), truncated, at_end)

    def _use(self, key: Any, used: OrderedDict[Any, float]) -> None:
        now = self._now()
        self._expire(now, used)
        used[key] = now
        used.move_to_end(key)
        if self._rule.max_keys is not None and len(used) > self._rule.max_keys:
            self._drop(next(iter(used)))
            self._evicted += 1

    def _expire(self, now: float, used: OrderedDict[Any, float]) -> None:
        idle = self._idle
        while idle is not None and used:
            oldest = next(iter(used))
            if used[oldest] + idle > now:
                return
            self._drop(oldest)
            self._expired += 1

    def _drop(self, key: Any) -> None:
        """Forget a key that is idle, or one too many."""
        self._forget(key)

    def _forget(self, key: Any) -> None:
        """The key begins anew when it comes again."""
        del self._instances[key]
        if self._used is not None:
            del self._used[key]

    def statistics(self) -> dict[str, int]:
        """`keys` remembered now, `violations` so far, and the keys that were forgotten because
        they were `expired` (idle) or `evicted` (more than `max_keys`); keys that were
        `inconclusive` at the end, about which an automaton says nothing."""
        if self._used is not None:
            self._expire(self._now(), self._used)
        return {
            "keys": len(self._instances),
            "violations": self._violations,
            "expired": self._expired,
            "evicted": self._evicted,
            "inconclusive": self._inconclusive,
        }


_NOTHING: list[Any] = []
