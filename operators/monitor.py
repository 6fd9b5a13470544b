"""Pass events through, and report violations of a temporal formula.

Items:   every event, unchanged and in order. Each key's events are watched separately, by one table
         look-up per event.
Time:    an event passes at once, before its violation is reported; violations that only the end can
         decide are reported at the end. A bound in time, as in `F[<=10s]`, is measured between the
         arrivals of events (their stamps `created`), or, with `time` or behind `event_time`,
         between their own times. On arrival a timer reports what has not come by its deadline, but
         not while nothing is requested of the source. By their own times the watermark passes
         deadlines: the largest time of all keys, less `lateness`, which with `time` only events
         move, and behind `event_time` also silence. A key's missed deadline is reported before its
         next event; those of other keys may be reported after the events that came in the same
         list. An event whose key cannot be read has moved the watermark.
Memory:  for each key a small integer, a count and `evidence`; a key that is decided costs an entry
         of a dict. At most `max_keys` of them, or those used in the last `idle` seconds. Bounds
         in time add a deadline for each of them. While 1,024 violations wait for a sink the
         sources pause. With a `store` the last `cache` keys (see Store), and at most 10,000 events
         that are not committed.
Demand:  as many as are requested of it; by the times of events 10,000 at a time.
Ends:    with the source, after reporting each key whose events so far do not satisfy the formula on
         a finite trace: outstanding obligations can no longer be fulfilled.
Errors:  the source's error passes on, without a verdict at the end. An error of a proposition, a
         missing key, or a `time` more than `max_ahead` ahead of the wall clock is this stage's
         error, which by default ends the pipeline; `on_error="skip"` or `route(sink)` leave the
         event out and go on. `on_violation="stop"` ends the pipeline with Violated; an error of a
         function for violations ends it too.

    source                         --p--q--p--p--|
    monitor("G(p -> X q)")         --p--q--p--p--|     the last p violates it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.streams.base.ahead import MAX_AHEAD, MaxAhead
from penstock.streams.base.errors import CALL_ERRORS, BuildError, own_error
from penstock.streams.base.keys import By
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_async, require_parameters
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import (
    LettersOnly,
    OnError,
    Route,
    check_policy,
)
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.blame import error_in, fail_event
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import CLOSED, BaseStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.rx.lift import on_stream
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.state.store import Store, check_store

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock.streams.monitoring.watching import Evidence, Mode, Watch
    from penstock.streams.temporal.automata.automaton import Automaton
    from penstock.streams.temporal.formula.formula import Formula
    from penstock.streams.temporal.monitors.propositions import Test
    from penstock.streams.temporal.monitors.violation import Violation

__all__ = ["monitor"]

T = TypeVar("T")

OnViolation = Literal["report", "stop"] | Callable[["Violation[T]"], object] | Sink["Violation[T]"]


@recorded
def monitor(
    formula: str | Formula | Automaton,
    by: By[T] | None = None,
    *,
    on_violation: OnViolation[T] = "report",
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
) -> Callable[[Flowable[T]], Flowable[T]]:
    """Watch `formula` for each key `by` (a name, an index or a function), or for all events
    together.

    `on_violation` says what to do with a `Violation`: "report" counts it in the statistics and
    warns of the first ten, "stop" ends the pipeline with Violated, a plain function is called with
    it, and a sink takes it: an event is finished when its violation was accepted as well.
    All other options are those of `violations`.

    Raises FormulaSyntaxError, FormulaTooLarge, TimedFormula, UnknownProposition, and BuildError for
    invalid options.

    Sources: Bauer, Leucker and Schallhart (TOSEM 2011); De Giacomo and Vardi (IJCAI 2013).

    >>> from penstock import collect, from_iterable, monitor, run
    >>> paid = monitor("G(order -> X pay)", order={"kind": "order"}, pay={"kind": "pay"})
    >>> events = [{"kind": "order"}, {"kind": "pay"}, {"kind": "order"}, {"kind": "order"}]
    >>> report = run(from_iterable(events).pipe(paid).to(collect([])))
    >>> report.statistics["stages"][1]["violations"]
    1
    """
    # Slow to import, and few pipelines have one.
    from penstock.streams.monitoring.kept_watching import is_kept, kept_watching
    from penstock.streams.monitoring.timed_watching import watch_of
    from penstock.streams.monitoring.watching import Rule
    from penstock.streams.temporal.monitors.propositions import given

    check_policy(on_error, "monitor")
    check_store("monitor", store, name)
    _check(on_violation)
    rule = Rule(
        stage="monitor",
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

    # Violations wait for their sink like dead letters.
    told: Any = on_violation
    info = rule.info(on_error, Route(told) if isinstance(told, Sink) else told)

    def watch(downstream: Subscriber[T], run: Run, info: StageInfo) -> _Monitor:
        faults = rule.faults(on_error, run, info)
        return _Monitor(downstream, run, info, watch_of(rule, run.now), faults, on_violation)

    def read(source: Any) -> Any:
        if is_kept(rule, source, store):
            return kept_watching(rule, info, source, on_error, store, name, on_violation)
        return source.then(watch, info, passes=True)

    return on_stream(read, "monitor")


def _check(on_violation: Any) -> None:
    if isinstance(on_violation, Sink):
        if isinstance(on_violation, LettersOnly):
            raise BuildError(
                f"monitor(on_violation={on_violation.info.name}(...)): that sink takes what has "
                "failed; give one for values, such as write_jsonl(path)"
            )
    elif callable(on_violation):
        if is_async(on_violation):
            raise BuildError(
                "monitor(on_violation=...): an async function is awaited by a sink; give "
                "for_each(function)"
            )
        require_parameters(on_violation, "monitor(on_violation=...)", 1, "a violation")
    elif on_violation not in ("report", "stop"):
        raise BuildError(
            f'monitor(on_violation={on_violation!r}): use "report", "stop", a function or a sink'
        )


class _Monitor(BaseStage):
    def __init__(
        self,
        downstream: Subscriber[Any],
        run: Run,
        info: StageInfo,
        watch: Watch,
        faults: ErrorPolicy,
        on_violation: OnViolation[Any],
    ) -> None:
        # Imported here: it imports what pipelines without a monitor do not need.
        from penstock.streams.monitoring.alarm import alarm_of
        from penstock.streams.monitoring.reporting import ViolationReports

        super().__init__(downstream)
        self._run = run
        self._current = run.current
        self._info = info
        self._watch = watch
        self._faults = faults
        self._reports = ViolationReports(on_violation, run, info)
        # Events that were requested and have not come.
        self._requested = 0
        self._alarm = alarm_of(watch, run, info, self._ring)

    def request(self, n: int, /) -> None:
        self._requested += n
        self._set_alarm()
        super().request(n)

    def _request_again(self, n: int) -> None:
        self.request(n)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self._requested -= len(events)
        passed = self._current.call(self, self._passed, events)
        if passed is not None:
            self._let_pass(passed, len(events))
            self._set_alarm()

    def _passed(self, events: list[Event[Any]]) -> list[Event[Any]] | None:
        """The events that go on; None if the stream has ended at one of them."""
        watch = self._watch
        passed: list[Event[Any]] = []
        begin = 0
        while begin < len(events):
            try:
                place, violation = watch.look(events, begin)
            except CALL_ERRORS as raised:
                error = own_error(raised)
                place = watch.place
                passed += events[begin:place]
                if not self._faults.survives(events[place], error):
                    self._fail(error, passed, events[place + 1 :])
                    return None
            else:
                passed += events[begin:place]
                if watch.alarms and not self._alarmed(watch.alarms, passed, events[place:]):
                    return None
                if violation is not None:
                    event = events[place]
                    try:
                        self._reports.report(violation, event)
                    except CALL_ERRORS as raised:
                        error = fail_event(event, raised, self._info)
                        self._fail(error, passed, events[place + 1 :])
                        return None
                passed += events[place : place + 1]
            begin = place + 1
        return passed

    def _set_alarm(self) -> None:
        if self._alarm is not None and not self.state:
            self._alarm.follow(self._requested)

    def _ring(self, alarms: list[Violation[Any]]) -> None:
        self._alarmed(alarms, [], [])

    def _alarmed(
        self,
        alarms: Iterable[Violation[Any]],
        passed: list[Event[Any]],
        rest: list[Event[Any]],
    ) -> bool:
        """Report violations that no event has made; False if that has ended the stream."""
        try:
            for violation in alarms:
                self._reports.report(violation, None)
        except CALL_ERRORS as raised:
            self._fail(error_in(self._info, raised), passed, rest)
            return False
        return True

    def _fail(self, error: Exception, passed: list[Event[Any]], rest: list[Event[Any]]) -> None:
        if self._alarm is not None:
            self._alarm.stop()
        super()._fail(error, passed, rest)

    def on_completed(self) -> None:
        if self.state:
            return
        self._close()
        last = self._watch.at_end()
        try:
            reports = self._reports
            if reports.letters is not None:
                reports.letters.put_all(reports.letter(violation, None) for violation in last)
            else:
                for violation in last:
                    self._reports.report(violation, None)
        except CALL_ERRORS as raised:
            self.downstream.on_error(own_error(raised))
        else:
            self.downstream.on_completed()

    def on_error(self, error: BaseException, /) -> None:
        self._close()
        super().on_error(error)

    def cancel(self) -> None:
        self._close()
        super().cancel()

    def _close(self) -> None:
        self.state = CLOSED
        if self._alarm is not None:
            self._alarm.stop()

    def statistics(self) -> dict[str, Any]:
        """`keys`, `violations`, keys `expired` and `evicted`, events `skipped` and `routed`."""
        return {
            **self._watch.statistics(),
            **self._faults.statistics(),
        }
