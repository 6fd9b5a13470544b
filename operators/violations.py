"""Emit only the violations of a temporal formula.

Items:   a `Violation` for each key that violates the formula, in place of the event that decided
         it; each key's events are watched separately, by one table look-up per event.
Time:    at once; violations that only the end can decide, at the end. No timers.
Memory:  for each key a small integer, a count and `evidence`; a key that is decided costs an entry
         of a dict. At most `max_keys` of them, or those used in the last `idle` seconds.
Demand:  one more for each event that decides nothing. No violation waits: those of the end are made
         when they are requested.
Ends:    with the source, after a violation for each key whose events so far do not satisfy the
         formula on a finite trace: outstanding obligations can no longer be fulfilled.
Errors:  the source's error passes on, without a verdict at the end. An error of a proposition, or a
         missing key, is this stage's error, which by default ends the pipeline; `on_error="skip"`
         or `route(sink)` leave the event out and go on.

    source                            --p--q--p--|
    violations("G(p -> X q)")         -----------a|    a: the q of the last p never came
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.failures.policy import ErrorPolicy, OnError, check_policy
from penstock.streams.flowable import Flowable
from penstock.streams.keyed.key import By
from penstock.streams.protocol.demand_stage import DemandStage
from penstock.streams.protocol.event import Event, drop_all, give_back_all
from penstock.streams.protocol.stage import CLOSED, StageInfo, Subscriber
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.temporal.automata.automaton import Automaton
    from penstock.streams.temporal.formula.formula import Formula
    from penstock.streams.temporal.monitors.propositions import Test
    from penstock.streams.temporal.monitors.violation import Violation
    from penstock.streams.temporal.monitors.watching import Evidence, Mode, Watch

__all__ = ["violations"]

T = TypeVar("T")


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
    name.

    Raises FormulaSyntaxError, FormulaTooLarge, UnknownProposition, and BuildError for invalid
    options.

    Sources: Bauer, Leucker and Schallhart (TOSEM 2011); De Giacomo and Vardi (IJCAI 2013).
    """
    # Slow to import, and few pipelines have one.
    from penstock.streams.temporal.monitors.propositions import given
    from penstock.streams.temporal.monitors.watching import Rule, Watch

    check_policy(on_error, "violations")
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
    )

    def watch(downstream: Subscriber[Violation[T]], run: Run, info: StageInfo) -> _Violations:
        faults = rule.faults(on_error, run, info)
        return _Violations(downstream, run, info, Watch(rule, run.now), faults)

    return lambda source: source.then(watch, rule.info(on_error))


class _Violations(DemandStage):
    def __init__(
        self,
        downstream: Subscriber[Violation[Any]],
        run: Run,
        info: StageInfo,
        watch: Watch,
        faults: ErrorPolicy,
    ) -> None:
        super().__init__(downstream, run, info)
        self._watch = watch
        self._faults = faults

    def take(self, events: list[Event[Any]], /) -> None:
        watch = self._watch
        begin = 0
        while begin < len(events) and self.state < CLOSED:
            error: Exception | None = None
            violation: Violation[Any] | None = None
            try:
                place, violation = watch.look(events, begin)
            except Exception as raised:
                place, error = watch.place, raised
            drop_all(events[begin:place], "no violation")
            begin = place + 1
            if error is not None:
                if not self._faults.survives(events[place], error):
                    self.fail(error)
            elif violation is not None:
                event = events[place]
                event.value = violation
                self.send(event)
        give_back_all(events[begin:])

    def step(self) -> bool:
        if self.state:
            return self.send_rest()
        missing = self.demand - self.asked
        if missing <= 0:
            return False
        self.ask(missing)
        return True

    def rest(self) -> Iterable[Violation[Any]]:
        return self._watch.at_end()

    def statistics(self) -> dict[str, Any]:
        """`keys`, `violations`, keys `expired` and `evicted`, events `skipped` and `routed`."""
        return {
            **self._watch.statistics(),
            **self._faults.statistics(),
        }
