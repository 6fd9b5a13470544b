"""Emit only the violations of a temporal formula.

Items:   a `Violation` for each key that violates the formula, in place of the event that decided
         it; each key's events are watched separately, by one table look-up per event.
Time:    at once; violations that only the end can decide, at the end. A bound in time, as in
         `F[<=10s]`, is measured between the arrivals of events (their stamps `created`), or with
         `time`, or behind `event_time`, between their own times. On arrival a timer reports what
         has not come by its deadline, but not while nothing is requested of the source. By their
         own times the watermark passes deadlines: the largest time of all keys, less `lateness`,
         which with `time` only events move, and behind `event_time` also silence. A key's missed
         deadline comes before what its next event violates; those of other keys may come after
         what the events of the same list violate. An event whose key cannot be read has moved the
         watermark.
Memory:  for each key a small integer, a count and `evidence`; a key that is decided costs an entry
         of a dict. At most `max_keys` of them, or those used in the last `idle` seconds. Bounds
         in time add a deadline for each of them, and up to 1,024 events that decided something, by
         their own times 10,000. With a `store` the last `cache` keys (see Store), and at most
         10,000 uncommitted events.
Demand:  one more for each event that decides nothing. Violations of the end are made when they are
         requested; those by a deadline owe the source nothing, and wait for demand.
Ends:    with the source, after a violation for each key whose events so far do not satisfy the
         formula on a finite trace: outstanding obligations can no longer be fulfilled.
Errors:  the source's error passes on, without a verdict at the end. An error of a proposition, a
         missing key, or a `time` more than `max_ahead` ahead of the wall clock is this stage's
         error, which by default ends the pipeline; `on_error="skip"` or `route(sink)` leave the
         event out and go on.

    source                            --p--q--p--|
    violations("G(p -> X q)")         -----------a|    a: the q of the last p never came
    violations("G(p -> F[<=2s] q)")   -----------a|    the same; had the end not come, 2 s after p
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead
from penstock.streams.base.errors import CALL_ERRORS, own_error
from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OnError, check_policy
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.acknowledgement import NOBODY
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, UNBOUNDED, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import check_demand
from penstock.streams.stages.demand_stage import BaseDemandStage
from penstock.streams.state.store import Store, check_store

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock.streams.monitoring.watching import Evidence, Mode, Rule, Watch
    from penstock.streams.temporal.automata.automaton import Automaton
    from penstock.streams.temporal.formula.formula import Formula
    from penstock.streams.temporal.monitors.propositions import Test
    from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["violations"]

T = TypeVar("T")

# Events that may wait because an alarm has used the demand for them; chosen.
_MOST_WAITING = 1_024


@recorded
def violations(
    formula: str | Formula | Automaton,
    by: By[T] | None = None,
    *,
    mode: Mode = "ltl3",
    evidence: Evidence = 16,
    idle: float | None = None,
    max_keys: int | None = None,
    restart: bool = False,
    strict: bool = True,
    time: By[T] | None = None,
    lateness: float | timedelta = 0.0,
    max_ahead: MaxAhead = MAX_AHEAD,
    store: Store | None = None,
    name: str | None = None,
    on_error: OnError = "stop",
    where: Mapping[str, Test[T]] | None = None,
    **propositions: Test[T],
) -> Callable[[Flowable[T]], Flowable[Violation[T]]]:
    """Watch `formula` for each key `by` (a name, an index or a function), or for all events
    together, and emit the violations.

    A proposition is a plain function of the event, or a mapping of the fields that it must have,
    such as `{"type": "paid"}`; `where` takes those whose names are not Python names, or are
    names of options. `evidence` is how many of the key's last events a violation carries, or
    "full", or "letters" for the propositions that held. After a violation the key is silent, or
    with `restart` starts again. `mode="rv"` also reports when a formula becomes presumably false
    (RV-LTL). With `strict=False` a proposition that is not given is the field or attribute of its
    name. `time` (a name, an index or a function) reads an event's own time: a number of seconds, an
    ISO 8601 text or a datetime, without a zone in UTC; `lateness` is how many seconds an event may
    come after one with a later time. The two are a shorthand for an `event_time` in front that
    silence does not move. With a `store` the progress of each key is committed with the marks of
    its events, and goes on in the next run; then no key is forgotten. `name` identifies the stage
    in its store; the default is "violations by ...".

    Raises FormulaSyntaxError, FormulaTooLarge, TimedFormula, UnknownProposition, and BuildError for
    invalid options, such as an `idle` below the longest bound.

    Sources: Bauer, Leucker and Schallhart (TOSEM 2011); De Giacomo and Vardi (IJCAI 2013).

    >>> from penstock import for_each, from_iterable, run, violations
    >>> paid = violations("G(order -> X pay)", order={"kind": "order"}, pay={"kind": "pay"})
    >>> events = from_iterable([{"kind": "order"}, {"kind": "order"}, {"kind": "pay"}])
    >>> report = run(events.pipe(paid).to(for_each(print)))
    G(order -> X pay) is violated by event 2: {'kind': 'order'}
    """
    # Slow to import, and few pipelines have one.
    from penstock.streams.monitoring.watching import Rule
    from penstock.streams.temporal.monitors.propositions import given

    rule = Rule(
        stage="violations",
        formula=formula,
        by=by,
        mode=mode,
        evidence=evidence,
        idle=idle,
        max_keys=max_keys,
        restart=restart,
        strict=strict,
        tests=given(where, propositions),
        time=time,
        lateness=lateness,
        max_ahead=max_ahead,
    )
    return violations_of(rule, on_error, store, name)


def violations_of(
    rule: Rule, on_error: OnError, store: Store | None = None, name: str | None = None
) -> Callable[[Flowable[Any]], Flowable[Violation[Any]]]:
    """Emit the violations of a rule; what `violations` returns."""
    # Slow to import, and few pipelines have one.
    from penstock.streams.monitoring.kept_watching import is_kept, kept_watching
    from penstock.streams.monitoring.timed_watching import watch_of

    check_policy(on_error, "violations")
    check_store("violations", store, name)
    info = rule.info(on_error, bound=_MOST_WAITING if rule.monitor.deadlines else 0)

    def watch(downstream: Subscriber[Violation[Any]], run: Run, info: StageInfo) -> _Violations:
        faults = rule.faults(on_error, run, info)
        return _Violations(downstream, run, info, watch_of(rule, run.now), faults)

    # Any: the flow that a function of streams makes.
    def operator(source: Flowable[Any]) -> Any:
        check_demand("violations", source)
        if is_kept(rule, source, store):
            return kept_watching(rule, info, source, on_error, store, name, None)
        return source.then(watch, info)

    return operator


class _Violations(BaseDemandStage):
    def __init__(
        self,
        downstream: Subscriber[Violation[Any]],
        run: Run,
        info: StageInfo,
        watch: Watch,
        faults: ErrorPolicy,
    ) -> None:
        # Imported here: it imports what untimed pipelines do not need.
        from penstock.streams.monitoring.alarm import alarm_of

        super().__init__(downstream, run, info)
        self._watch = watch
        self._faults = faults
        self._waiting: deque[Event[Any]] = deque()
        self._alarm = alarm_of(watch, run, info, self._ring)
        self._acts_after_drain = self._alarm is not None

    def take(self, events: list[Event[Any]], /) -> None:
        watch = self._watch
        begin = 0
        while begin < len(events) and self.state < CLOSED:
            error: Exception | None = None
            violation: Violation[Any] | None = None
            try:
                place, violation = watch.look(events, begin)
            except CALL_ERRORS as raised:
                place, error = watch.place, own_error(raised)
            drop_all(events[begin:place], "no violation")
            begin = place + 1
            self._emit(watch.alarms)
            if error is not None:
                if not self._faults.survives(events[place], error):
                    self.fail(error)
            elif violation is not None:
                event = events[place]
                event.value = violation
                self._offer(event)
            elif place < len(events):
                events[place].drop("no violation")
        give_back_all(events[begin:])

    def _emit(self, alarms: Iterable[Violation[Any]]) -> None:
        for violation in alarms:
            self._offer(Event(violation, self.run.now(), NOBODY))

    def _offer(self, event: Event[Any]) -> None:
        """Send a violation, or let it wait: an alarm may have used the demand for it."""
        if self.state >= CLOSED:
            event.give_back()
        elif self.demand and not self._waiting:
            self.send(event)
        else:
            self._waiting.append(event)

    def _ring(self, alarms: list[Violation[Any]]) -> None:
        self.within(self._emit, alarms)

    def _after_drain(self) -> None:
        assert self._alarm is not None
        if self.state:
            self._alarm.stop()
        else:
            self._alarm.follow(self.asked)

    def step(self) -> bool:
        if self._waiting:
            if not self.demand:
                return False
            self.send(self._waiting.popleft())
            return True
        if self.state:
            return self.send_rest()
        missing = min(self.demand, self.info.bound or UNBOUNDED) - self.asked
        if missing <= 0:
            return False
        self.ask(missing)
        return True

    def release(self) -> None:
        if self._alarm is not None:
            self._alarm.stop()
        waiting = [*self._waiting]
        self._waiting.clear()
        give_back_all(waiting)

    def rest(self) -> Iterable[Violation[Any]]:
        return self._watch.at_end()

    def statistics(self) -> dict[str, Any]:
        """`keys`, `violations`, keys `expired` and `evicted`, events `skipped` and `routed`."""
        return {
            "waiting": sum(event.origin is not NOBODY for event in self._waiting),
            **self._watch.statistics(),
            **self._faults.statistics(),
        }
