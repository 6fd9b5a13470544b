"""Random pipelines of everything that meets in a working stage, and the checks of each."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reactivex import operators as rx

from penstock import (
    Backoff,
    Fixed,
    Flowable,
    Inbox,
    Running,
    Shared,
    adaptive_flat_map,
    batch,
    chunk,
    for_each,
    from_iterable,
    group_by,
    inbox,
    ops,
    rate_limit,
    retry,
    route,
    spread,
)
from penstock.streams.base.errors import (
    DrainTimeout,
    HandlerCancelled,
    HandlerTimeout,
    HoldExceeded,
    InboxClosed,
    Returned,
)
from penstock.streams.limits import Outcome as OfCall
from penstock.streams.protocol.event import Ending
from penstock.streams.testing import Leaked, MemorySink, MemorySource, no_leaks, run_virtual
from tests.contract.test_conservation import check
from tests.helpers.random_handlers import (
    BatchHandler,
    Gauge,
    Handler,
    InTurn,
    Notes,
    Outcome,
    Trouble,
    Value,
)
from tests.helpers.reactive_streams.between import counted

__all__ = ["FEATURES", "RandomWalk"]

FEATURES = (
    "retry",
    "timeout",
    "ordered",
    "iterator",
    "shared",
    "batch",
    "each=",
    "lists of groups",
    "counted events",
    "feeders",
    "children that share a turn",
    "nested groups",
    "drain",
    "cancel",
    "cancel from inside",
    "failing sink",
    "demand of 1",
)

# Events in a walk at which something may be done to it.
_LATE = ("cancel from inside", "failing sink", "drain", "iterator", "children that share a turn")

# Fates that are the same at each attempt.
_ALWAYS = ("at the last moment", "hangs on", "hangs and returns")


class Halt(BaseException):
    """An error of a function that no policy is asked about."""


# Errors that end a running here, or that are reported after the first one.
_EXPECTED = (
    Trouble,
    TimeoutError,
    HandlerTimeout,
    HandlerCancelled,
    DrainTimeout,
    HoldExceeded,
    Halt,
)


class Jumping:
    """A limiter whose limit jumps between its bounds every few completions."""

    reason = "by chance"

    def __init__(self, floor: int, ceiling: int, notes: Notes) -> None:
        self.floor, self.ceiling, self.limit = floor, ceiling, ceiling
        self._notes = notes
        self._rng = random.Random(notes.name)
        self._last = 0.0
        self.heard = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Jumping:
        return self

    def on_complete(
        self, now: float, started: float, in_flight_at_start: int, outcome: OfCall
    ) -> None:
        if not started <= now <= asyncio.get_running_loop().time() or now < self._last:
            self._notes.blame(
                f"a limiter heard of a call from {started} to {now} after {self._last}"
            )
        self.heard += 1
        # One more for the next attempt of the head of an order.
        if not 1 <= in_flight_at_start <= self.ceiling + 1:
            self._notes.blame(f"a limiter heard that {in_flight_at_start} calls were in flight")
        self._last = now
        if self._rng.random() < 0.3:
            self.limit = self._rng.randint(self.floor, self.ceiling)


class RandomWalk:
    """A random pipeline with random disturbances; `name` gives the same one again.

    `run` runs it on a virtual loop and raises AssertionError for everything that must not happen.
    `met` are the features that it had and that did something.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = rng = random.Random(name)
        # Another one, without which the walks that have found a fault would be others now.
        self.second = random.Random(f"{name} second")
        self.notes = Notes(name)
        self.notes.look = self._look
        self.steps: list[Callable[[Value], Outcome]] = []
        self.handlers: list[Handler] = []
        self.tunable: list[Handler] = []
        self.made_of: list[str] = []
        self.running: Running | None = None
        self.limit = (2, 20) if rng.random() < 0.08 else None
        self.count = rng.choice([3, 10, 20, 40])
        # The path of most events in most pipelines: few options, many events.
        self._is_usual = rng.random() < 0.15
        if self._is_usual:
            self.count = rng.choice([60, 120])
        self.emitted = self.peak = 0
        # How many events had ended when the source did.
        self._ended_before: int | None = None
        self._gathers = self._reverts = self._is_retuned = False
        self._is_paused = False
        self._stops = rng.random() < 0.15
        self._looks = 0
        self._shared_gauge: Gauge | None = None
        self._may_share = True
        self._shared_most = rng.choice([1, 2, 4])
        self.shared = Shared(Fixed(self._shared_most))
        self._likes_to_share = rng.random() < 0.35
        self._late_steps: list[tuple[int | str, Callable[[], None]]] = []
        self._held: list[MemorySink] = []
        self._letters: list[MemorySink] = []
        self._told: list[tuple[Handler, Jumping]] = []
        self._timers: list[asyncio.TimerHandle] = []
        self.numbers: dict[int, str] = {}
        self.source: Flowable[Any]
        if rng.random() < 0.75:
            self.source = MemorySource(self._emit())
        else:
            self.source = inbox(rng.choice([1, 3, 50]))
        if self.second.random() < 0.25:
            # It counts how its events end, and knows none of them.
            self.source = from_iterable(self._emit)
            self.met.add("counted events")
        self.flow = self._flow()
        self.sinks, self.accepted = self._sinks()
        self.pipeline = self.flow.to(*self.sinks)
        self.actions = self._actions()
        self._plan_inside()

    @property
    def met(self) -> set[str]:
        return self.notes.met

    def __str__(self) -> str:
        kind = type(self.source).__name__
        parts = [f"{kind} of {self.count}", *self.made_of, f"actions {self.actions}"]
        return f"{self.name}: " + "\n    ".join(parts)

    # Its parts.

    def _emit(self) -> Iterator[Value]:
        for n in range(self.count):
            if self._is_paused:
                self.notes.blame(f"{n} was taken from a source that is paused")
            self.emitted += 1
            yield (n,)
        self._source_ends()

    def _source_ends(self) -> None:
        if isinstance(self.source, MemorySource) and self._ended_before is None:
            self._ended_before = len(self.source.ledger.endings)

    def _flow(self) -> Any:
        rng = self.rng
        flow: Any = self.source
        if rng.random() < 0.25:
            self.made_of.append("paced")
            cost = rng.choice([None, self._breaking("cost", lambda _: rng.choice([0, 0.5, 1]))])
            flow = flow.pipe(rate_limit(rng.choice([5, 20]), burst=rng.choice([1, 3]), cost=cost))
        for _ in range(1 if self._is_usual else rng.choice([1, 1, 2, 2, 3])):
            make = rng.choice(
                [
                    self._work,
                    self._grouped,
                    self._grouped,
                    self._grouped,
                    self._nested,
                    self._taken_apart,
                    self._batched,
                ]
            )
            # The events of such a source are not kept there.
            if self.second.random() < (0.4 if "counted events" in self.met else 0.1):
                make = self._listed
            flow = self._usual(flow) if self._is_usual else make(self._counted(flow))
        return self._counted(flow)

    def _counted(self, flow: Any) -> Any:
        if self.rng.random() < 0.15:
            flow = counted(flow, self.notes.blame)
        if self.rng.random() < 0.2:
            operators: list[tuple[Any, Any]] = [
                (rx.map, lambda value: value),
                (rx.filter, lambda value: True),
                (rx.take_while, lambda value: True),
                (rx.do_action, lambda value: None),
            ]
            operator, function = self.rng.choice(operators)
            flow = flow.pipe(operator(self._breaking(operator.__name__, function)))
        return flow

    def _breaking(self, name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function of which perhaps one call raises, or cancels the pipeline."""
        rng = self.rng
        if rng.random() < 0.7:
            return function
        # In a sink, its policy may go on after an error.
        raises = [] if name.startswith("sink") else ["raises"]
        what = rng.choice([*raises, "halts", "cancels"])
        at = rng.randrange(rng.choice([5, 40]))
        self.made_of.append(f"{name} {what} at call {at}")
        calls = 0

        def call(value: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > at and not self.notes.aborts:
                self.met.add("breaking function")
                self.notes.aborts = True
                if what != "cancels":
                    raise (Trouble if what == "raises" else Halt)(name)
                assert self.running is not None
                self.running.cancel()
            return function(value)

        return call

    def _grouped(self, flow: Any) -> Any:
        turn = self._in_turn()
        flow = self._spread(flow.pipe(self._group_by(turn)))
        return self._in_groups(flow, [turn])

    def _listed(self, flow: Any) -> Any:
        """Over the lists of the events of groups."""
        rng = self.rng
        self.met.add("lists of groups")
        self._gathers = True
        turn = self._in_turn()
        most, groups = rng.choice([1, 8, 30, 1024]), rng.choice([None, None, 1, 2])
        idle = rng.choice([0.3, 60])
        self.made_of.append(f"lists of groups, {most}, {groups} groups, idle {idle}")
        grouped = group_by(
            self._key(turn),
            most,
            each=lambda group: group.pipe(ops.to_list()),
            idle=idle,
            max_groups=groups,
        )
        flow = self._spread(flow.pipe(grouped)).pipe(rx.flat_map(lambda values: values))
        return self._in_groups(flow, [turn], in_lists=True)

    def _usual(self, flow: Any) -> Any:
        turn = self._in_turn()
        return self._work(flow.pipe(self._group_by(turn), spread()), [turn])

    def _nested(self, flow: Any) -> Any:
        self.met.add("nested groups")
        outer, inner = self._in_turn(), self._in_turn()
        if self.rng.random() < 0.5:
            self.made_of.append("groups of")
            flow = self._spread(flow.pipe(self._group_by(outer)))
            flow = self._spread(flow.pipe(self._group_by(inner)))
            return self._in_groups(flow, [outer, inner])
        inside = (self._group_by(inner), spread())
        flow = self._spread(flow.pipe(self._group_by(outer, *inside)))
        return self._in_groups(flow, [outer])

    def _in_groups(self, flow: Any, turns: list[InTurn], *, in_lists: bool = False) -> Any:
        has_children, is_batched = self.rng.random() < 0.35, self.rng.random() < 0.35
        if has_children:
            # A batch or a list has several events of a group: the streams of one are read after
            # another's.
            joined = ops.concat_map if is_batched or in_lists else rx.flat_map
            flow = self._children(flow, joined)
        if is_batched:
            return self._batched(flow, turns)
        return self._work(flow, turns)

    def _in_turn(self) -> InTurn:
        keys = self.rng.choice([1, 2, 3, 3, 100])
        return InTurn(self.notes, lambda value: value[0] % keys)

    def _group_by(self, turn: InTurn, *inside: Any) -> Any:
        rng = self.rng
        if not inside and (self._is_usual or rng.random() < 0.6):
            buffer = rng.choice([1, 2, 8, 1024])
            options = self._share(buffer)
            self.made_of.append(f"group_by {options}")
            return group_by(self._key(turn), buffer, **options)
        self.met.add("each=")
        operators = rng.choice(["nothing", "delay", "chunk", "twice", "rate", "nothing"])
        if inside:
            operators += " in groups"
        buffer = rng.choice([8, 30, 1024])
        options = self._share(buffer)
        self.made_of.append(f"group_by each {operators}, {options}")
        # An operator that holds events must not be where they have a turn.
        if operators.startswith("delay"):
            inside = (rx.delay(0.1), *inside)
        elif operators.startswith("chunk"):
            self._gathers = True
            inside = (chunk(3, 0.5), rx.flat_map(lambda values: values), *inside)
        elif operators.startswith("twice"):
            self.steps.append(lambda v: Outcome([(*v, 0), (*v, 1)]))
            inside = (*inside, rx.flat_map(lambda v: [(*v, 0), (*v, 1)]))
        elif operators.startswith("rate"):
            inside = (*inside, rate_limit(50))
        inside = (*inside, rx.map(self._breaking("map in each", turn.arrives)))
        return group_by(
            self._breaking("key", turn.key),
            buffer,
            each=lambda group: group.pipe(*inside),
            idle=rng.choice([0.3, 60]),
            **options,
        )

    def _share(self, buffer: int) -> dict[str, Any]:
        # Not of `rng`, which would make other pipelines than before of the known seeds.
        other = random.Random(self.count * buffer + len(self.made_of))
        return {
            "share": other.choice([1, None, buffer]),
            "spill_events": other.choice([1, 4, 100]),
            "overflow": other.choice(["spill", "spill", "wait"]),
        }

    def _key(self, turn: InTurn) -> Callable[[Value], Any]:
        return self._breaking("key", lambda value: turn.key(turn.arrives(value)))

    def _spread(self, flow: Any) -> Any:
        feeders = self.rng.choice([None, None, 1, 2, 4])
        if feeders is not None:
            self.met.add("feeders")
            self.made_of.append(f"feeders {feeders}")
        return flow.pipe(spread(feeders))

    def _children(self, flow: Any, joined: Any) -> Any:
        self.made_of.append("children")

        def of(value: Value) -> list[Value]:
            return [(*value, n) for n in range(1 + int(3 * self.notes.draw("children", value)))]

        self.steps.append(lambda value: Outcome(of(value)))
        if self.rng.random() < 0.5:
            return flow.pipe(joined(lambda value: from_iterable(of(value))))
        return flow.pipe(rx.flat_map(self._breaking("children", of)))

    def _taken_apart(self, flow: Any) -> Any:
        """Over a plain stream of lists, and then to work."""
        feeders = self.rng.choice([None, 1, 2])
        self.made_of.append(f"spread of lists {feeders}")
        self.met.update({"feeders"} if feeders else ())

        def of(value: Value) -> list[Value]:
            return [(*value, n) for n in range(int(4 * self.notes.draw("lists", value)))]

        self.steps.append(lambda value: Outcome(of(value)))
        return self._work(flow.pipe(rx.map(of), spread(feeders)))

    # Working stages.

    def _fates(self, policy_stops: bool, times: int, more: list[str]) -> tuple[list[str], float]:
        rng = self.rng
        fates = [f"{fate} once" for fate in ("fails", *more) if fate not in _ALWAYS]
        if times == 1:
            fates = []
        if not policy_stops or self._stops:
            fates += ["fails", *more]
        if not fates:
            return ["fine"], 0.1
        return fates, rng.choice([0.1, 0.3, 0.02 if policy_stops else 0.3])

    def _policy(self) -> tuple[Any, int, bool]:
        """A policy, the number of attempts, and whether it stops in the end."""
        rng = self.rng
        last: Any = rng.choice(["stop", "skip", "skip", "revert", "route"])
        name = last
        if last == "route":
            self._letters.append(MemorySink(seconds=rng.choice([0.0, 0.2])))
            last = route(self._letters[-1])
        if rng.random() < 0.5:
            times = rng.choice([2, 3])
            self.made_of.append(f"retry {times}, then {name}")
            last = retry(times, Backoff(rng.choice([0.0, 0.2, 0.5]), 1), then=last)
        else:
            times = 1
            self.made_of.append(name)
        self._reverts |= name == "revert"
        return last, times, name == "stop"

    def _work(self, flow: Any, turns: list[InTurn] | None = None) -> Any:
        rng = self.rng
        policy, times, stops = self._policy()
        kind = "async" if self._is_usual else rng.choice(Handler.KINDS)
        may_time_out = kind in Handler.ASYNC and not self._is_usual
        timeout = rng.choice([None, 0.7, 0.7]) if may_time_out else None
        more = ["is cancelled"] if rng.random() < 0.4 else []
        if timeout is not None:
            more += ["hangs", rng.choice(["hangs on", "hangs and returns", "at the last moment"])]
        fates, trouble = self._fates(stops, times, more)
        if kind == "async" and rng.random() < 0.06:
            fates, trouble = [*fates, "leaves"], 0.1
        number = len(self.handlers) + 1
        limit, gauge, called = self._limit(kind)
        ordered = rng.random() < 0.35 and not self._is_usual
        window = rng.choice([1, 2, 5, 256])
        handler = Handler(
            self.notes,
            number,
            kind,
            gauge,
            turns or [],
            times=times,
            stops=stops,
            ordered=ordered,
            timeout=timeout,
            fates=fates,
            trouble=trouble,
            waits=rng.choice(
                [
                    ["nothing", "loop iterations", "a future", "time"],
                    ["nothing"],
                    ["loop iterations"],
                    ["time"],
                    ["nothing", "time"],
                ]
            ),
        )
        if ordered:
            self.met.add("ordered")
        self.made_of.append(
            f"work {number}: {kind}, limit {called}, timeout {timeout}, ordered {ordered}, "
            f"window {window}, {fates} {trouble}, waits {handler.waits}"
        )
        self.tunable.append(handler)
        if isinstance(limit, Jumping) and kind in Handler.ASYNC and self.limit is None:
            self._told.append((handler, limit))
            gauge.now = lambda: limit.limit
        handler.window = window
        operator = adaptive_flat_map(
            handler.function,
            limit,
            ordered=ordered,
            timeout=timeout,
            on_error=policy,
            window=window,
        )
        return self._out_of(flow.pipe(operator), handler, ordered=ordered)

    def _limit(self, kind: str) -> tuple[Any, Gauge, str]:
        rng = self.rng
        if self._may_share and (self._likes_to_share or rng.random() < 0.05):
            # The slots of iterators that wait for room are no use to a stage below them.
            self._may_share = kind not in ("several", "rows")
            self.met.add("shared")
            if self._shared_gauge is None:
                self._shared_gauge = Gauge(self.notes, self._shared_most)
            if self.limit is None:
                return self.shared, self._shared_gauge, f"shared {self._shared_most}"
            return self.shared, Gauge(self.notes, self.limit[1]), "shared"
        called, limit, most = rng.choice(
            [
                ("default", None, None),
                ("Fixed 1", Fixed(1), 1),
                ("Fixed 1", Fixed(1), 1),
                ("Fixed 3", Fixed(3), 3),
                ("Fixed 50", Fixed(50), 50),
                ("1 to 3", (1, 3), 3),
                ("2 to 20", (2, 20), 20),
                ("jumping", Jumping(1, 5, self.notes), 5),
                ("jumping", Jumping(1, 20, self.notes), 20),
            ]
        )
        if self.limit is not None:
            most = self.limit[1]
        return limit, Gauge(self.notes, most), called

    def _batched(self, flow: Any, turns: list[InTurn] | None = None) -> Any:
        rng = self.rng
        policy, times, stops = self._policy()
        kind = rng.choice(BatchHandler.KINDS)
        timeout = rng.choice([None, 0.7]) if kind in BatchHandler.ASYNC else None
        more = ["hangs"] if timeout is not None else []
        fates, trouble = self._fates(stops, times, more)
        if "fails" in fates:
            fates.append("fails in its place")
        number = len(self.handlers) + 1
        most, parallel = rng.choice([1, 3, 40]), rng.choice([1, 1, 3])
        handler = BatchHandler(
            self.notes,
            number,
            kind,
            Gauge(self.notes, parallel),
            turns or [],
            times=times,
            stops=stops,
            timeout=timeout,
            fates=fates,
            trouble=trouble,
            waits=[],
            most=most,
        )
        self.made_of.append(
            f"batch {number}: {kind}, {most}, parallel {parallel}, timeout {timeout}, "
            f"{fates} {trouble}"
        )
        handler.window = most
        operator = batch(
            handler.function, most, parallel=parallel, timeout=timeout, on_error=policy
        )
        return self._out_of(flow.pipe(operator), handler)

    def _out_of(self, flow: Any, handler: Handler, *, ordered: bool = False) -> Any:
        self.handlers.append(handler)
        self.steps.append(handler.of)
        checks = [turn.comes_out() for turn in handler.turns]
        if ordered:
            checks.append(self._in_order(handler))
        if not checks or self.rng.random() < 0.3:
            return flow

        def look(value: Value) -> Value:
            for each in checks:
                each(value)
            return value

        return flow.pipe(rx.map(look))

    def _in_order(self, handler: Handler) -> Callable[[Value], None]:
        last = -1

        def check_order(result: Value) -> None:
            nonlocal last
            place = handler.first[result[:-1]]
            if place < last:
                self.notes.blame(f"stage {handler.number}: {result} came late")
            last = place

        return check_order

    # Sinks.

    def _sinks(self) -> tuple[list[Any], list[tuple[Callable[[], list[Value]], Any]]]:
        """Sinks; what each has accepted, and which values it fails on."""
        rng = self.rng
        kinds = ["fast", "fast", "slow", "slow", "held", "plain", "async", "breaks", "fails"]
        sinks: list[Any] = []
        accepted: list[tuple[Callable[[], list[Value]], Any]] = []
        for number in range(rng.choice([1, 1, 1, 2])):
            kind = rng.choice(kinds)
            self.made_of.append(f"sink {kind}")
            if kind in ("slow", "held", "async") or (kind in ("breaks", "fails") and not number):
                self.met.add("demand of 1")
            if kind in ("plain", "async", "fails"):
                sink, values, fails = self._function(number, kind)
            else:
                memory = MemorySink(
                    seconds=rng.choice([0.01, 0.1]) if kind in ("slow", "breaks") else 0.0,
                    hold=kind == "held",
                )
                if kind == "held":
                    self._held.append(memory)
                if kind == "breaks":
                    at = rng.randrange(10)
                    self._late_steps.append((at, lambda memory=memory: self._break(memory)))
                sink, values, fails = memory, lambda memory=memory: memory.values, None
            sinks.append(sink)
            accepted.append((values, fails))
        return sinks, accepted

    def _break(self, memory: MemorySink) -> None:
        self.notes.aborts = True
        self.met.add("failing sink")
        memory.fail(Trouble("sink"))

    def _function(self, number: int, kind: str) -> tuple[Any, Any, Any]:
        rng = self.rng
        values: list[Value] = []
        policy = rng.choice(["stop", "skip", "skip", "revert", "route"])
        fails = 0.0 if kind != "fails" else 0.03 if policy == "stop" else 0.2
        self._reverts |= policy == "revert"

        def does_fail(value: Value) -> bool:
            return self.notes.draw("sink", number, value) < fails

        def accept(value: Value) -> None:
            if does_fail(value):
                self.met.add("failing sink")
                if policy == "stop":
                    self.notes.aborts = True
                raise Trouble(value)
            values.append(value)

        async def later(value: Value) -> None:
            await asyncio.sleep(0.02 if self.notes.draw("sink time", value) < 0.5 else 0)
            accept(value)

        on_error: Any = policy
        if policy == "route":
            self._letters.append(MemorySink())
            on_error = route(self._letters[-1])
        function: Any = accept if kind == "plain" else later
        function = self._breaking(f"sink {number}", function)
        return for_each(function, on_error=on_error), lambda: values, does_fail

    # Disturbances.

    def _actions(self) -> list[tuple[float, str]]:
        rng = self.rng
        times = [0.0, 0.0, 0.01, 0.1, 0.3, 1.0]
        kinds = ["pause", "resume", "retune", "look", "look"]
        chosen = [(rng.choice(times), rng.choice(kinds)) for _ in range(rng.choice([0, 1, 3, 5]))]
        for name, often in (("drain", 0.3), ("drain soon", 0.06), ("cancel", 0.3)):
            if rng.random() < often:
                place = rng.randrange(len(chosen) + 1)
                chosen.insert(place, (rng.choice(times), name))
        return chosen

    def _plan_inside(self) -> None:
        """Plan some of them from inside: when a call or a result begins or ends."""
        kept: list[tuple[float, str]] = []
        for delay, action in self.actions:
            is_end = action.startswith(("drain", "cancel"))
            if action == "look" or self.rng.random() < (0.3 if is_end else 0.6):
                kept.append((delay, action))
            else:
                at: int | str = self.rng.randrange(self.rng.choice([10, 40]))
                if self.rng.random() < 0.5:
                    at = self.rng.choice(["retry", "timeout", "timeout", *_LATE])
                soon = self.rng.random() < 0.5
                self.made_of.append(f"{action} at {at}{' soon' * soon}")
                self._late_steps.append(
                    (at, lambda action=action, soon=soon: self._from_inside(action, soon))
                )
        self.actions = kept

    def _from_inside(self, action: str, soon: bool) -> None:
        if soon:
            asyncio.get_running_loop().call_soon(self._act, action, 0.1)
        else:
            self._act(action, 0.1)

    def _look(self) -> None:
        """Called whenever a call begins or ends."""
        self._looks += 1
        if self.running is None:
            return
        self.peak = max(self.peak, self._unfinished())
        for step in [step for step in self._late_steps if self._is_due(step[0])]:
            if step not in self._late_steps:
                # One before it began a call, and so has taken it already.
                continue
            self._late_steps.remove(step)
            step[1]()
        if self._looks % 16 == 0:
            self._snapshot()

    def _is_due(self, at: int | str) -> bool:
        return at <= self._looks if isinstance(at, int) else at in self.met

    def _unfinished(self) -> int:
        if isinstance(self.source, MemorySource):
            return self.emitted - len(self.source.ledger.endings)
        return 0

    def _snapshot(self) -> dict[str, Any]:
        assert self.running is not None
        try:
            return check(self.running, self.source)
        except AssertionError as error:
            self.notes.blame(f"a snapshot is wrong: {error}")
            return self.running.statistics()

    def _check_windows(self) -> None:
        """Check that at most `window` results wait, plus one for each call that could be open."""
        working = [stage for stage in self._snapshot()["stages"] if "undelivered" in stage]
        for stage, handler in zip(working, self.handlers, strict=True):
            most = handler.gauge.most
            if (
                most is not None
                and not self._is_retuned
                and handler.gauge is not self._shared_gauge
            ):
                # One more for the next attempt of the head of an order.
                most = (
                    1
                    + handler.window
                    + most * (handler.window if isinstance(handler, BatchHandler) else 1)
                )
                if stage["undelivered"] > most:
                    self.notes.blame(f"stage {handler.number}: {stage['undelivered']} results wait")

    def _act(self, action: str, delay: float) -> None:
        running = self.running
        assert running is not None
        numbers = self._snapshot()
        if action == "pause":
            running.pause()
            self._is_paused = running.statistics()["state"] == "paused"
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(self.rng.choice([0, 0.1, 1]), self._resume))
        elif action == "resume":
            self._resume()
        elif action == "retune":
            self._retune(numbers)
        elif action == "drain":
            self._is_paused = False
            self._note("drain", numbers)
            self._source_ends()
            running.begin_drain()
        elif action == "drain soon":
            self._is_paused = False
            self._note("drain", numbers)
            self._source_ends()
            self.notes.aborts = True
            running.begin_drain(delay)
        elif action == "cancel":
            self._note("cancel", numbers)
            self.notes.aborts = True
            running.cancel()
        self._snapshot()

    def _resume(self) -> None:
        assert self.running is not None
        self._is_paused = False
        self.running.resume()

    def _note(self, what: str, numbers: dict[str, Any]) -> None:
        if numbers["unfinished"]:
            self.met.add(what)

    def _retune(self, numbers: dict[str, Any]) -> None:
        stages = [stage["stage"] for stage in numbers["stages"] if "limit" in stage]
        if not stages:
            return
        place = self.rng.randrange(len(stages))
        handler = self.tunable[place]
        if handler.gauge is self._shared_gauge and self.rng.random() < 0.7:
            return
        self._is_retuned = True
        handler.gauge.now = None
        if handler.gauge is self._shared_gauge:
            # Its calls continue under a different limit than they began with.
            handler.gauge.most = None
        most = self.rng.choice([1, 2, 6])
        if handler.gauge.most is not None:
            handler.gauge.most = most
        assert self.running is not None
        self.running.retune(Fixed(most), stages[place])

    async def _act_out(self) -> None:
        running = self.running
        assert running is not None
        for delay, action in self.actions:
            await asyncio.sleep(delay)
            self._check_windows()
            for sink in self._held:
                sink.accept(int(3 * self.rng.random()) + 1)
            self._act(action, delay)
        # Whatever was done, it ends.
        self._resume()
        for sink in self._held:
            sink.accept(1_000_000)

    # The run.

    def run(self) -> None:
        """Run it to its end; AssertionError if any check fails."""
        with self._listening():
            run_virtual(self._story(), stall=0.01, horizon=10_000)
        assert not self.notes.wrong, "\n".join(self.notes.wrong[:10])

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Everything that is logged must be about an expected error."""
        logger = logging.getLogger("penstock")
        listener = _Listener(self.notes)
        logger.addHandler(listener)
        propagate, logger.propagate = logger.propagate, False
        try:
            yield
        finally:
            logger.removeHandler(listener)
            logger.propagate = propagate

    async def _story(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.notes.blame(f"on the loop: {context}"))
        error: BaseException | None = None
        try:
            async with no_leaks():
                self.running = running = self.pipeline.start(drain_deadline=5, limit=self.limit)
                tasks = [asyncio.ensure_future(self._act_out())]
                if isinstance(self.source, Inbox):
                    tasks.append(asyncio.ensure_future(self._put_all(self.source)))
                if "shared" in self.met and self.rng.random() < 0.4:
                    tasks.append(asyncio.ensure_future(self._company()))
                try:
                    await running.wait()
                except _EXPECTED as caught:
                    error = caught
                await asyncio.gather(*tasks)
                for timer in self._timers:
                    timer.cancel()
                self._snapshot()
        except Leaked as leaked:
            # An exit in the middle of a list leaves the turns of events that have gone on.
            if not isinstance(error, Halt) or not all("turns" in one for one in leaked.left):
                raise
        assert self.running is not None
        self._check_end(self.running, error)

    async def _put_all(self, into: Inbox[Any]) -> None:
        async with asyncio.TaskGroup() as puts:
            for n in range(self.count):
                puts.create_task(self._put(into, n))
                if self.notes.draw("pause", n) < 0.5:
                    await asyncio.sleep(0.2 * self.notes.draw("pause of", n))
            await asyncio.sleep(1)
            assert self.running is not None
            self.running.begin_drain()

    async def _put(self, into: Inbox[Any], n: int) -> None:
        try:
            await into.put((n,), wait=True)
        except InboxClosed:
            self.numbers[n] = "refused"
        except Returned:
            self.numbers[n] = "returned"
        except _EXPECTED:
            self.numbers[n] = "failed"
        except Exception as error:
            self.notes.blame(f"{n} has failed by {error!r}")
        else:
            self.numbers[n] = "done"

    async def _company(self) -> None:
        """Another pipeline under the same limit."""
        gauge = self._shared_gauge if self.limit is None else None

        async def handler(n: int) -> int:
            if gauge is not None:
                gauge.begin("the other pipeline")
            try:
                await asyncio.sleep(0.1 * (n % 3))
            finally:
                if gauge is not None:
                    gauge.end()
            return n

        sink = MemorySink()
        await from_iterable(range(8)).pipe(adaptive_flat_map(handler, self.shared)).to(sink).run()
        if sorted(sink.values) != list(range(8)):
            self.notes.blame(f"the other pipeline gave {sink.values}")

    # Checks at the end.

    def _check_end(self, running: Running, error: BaseException | None) -> None:
        blame = self.notes.blame
        numbers = running.statistics()
        if numbers["unfinished"] or numbers["state"] != "closed":
            blame(f"not over: {numbers}")
        if (self.shared.in_flight, self.shared.free) != (0, self._shared_most):
            blame(f"the shared limit has {self.shared.in_flight}, free {self.shared.free}")
        outcome = running.report().outcome
        is_whole = outcome in ("completed", "drained", "incomplete")
        if is_whole and (outcome == "incomplete") != self._is_left():
            blame(f"it ended as {outcome}: {numbers}")
        if not is_whole and not self._may_end(error):
            blame(f"it ended as {outcome} by {error!r}")
        parts = ["waiting", "in_flight", "retrying", "stuck", "open", "undelivered"]
        for stage in numbers["stages"]:
            # An exit leaves the numbers of a stage as they were in the middle of a signal.
            for part in () if isinstance(error, Halt) else parts:
                if stage.get(part):
                    blame(f"{stage['name']} has {stage[part]} {part} at the end")
        if is_whole:
            self._check_letters(numbers)
            self._check_told()
            for handler in self.handlers:
                if handler.gauge.open:
                    blame(f"stage {handler.number} has {handler.gauge.open} open calls")
        self._check_endings(numbers)
        self._check_results(numbers, is_whole)
        self._check_bound()

    def _is_left(self) -> bool:
        """Whether a stage has reverted events to a source that had ended, for another run."""
        if not isinstance(self.source, MemorySource):
            return False
        late = self.source.ledger.endings[self._ended_before :]
        return any(ending is Ending.FAILED for _, ending in late)

    def _check_letters(self, numbers: dict[str, Any]) -> None:
        letters = sum(len(sink.accepted) for sink in self._letters)
        routed = sum(stage.get("routed", 0) for stage in numbers["stages"])
        if letters != routed:
            self.notes.blame(f"{letters} letters came of {routed} events")

    def _check_told(self) -> None:
        """Check that limiters have received each call once."""
        for handler, limiter in self._told:
            calls = handler.tried.total()
            if limiter.heard != calls and not self._is_retuned:
                self.notes.blame(f"a limiter heard of {limiter.heard} of {calls} calls")

    def _may_end(self, error: BaseException | None) -> bool:
        return self.notes.aborts or isinstance(error, HoldExceeded)

    def _check_endings(self, numbers: dict[str, Any]) -> None:
        blame = self.notes.blame
        if isinstance(self.source, MemorySource):
            ends = Counter(value for value, _ in self.source.ledger.endings)
            if ends != Counter((n,) for n in range(self.emitted)):
                blame(f"events did not end once each: {ends}")
            self.numbers = {
                value[0]: {
                    Ending.FINISHED: "done",
                    Ending.DROPPED: "done",
                    Ending.RETURNED: "returned",
                }.get(ending, "failed")
                for value, ending in self.source.ledger.endings
            }
            return
        if not isinstance(self.source, Inbox):
            if numbers["in"] != self.emitted:
                blame(f"{self.emitted} were emitted, {numbers} counted")
            self.numbers = dict.fromkeys(range(self.emitted), "counted")
            return
        heard = Counter(self.numbers.values())
        if heard["done"] != numbers["finished"] + sum(numbers["dropped"].values()):
            blame(f"{heard} were heard, {numbers} counted")
        if heard["failed"] != numbers["failed"] or heard["returned"] != numbers["returned"]:
            blame(f"{heard} were heard, {numbers} counted")
        self.emitted = len(self.numbers)

    def _expected(self, n: int) -> Outcome:
        """The expected results of the source's n-th event."""
        values: list[Value] = [(n,)]
        extra: list[Value] = []
        fails = False
        for step in self.steps:
            outcomes = [step(value) for value in values]
            extras = [step(value) for value in extra]
            fails |= any(outcome.fails for outcome in outcomes)
            values = [value for outcome in outcomes for value in outcome.results]
            extra = [value for outcome in extras for value in outcome.results]
            extra += [value for outcome in outcomes + extras for value in outcome.extra]
        return Outcome(values, extra, fails)

    def _check_results(self, numbers: dict[str, Any], is_whole: bool) -> None:
        expected = {n: self._expected(n) for n in self.numbers}
        for values_of, fails in self.accepted:
            values = values_of()
            twice = [value for value, times in Counter(values).items() if times > 1]
            if twice:
                self.notes.blame(f"came twice: {twice}")
            got: defaultdict[int, set[Value]] = defaultdict(set)
            for value in values:
                got[value[0]].add(value)
            for n, outcome in expected.items():
                due, extra = (
                    {value for value in values if fails is None or not fails(value)}
                    for values in (outcome.results, outcome.extra)
                )
                self._check_results_of(n, got[n], due, extra, is_whole)
        self._check_fates(expected, numbers, is_whole)

    def _check_results_of(
        self, n: int, got: set[Value], due: set[Value], extra: set[Value], is_whole: bool
    ) -> None:
        ending = self.numbers[n]
        lost: set[Value] = set()
        if is_whole and ending != "refused":
            lost = (due | extra) - got
        elif ending == "done":
            lost = due - got
        more = got - due - extra
        if not is_whole and ending != "done":
            # Made by calls that were cut off afterwards.
            more -= self.handlers[-1].made
        if lost or more:
            self.notes.blame(f"{n} ({ending}): {sorted(lost)} did not come, {sorted(more)} did")

    def _check_fates(
        self, expected: dict[int, Outcome], numbers: dict[str, Any], is_whole: bool
    ) -> None:
        """Check that an event is done if all of it succeeds, and not if something fails."""
        if self._gathers:
            return
        failing = 0
        for n, outcome in expected.items():
            fails = outcome.fails or any(
                fails is not None and any(map(fails, outcome.results)) for _, fails in self.accepted
            )
            failing += fails
            ending = self.numbers[n]
            wanted = ("done",)
            if fails:
                wanted = ("failed", "returned") if self._reverts else ("failed",)
            if ending in ("counted", "refused") or (not is_whole and ending != "done"):
                continue
            if ending not in wanted:
                self.notes.blame(f"{n} has ended as {ending}, not as {wanted}")
        if is_whole and "counted events" in self.met and failing != numbers["failed"]:
            self.notes.blame(f"{failing} should have failed, {numbers} counted")

    def _check_bound(self) -> None:
        stages = self.pipeline.describe(self.limit)
        if self._is_retuned or any(stage.holds is None for stage in stages):
            return
        # An event on the disk may be one of several that were made of one.
        most = sum(stage.bounded + stage.on_disk for stage in stages)
        if self.peak > most:
            self.notes.blame(f"{self.peak} were unfinished at once, {most} may be")


class _Listener(logging.Handler):
    def __init__(self, notes: Notes) -> None:
        super().__init__()
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and not isinstance(record.exc_info[1], _EXPECTED):
            self._notes.blame(f"logged: {message} {record.exc_info[1]!r}")
        elif any(name in message for name in ("AssertionError", "KeyError", "InvalidState")):
            self._notes.blame(f"logged: {message}")
