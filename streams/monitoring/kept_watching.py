"""The stages behind `monitor` and `violations` whose progress is in a store, or by event time."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from sys import maxsize
from typing import Any, cast

from penstock.streams.base.errors import CALL_ERRORS, BuildError
from penstock.streams.base.keys import By, all_events, key_name
from penstock.streams.event_time.above import Timed, timed_above, times_for, with_times
from penstock.streams.event_time.clock import Watermark, watermark_behind
from penstock.streams.event_time.line import MarkedTime
from penstock.streams.event_time.source_time import SourceTime
from penstock.streams.event_time.timed_by import timed_by
from penstock.streams.failures.policy import OnError
from penstock.streams.monitoring.kept_watch import KeptWatch
from penstock.streams.monitoring.object_states import ObjectStates
from penstock.streams.monitoring.reporting import OnViolation, ViolationReports
from penstock.streams.monitoring.watching import Rule
from penstock.streams.protocol.blame import error_in, fail_event
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import Delivery, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.state.backend import KeptStage
from penstock.streams.state.changes import Cell
from penstock.streams.state.held_stage import MOST_HELD
from penstock.streams.state.store import Store
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.monitors.violation import Violation
from penstock.streams.windows.stage import WindowStage
from penstock.streams.windows.states import Asked, Closed

__all__ = ["is_kept", "kept_watching"]


def is_kept(rule: Rule, source: Any, store: Store | None) -> bool:
    """Whether the progress for a rule is kept as states: in a store, or for deadlines by the times
    of events, which the rule reads or an `event_time` above gives."""
    if store is not None or rule.time is not None:
        return True
    timed = timed_above([stream.info for stream in source.chain()])
    return rule.monitor.deadlines is not None and bool(timed)


def kept_watching(
    rule: Rule,
    info: StageInfo,
    source: Any,
    on_error: OnError,
    store: Store | None,
    name: str | None,
    on_violation: OnViolation | None,
) -> Any:
    """The source behind a stage that keeps the progress for a rule. It reports violations by
    `on_violation` and lets events pass; for None it emits violations.

    Raises BuildError for options that do not go together.
    """
    if store is not None and (rule.idle is not None or rule.max_keys is not None):
        raise BuildError(
            f"{rule.stage}(idle=, max_keys=) forgets keys, and with a store none is forgotten: "
            "leave them out; Store(cache=) says how many are in memory"
        )
    own: Callable[[Any], Any] | None = None
    if rule.time is not None:
        whole = store is None
        own = timed_by(*(rule.time, rule.seconds_late, inf, rule.max_ahead, on_error), whole=whole)
    source, timed = with_times(rule.stage, source, own, "time=, lateness= and max_ahead=")
    if rule.monitor.deadlines is not None and not timed:
        raise BuildError(
            f"{rule.stage}(store=...) measures bounds in the times of events: {times_for(source)}, "
            "or give time="
        )
    watermark = watermark_behind(source, timed)
    by: By[Any] = all_events if rule.by is None else rule.by
    what = "" if rule.by is None else f" by {key_name(rule.by)}"
    options = f"{rule.text}, {rule.mode}, {rule.evidence}, machine {KeptWatch(rule).machine}"
    kept = KeptStage(name or f"{rule.stage}{what}", f"{key_name(by)}: {options}", 1)

    def make(downstream: Subscriber[Any], run: Run, info: StageInfo) -> _WatchStage:
        info.require_no_group(f"{rule.stage} outside{what and ','}{what}")
        kept_in = Store.memory(cache=maxsize) if store is None else store
        commits = kept_in.marks_in(run)
        watch, again = (cast(Any, KeptWatch(rule)) for _ in range(2))
        states = ObjectStates(info, kept_in.declare(kept), kept, again, kept_in.cache, run.wall)
        is_stored = store is not None
        clock = partial(watermark, run, info, commits, is_stored)
        skips: OnError = "skip"
        options = None, skips, on_error, is_stored
        stage_of = _ViolationsStage if on_violation is None else _MonitorStage
        stage = stage_of(*(downstream, run, info, by, watch, clock, states, commits, *options))
        stage.begin_watching(rule, timed)
        if on_violation is not None:
            cast(_MonitorStage, stage).reports = ViolationReports(on_violation, run, info)
        return stage

    described = info._replace(
        detail=info.detail + ("" if store is None else f", in {store.name}"),
        bound=MOST_HELD if store is not None or on_violation is None else 0,
        # Without a store an event passes at once, and nothing of it is kept for the next run.
        delivery=Delivery(store=store),
        placement=info.placement._replace(by=by),
    )
    return source.then(make, described, passes=on_violation is not None)


class _WatchStage(WindowStage):
    """Judges each event by the progress of its key, and what is due when the watermark is there."""

    def begin_watching(self, rule: Rule, timed: list[Timed]) -> None:
        self._watch = cast(KeptWatch, self._windows)
        self._letters_of = rule.letters_of
        if not timed:
            self._stamp_of = _no_time
        self._sources: list[SourceTime] = []
        for one in timed:
            one.read(self.run, self._add_source)
        self._value_of = self._letter_of
        # With max_keys, the keys by their last use.
        self._most = rule.max_keys
        self._used = OrderedDict[Any, None]()
        self._evicted = self._unjudged = 0
        self._is_one = rule.by is None
        if rule.begun is not None:
            rule.begun(self)

    def begin(self) -> None:
        if self._is_one and not self._is_stored and self._are_read({None}):
            cell = self._states.cells[None]
            self._watch.begin(cell.state)
            self._states.follow(cell)
            self._timers.note(cell)
        super().begin()

    @property
    def walked(self) -> dict[Any, set[tuple[int, int | Verdict]]]:
        return self._watch.walked

    def standing(self) -> Iterator[tuple[Any, int | Verdict]]:
        return self._watch.standing(self._states.cells.values())

    def _add_source(self, source: SourceTime) -> None:
        # Of several sources, an event of another may still come before the watermark of one.
        self._sources.append(source)
        for one in self._sources:
            one.marks_all = len(self._sources) == 1

    def _letter_of(self, event: Event[Any], stamp: float, key: Any) -> Any:
        (letter,) = self._letters_of([event.value])
        emitted = stamp.watermark if isinstance(stamp, MarkedTime) else -inf
        return letter, event.value, emitted, key

    def _has_added(self, event: Event[Any], cell: Cell, dropped: list[Event[Any]]) -> None:
        # Before others are forgotten, which may find more.
        found = self._watch.found
        if not self._is_stored:
            self._use(cell)
        self._judged(event, found, dropped)

    @abstractmethod
    def _judged(
        self, event: Event[Any], found: list[Violation[Any]], dropped: list[Event[Any]]
    ) -> None:
        """An event by which these violations were found goes on, or is to be `dropped`."""

    def _use(self, cell: Cell) -> None:
        """Forget a key that begins anew, and of too many those used longest ago."""
        cells, used, most, key = self._states.cells, self._used, self._most, cell.key
        if self._watch.is_empty(cell.state):
            cells.pop(key, None)
            used.pop(key, None)
            return
        # An earlier event of the same list may have had it forgotten.
        cells[key] = cell
        if most is None:
            return
        used[key] = None
        used.move_to_end(key)
        if len(used) <= most:
            return
        present = self._watch.present
        while len(used) > most:
            oldest, _ = used.popitem(last=False)
            forgotten = cells[oldest]
            # What is due comes first.
            if found := self._watch.close(oldest, forgotten.state, present):
                self._send(forgotten, found, Closed(present))
            if not self._watch.is_empty(forgotten.state):
                self._evicted += 1
                self._unjudged += self._watch.is_unjudged(forgotten.state, present)
                forgotten.state = self._watch.new()
            cells.pop(oldest, None)

    def _send(self, cell: Cell, found: list[Any], done: Closed | Asked) -> None:
        super()._send(cell, found, done)
        if cell.key not in self._states.cells:
            self._used.pop(cell.key, None)

    def _close_of(self, key: Any) -> None:
        cell = self._states.cells.get(key)
        if cell is not None and cell.timers and self._clock.watermark == inf:
            clock = self._watch.clock = cast(Watermark, self._clock).last()
            if min(cell.timers.values()) > clock:
                # It is not past, but the stream ends.
                self._send(cell, self._watch.close(key, cell.state, inf), Closed(inf))
                return
        super()._close_of(key)

    def statistics(self) -> dict[str, Any]:
        """The `violations` found, and events that were `late`, which are judged all the same; keys
        that were `expired` or `evicted`, and those forgotten while something was open, which are
        `unjudged`."""
        numbers = super().statistics()
        del numbers["open_windows"], numbers["lost_windows"]
        return {
            **numbers,
            "violations": self._watch.violations,
            "late": self._watch.late,
            "expired": self._watch.expired,
            "evicted": self._evicted,
            "unjudged": self._unjudged,
        }


class _ViolationsStage(_WatchStage):
    """Emits violations."""

    _why_dropped = "no violation"

    def _judged(
        self, event: Event[Any], found: list[Violation[Any]], dropped: list[Event[Any]]
    ) -> None:
        if not found:
            dropped.append(event)
        else:
            self._emit(event, found)


class _MonitorStage(_WatchStage):
    """Lets events pass, and reports violations."""

    reports: ViolationReports

    def _judged(
        self, event: Event[Any], found: list[Violation[Any]], dropped: list[Event[Any]]
    ) -> None:
        try:
            for violation in found:
                self.reports.report(violation, event)
        except CALL_ERRORS as raised:
            self._stop(fail_event(event, raised, self.info))
        else:
            self._out.append(event)

    def _emit(self, event: Event[Any], found: list[Any]) -> None:
        try:
            for violation in found:
                # Only what goes to a sink is done later than the event.
                self.reports.report(violation, event if self.reports.letters else None)
        except CALL_ERRORS as raised:
            event.give_back()
            self._stop(error_in(self.info, raised))
        else:
            event.finish()


def _no_time(event: object) -> float:
    return -inf
