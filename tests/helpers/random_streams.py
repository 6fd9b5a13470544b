"""Random graphs of streams that are merged, shared and read inside each other, and their checks."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import reactivex
from reactivex.subject import Subject

from penstock import Backoff, Fixed, Flowable, Running, adaptive_flat_map, from_iterable
from penstock import ops as _ops
from penstock.streams.base.errors import DrainTimeout
from penstock.streams.protocol.event import Ending, Event
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage import Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.own import SourceStage
from penstock.streams.testing import MemorySink, no_leaks, run_virtual
from tests.contract.test_conservation import check
from tests.helpers.reactive_streams.between import counted

__all__ = ["FEATURES", "RandomStreams"]

# What reactivex says of its types does not fit a lambda.
ops: Any = _ops

FEATURES = (
    *(
        "amb",
        "buffer",
        "catch",
        "combine_latest",
        "concat",
        "concat_all",
        "concat_map",
        "exclusive",
        "exhaust_map",
    ),
    *("flat_map", "merge", "merge_all", "on_error_resume_next", "partition", "publish", "repeat"),
    *("replay", "retry", "sample", "share", "skip_until", "switch_latest", "switch_map"),
    *(
        "take_until",
        "timeout",
        "window",
        "windows",
        "with_latest_from",
        "zip",
        "cancel",
        "cancel from inside",
        "drain",
        "pause",
        "failing function",
        "failing sink",
    ),
    *("failing source", "take", "fully expected", "with a law"),
    *("by count or time", "by streams of their own", "multicast", "publish_value", "ref_count"),
    *("timeout_with_mapper", "while_do", "do_while"),
)


# The most values that replay keeps.
_KEPT = 3

# The longest pause of a source.
_PAUSE = 0.3

# No stream is silent for so long and goes on.
_LONG = 300

# Operators that read one of several streams and leave, or drop, the others.
_ONE_AT_A_TIME = ("switch_map", "switch_latest", "exclusive", "exhaust_map")


class Trouble(Exception):
    """The error that sources, functions and sinks raise here."""


class Leaf(NamedTuple):
    """The n-th value of one reading of a source."""

    source: str
    reading: int
    n: int

    def __repr__(self) -> str:
        return f"{self.source}:{self.n}"


def leaves(value: Any) -> Iterator[Leaf]:
    """All that a value was made of."""
    if isinstance(value, Leaf):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)


@dataclass
class Expected:
    """What one reading of a stream gives, unless it is disturbed.

    `parts` are sequences that may be interleaved in any way; None is not known: then `law`, if
    there is one, says whether the values may be what it gave. The values in `parts` are their
    representations, which do not say in which reading of a source they came.
    """

    parts: list[list[str]] | None
    fails: bool = False
    law: Callable[[list[Any]], bool] | None = None

    @property
    def sequence(self) -> list[str] | None:
        """The values in their order, if there is only one."""
        return self.parts[0] if self.parts is not None and len(self.parts) == 1 else None


UNKNOWN = Expected(None)


class Graph(NamedTuple):
    """A stream, and what each of its readings gives, in their order."""

    stream: Any
    read: Callable[[], Expected]


class Paced(Flowable[Leaf]):
    """A source that emits at random times what is requested; each reading begins anew.

    The first `failing` readings fail at their end.
    """

    def __init__(self, walk: RandomStreams, name: str, count: int, failing: int, *, inner: bool):
        super().__init__(self._start, StageInfo(name))
        self.walk, self.name, self.count, self.failing = walk, name, count, failing
        self.is_inner = inner
        self.pace = walk.notes_of(name).choice([0.0, 0.3, 0.7])

    def _start(self, downstream: Subscriber[Leaf], run: Run) -> None:
        # A function of an outer stream may make the same source again.
        self.walk.readings[self.name] += 1
        _Pacing(downstream, run, self, self.walk.readings[self.name]).start()

    def expected(self) -> Callable[[], Expected]:
        readings = iter(range(self.count * 1000 + 1000))

        def read() -> Expected:
            values = [repr(Leaf(self.name, 0, n)) for n in range(self.count)]
            return Expected([values], next(readings) < self.failing)

        return read


class _Pacing(SourceStage[Leaf]):
    def __init__(self, downstream: Subscriber[Leaf], run: Run, source: Paced, reading: int) -> None:
        super().__init__(downstream, run, StageInfo(source.name))
        self._source, self._walk, self._reading = source, source.walk, reading
        self._rng = source.walk.notes_of(source.name, reading)
        self._n = 0
        self._timer: asyncio.TimerHandle | None = None
        self._has_rested = False
        self._walk.open += 1

    def produce(self) -> None:
        while self.demand and self._timer is None:
            if not self._has_rested and self._rng.random() < self._source.pace:
                pause = self._rng.choice([0.01, 0.1, _PAUSE])
                self._timer = self.run.call_later(pause, self.info, self._rested)
                return
            self._has_rested = False
            left = self._source.count - self._n
            if left:
                self._emit(min(self.demand, left, self._rng.choice([1, 1, 2, 5])))
            elif self._reading <= self._source.failing:
                self.fail(Trouble(self._source.name))
            else:
                self.complete()

    def _rested(self) -> None:
        self._timer, self._has_rested = None, True
        self.wake()

    def _emit(self, count: int) -> None:
        now = self.run.now()
        events: list[Event[Any]] = []
        for _ in range(count):
            leaf = Leaf(self._source.name, self._reading, self._n)
            self._n += 1
            # Its value may be replaced by that of a function.
            events.append(Event(leaf, now, self, leaf))
            self._walk.begins(leaf, is_inner=self._source.is_inner)
        self.send_all(events)
        self._walk.touched()

    def settle(self, events: list[Event[Any]], ending: Ending, why: Any, /) -> None:
        super().settle(events, ending, why)
        for event in events:
            self._walk.ends(event.token, ending)

    def release(self) -> None:
        self._walk.open -= 1
        if self._timer is not None:
            self._timer.cancel()


class RandomStreams:
    """A random graph of streams with random disturbances; `name` gives the same one again.

    `run` runs it on a virtual loop and raises AssertionError for everything that must not happen.
    `met` are the features that it had.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = rng = random.Random(name)
        self.met: set[str] = set()
        self.wrong: list[str] = []
        self.made_of: list[str] = []
        # What the graph may do, for the checks at the end.
        self.fans_out = self.gives_again = self.may_return = False
        self.may_fail = self.may_be_late = False
        # Whether events that no result has may be finished with the next one.
        self.leaves_out = False
        # Readings of sources that have begun and not ended.
        self.open = 0
        self.readings = Counter[str]()
        self.began: dict[Leaf, bool] = {}
        self.ended: dict[Leaf, Ending] = {}
        self.running: Running | None = None
        self.is_disturbed = False
        self._is_paused = False
        self._names = 0
        self._touches = 0
        self._inner = 0
        self._timers: list[asyncio.TimerHandle] = []
        self.strike, self.how = self._strike()
        graph = self._graph(rng.choice([1, 1, 3, 4, 4]))
        if rng.random() < 0.1:
            graph = self._take(graph)
        self.read = graph.read
        self.sink = MemorySink(seconds=rng.choice([0.0, 0.0, 0.05, 0.2]))
        self.pipeline = graph.stream.to(self.sink)
        stages = list(all_stages(self.pipeline.describe()))
        self.most = sum(stage.bounded + stage.on_disk for stage in stages)

    def __str__(self) -> str:
        return "\n    ".join([f"{self.name}: {self.how} at {self.strike}", *self.made_of])

    def notes_of(self, *what: object) -> random.Random:
        """Random numbers that depend on the walk and on `what` alone."""
        return random.Random(f"{self.name} {what}")

    def blame(self, what: str) -> None:
        """Record a fault: what raises here would only fail the stream."""
        self.wrong.append(what)

    # What happens in it.

    def begins(self, leaf: Leaf, *, is_inner: bool) -> None:
        if leaf in self.began:
            self.blame(f"{leaf} began twice")
        if self._is_paused:
            self.blame(f"{leaf} was emitted in a pause")
        self.began[leaf] = is_inner

    def ends(self, leaf: Leaf, ending: Ending) -> None:
        if leaf in self.ended:
            self.blame(f"{leaf} ended twice, by {self.ended[leaf]!r} and by {ending!r}")
        self.ended[leaf] = ending

    def touched(self, *, may_raise: bool = False) -> None:
        """Something happens: perhaps it is the moment of the disturbance."""
        self._touches += 1
        if self._touches % 4 == 0:
            self._look()
        if self._touches != self.strike or self.running is None:
            return
        self.is_disturbed = True
        match self.how:
            case "cancel from inside":
                self.running.cancel()
            case "failing function" if may_raise:
                self.may_fail = True
                self.met.add(self.how)
                raise Trouble("a function")
            case "failing function":
                # Not in a source: with the next call of a function.
                self.strike += 1
                self.is_disturbed = False
                return
            case "failing sink":
                self.may_fail = True
                self.sink.fail(Trouble("the sink"))
            case "pause":
                self._pause()
                loop = asyncio.get_running_loop()
                self._timers.append(loop.call_later(1, self._resume))
            case "drain":
                self.running.begin_drain(3)
            case _:
                # Outside of any stage's call, and perhaps when nothing else happens.
                seconds = self.rng.choice([0.0, 0.04, 0.15, 0.4])
                loop = asyncio.get_running_loop()
                self._timers.append(loop.call_later(seconds, self.running.cancel))
        self.met.add(self.how)

    def _pause(self) -> None:
        # It changes nothing about the results, unless something is late.
        self.is_disturbed = bool(self.met & {"timeout", "timeout_with_mapper"})
        assert self.running is not None
        self.running.pause()
        # Not if it ends already.
        self._is_paused = self.running.state == "paused"

    def _resume(self) -> None:
        self._is_paused = False
        assert self.running is not None
        self.running.resume()

    def _strike(self) -> tuple[int, str]:
        if self.rng.random() < 0.45:
            return 0, "nothing"
        how = self.rng.choice(
            [
                *("cancel", "cancel", "cancel from inside", "cancel from inside"),
                *("drain", "drain", "pause", "pause"),
                *("failing function", "failing function", "failing sink", "failing sink"),
            ]
        )
        return self.rng.choice([1, 2, 3, 5, 8, 13, 21, 34]), how

    def _look(self) -> None:
        running = self.running
        if running is None:
            return
        numbers = check(running)
        if numbers["unfinished"] > self.most:
            self.blame(f"{numbers['unfinished']} are unfinished, draw prints {self.most}")
        for info, statistics in running._run.nesting.stages:
            waiting = statistics().get("waiting", 0)
            waiting += statistics().get("buffered", 0)
            # These values are no events of a source.
            added = {"start_with": 1, "publish_value": 2, "replay": _KEPT}.get(info.name, 0)
            if info.bound is not None and waiting > info.bound + added:
                self.blame(f"{waiting} wait in {info}, its bound is {info.bound}")

    # Its parts.

    def _graph(self, depth: int) -> Graph:
        if depth == 0:
            return self._source()
        graph = self.rng.choice(
            [
                self._source,
                *(self._merge, self._merge, self._concat, self._zip, self._zip),
                *(self._newest, self._newest, self._amb, self._inner_streams),
                *(self._inner_streams, self._inner_streams, self._inner_streams),
                *(self._inner_streams, self._inner_streams, self._inner_streams),
                *(self._shared, self._shared, self._shared, self._shared, self._parted),
                *(self._by_signals, self._by_signals, self._by_signals, self._by_signals),
                *(self._cut, self._cut, self._cut),
                *(self._caught, self._caught, self._timeout, self._timeout),
                *(self._again, self._again, self._again, self._again),
                *(self._one_stream, self._one_stream, self._one_stream, self._one_stream),
            ]
        )
        made: Graph = graph(depth) if graph != self._source else self._source()
        return self._counted(made)

    def _counted(self, graph: Graph) -> Graph:
        if self.rng.random() < 0.5:
            return Graph(counted(graph.stream, self._blame_stage), graph.read)
        return graph

    def _blame_stage(self, what: str) -> None:
        # What a function has cancelled, as a drain does above a shared stream, may still be sent in
        # the same call, and is returned.
        is_inside = self.how in ("cancel from inside", "drain")
        if not (what.endswith("left: True") and is_inside):
            self.blame(what)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def _failing(self, depth: int) -> Graph:
        """A stream of which the first readings probably fail."""
        is_source = self.rng.random() < 0.6
        return self._source(fails=True) if is_source else self._graph(depth - 1)

    def _source(
        self,
        name: str | None = None,
        rng: random.Random | None = None,
        *,
        fails: bool = False,
    ) -> Graph:
        rng = rng or self.rng
        is_inner = name is not None
        name = name or self._name("s")
        failing = rng.choice([1, 1, 2, 99] if fails else [0] * 17 + [1, 2, 99])
        if failing:
            self.may_fail = True
            self.met.add("failing source")
        count = rng.choice([0, 1, 2, 3, 5, 9]) if is_inner else rng.choice([0, 1, 3, 8, 20, 40])
        if not is_inner:
            self.made_of.append(f"{name}: {count} events, {failing} readings fail")
        paced = Paced(self, name, count, failing, inner=is_inner)
        return Graph(paced, paced.expected())

    def _tagged(self, stream: Any, tag: str) -> Any:
        def tagged(value: Any) -> Any:
            self.touched(may_raise=True)
            return (tag, value)

        return stream.pipe(ops.map(tagged))

    def _others(self, depth: int, most: int) -> list[Graph]:
        return [self._other(depth) for _ in range(self.rng.randint(2, most))]

    def _other(self, depth: int) -> Graph:
        graph = self._graph(depth - 1)
        return self._handled(graph) if self.rng.random() < 0.15 else graph

    def _made(self, feature: str, detail: object = "") -> None:
        self.met.add(feature)
        self.made_of.append(f"{feature} {detail}")

    def _merge(self, depth: int) -> Graph:
        graphs = self._others(depth, 3)
        prefetch = self.rng.choice([1, 2, 64])
        self._made("merge", f"of {len(graphs)}, prefetch {prefetch}")
        first, *others = [graph.stream for graph in graphs]

        def read() -> Expected:
            return _together([graph.read() for graph in graphs])

        return Graph(first.pipe(ops.merge(*others, prefetch=prefetch)), read)

    def _concat(self, depth: int) -> Graph:
        graphs = self._others(depth, 3)
        self._made("concat", f"of {len(graphs)}")
        first, *others = [graph.stream for graph in graphs]

        def read() -> Expected:
            return _one_after_another(graph.read() for graph in graphs)

        return Graph(first.pipe(ops.concat(*others)), read)

    def _zip(self, depth: int) -> Graph:
        graphs = self._others(depth, 3)
        prefetch = self.rng.choice([1, 2, 64])
        self._made("zip", f"of {len(graphs)}, prefetch {prefetch}")
        self.may_return = True
        first, *others = [graph.stream for graph in graphs]

        def read() -> Expected:
            return _zipped([graph.read() for graph in graphs])

        return Graph(first.pipe(ops.zip(*others, prefetch=prefetch)), read)

    def _newest(self, depth: int) -> Graph:
        graphs = self._others(depth, 3)
        name = self.rng.choice(["combine_latest", "with_latest_from"])
        self._made(name, f"of {len(graphs)}")
        may_return, self.may_return = self.may_return, True
        self.fans_out = True
        first, *others = [graph.stream for graph in graphs]

        def read() -> Expected:
            sequences = [graph.read() for graph in graphs]
            known = [one.sequence for one in sequences if one.sequence is not None]
            if len(known) < len(sequences) or any(one.fails for one in sequences):
                return UNKNOWN
            if any(len(set(sequence)) < len(sequence) for sequence in known):
                return UNKNOWN
            if name == "with_latest_from":
                return Expected(None, law=partial(_follow, known))

            def law(values: list[Any]) -> bool:
                # Each event is in a tuple, unless one of the streams is empty.
                is_whole = may_return or self.may_fail or not all(known) or not self._kept()
                return is_whole and _are_newest(known, values)

            return Expected(None, law=law)

        return Graph(first.pipe(getattr(ops, name)(*others)), read)

    def _amb(self, depth: int) -> Graph:
        one, other = self._graph(depth - 1), self._graph(depth - 1)
        self._made("amb")
        self.may_return = True

        def read() -> Expected:
            first, second = one.read(), other.read()
            if first.sequence is None or second.sequence is None or first.fails or second.fails:
                return UNKNOWN
            choices = [first.sequence, second.sequence]
            return Expected(None, law=lambda values: list(map(repr, values)) in choices)

        return Graph(one.stream.pipe(ops.amb(other.stream)), read)

    def _inner_streams(self, depth: int) -> Graph:
        outer = self._graph(depth - 1)
        name = self.rng.choice(
            [
                *("flat_map", "flat_map", "concat_map", "switch_map", "merge_all"),
                *("concat_all", "switch_latest", "exclusive", "exhaust_map"),
            ]
        )
        most = self.rng.choice([1, 2, 32])
        node = self._name("f")
        self._made(name, f"{node}, {most} at once")
        self.fans_out = True

        def inner(value: Any) -> Graph:
            key = f"{node} {value!r}"
            return self._source(key, self.notes_of(key))

        def stream_of(value: Any) -> Any:
            self.touched(may_raise=True)
            return inner(value).stream.pipe(ops.map(lambda each: (value, each)))

        operator: Any
        if name in ("flat_map", "merge_all"):
            operator = ops.flat_map(stream_of, most) if name == "flat_map" else ops.merge_all(most)
        elif name.endswith("map"):
            operator = getattr(ops, name)(stream_of)
        else:
            operator = getattr(ops, name)()
        stream = outer.stream if name.endswith("map") else outer.stream.pipe(ops.map(stream_of))
        if name in _ONE_AT_A_TIME:
            self.may_return = True

        def read() -> Expected:
            expected = outer.read()
            if expected.parts is None or expected.fails:
                return UNKNOWN
            if name in _ONE_AT_A_TIME:
                return self._one_at_a_time(node, expected, is_exclusive=name.startswith("ex"))
            parts = [[self._inner_of(node, value) for value in part] for part in expected.parts]
            if any(each.fails for part in parts for each in part):
                return UNKNOWN
            if name.startswith("concat") or most == 1:
                return _together([_one_after_another(part) for part in parts])
            return _together([each for part in parts for each in part])

        return Graph(stream.pipe(operator), read)

    def _inner_of(self, node: str, value: str) -> Expected:
        key = f"{node} {value}"
        expected = self._source(key, self.notes_of(key)).read()
        values = [f"({value}, {each})" for each in expected.sequence or []]
        return Expected([values], expected.fails)

    def _one_at_a_time(self, node: str, outer: Expected, *, is_exclusive: bool) -> Expected:
        if outer.sequence is None or len(set(outer.sequence)) < len(outer.sequence):
            return UNKNOWN
        inner = [self._inner_of(node, value) for value in outer.sequence]
        sequences = [each.sequence or [] for each in inner]
        if any(each.fails for each in inner):
            return UNKNOWN

        def law(values: list[Any]) -> bool:
            """Of each stream its first values, or all; of the one that must be read, all."""
            left = [repr(value) for value in values]
            for place, sequence in enumerate(sequences):
                came = [value for value in left if value in sequence]
                if came != left[: len(came)] or came != sequence[: len(came)]:
                    return False
                is_whole = place == (0 if is_exclusive else len(sequences) - 1)
                if (is_whole or (is_exclusive and came)) and came != sequence:
                    return False
                left = left[len(came) :]
            return not left

        return Expected(None, law=law)

    def _shared(self, depth: int) -> Graph:
        source = self._graph(depth - 1)
        name = self.rng.choice(
            ["share", "share", "publish", "replay", "multicast", "publish_value", "ref_count"]
        )
        prefetch = self.rng.choice([1, 3, 64])
        together = self.rng.choice(["merge", "merge", "zip"])
        size = self.rng.choice([1, _KEPT])
        self._made(name, f"prefetch {prefetch}, {together}")
        self.fans_out = True
        self.gives_again |= name in ("replay", "publish_value")
        self.may_return |= together == "zip"

        def both(shared: Any) -> Any:
            one, other = self._tagged(shared, "a"), self._tagged(shared, "b")
            return one.pipe(getattr(ops, together)(other, prefetch=prefetch))

        match name:
            case "share":
                stream = both(source.stream.pipe(ops.share(prefetch=prefetch)))
            case "publish":
                stream = source.stream.pipe(ops.publish(both, prefetch=prefetch))
            case "ref_count":
                stream = both(source.stream.pipe(ops.publish(prefetch), ops.ref_count()))
            case "multicast":
                made = ops.multicast(
                    subject_factory=lambda _: Subject(), mapper=both, prefetch=prefetch
                )
                stream = source.stream.pipe(made)
            case "publish_value":
                stream = source.stream.pipe(ops.publish_value("new", both, prefetch=prefetch))
            case _:
                stream = source.stream.pipe(ops.replay(size, mapper=both, prefetch=prefetch))

        def read() -> Expected:
            expected = source.read()
            if expected.fails or not expected.parts or not all(expected.parts):
                return UNKNOWN
            parts = expected.parts
            if name == "publish_value":
                is_one = expected.sequence is not None
                parts = [["'new'", *parts[0]]] if is_one else [["'new'"], *parts]
            one, other = (
                Expected([[f"('{tag}', {value})" for value in part] for part in parts])
                for tag in "ab"
            )
            return _together([one, other]) if together == "merge" else _zipped([one, other])

        return Graph(stream, read)

    def _parted(self, depth: int) -> Graph:
        source, node = self._graph(depth - 1), self._name("p")
        prefetch = self.rng.choice([1, 3, 64])
        self._made("partition", f"{node}, prefetch {prefetch}")
        self.fans_out = True

        def is_first(value: object) -> bool:
            return self.notes_of(node, str(value)).random() < 0.5

        parts: Any = source.stream.pipe(
            ops.partition(lambda value: is_first(repr(value)), prefetch=prefetch)
        )
        one, other = self._tagged(parts[0], "a"), self._tagged(parts[1], "b")

        def read() -> Expected:
            expected = source.read()
            if expected.fails or not expected.parts or not all(expected.parts):
                return UNKNOWN
            of_both = [
                [f"('{tag}', {value})" for value in part if is_first(value) is is_a]
                for part in expected.parts
                for tag, is_a in (("a", True), ("b", False))
            ]
            return Expected(of_both)

        return Graph(one.pipe(ops.merge(other, prefetch=prefetch)), read)

    def _by_signals(self, depth: int) -> Graph:
        source, other = self._graph(depth - 1), self._other(depth)
        name = self.rng.choice(["take_until", "skip_until", "sample", "buffer", "window"])
        self._made(name)
        self.may_return = True

        def read() -> Expected:
            expected, signals = source.read(), other.read()
            if expected.sequence is None or expected.fails or signals.parts is None:
                return UNKNOWN
            return UNKNOWN if signals.fails else Expected(None, law=partial(law, expected.sequence))

        def law(sequence: list[str], values: list[Any]) -> bool:
            parts = chain.from_iterable(values) if name == "buffer" else values
            came = [repr(value) for value in parts]
            if name in ("take_until", "buffer", "window"):
                return came == sequence[: len(came)]
            if name == "skip_until":
                return came == sequence[len(sequence) - len(came) :]
            left = iter(sequence)
            return all(value in left for value in came)

        stream = source.stream.pipe(getattr(ops, name)(other.stream))
        if name == "window":
            stream = stream.pipe(ops.merge_all())
        if name in ("skip_until", "sample"):
            # As in Rx they do not complete if the signals end too soon.
            stream = stream.pipe(ops.timeout(_LONG, from_iterable([])))
        return Graph(stream, read)

    def _cut(self, depth: int) -> Graph:
        """Lists or windows, by number and time, or by streams of their own."""
        source, node = self._graph(depth - 1), self._name("e")
        kind, by = (
            self.rng.choice(["buffer", "window"]),
            self.rng.choice(
                ["with_time", "with_time_or_count", "when", "when", "toggle", "toggle"]
            ),
        )
        self._made("by count or time" if "with" in by else "by streams of their own")
        self.made_of.append(f"{kind}_{by}")
        self.may_return = True
        self.leaves_out |= by == "toggle"
        # An event may be in several.
        self.gives_again |= by == "toggle"
        seconds = self.rng.choice([0.02, 0.3, 2.0])

        def ends(*values: Any) -> Any:
            self.touched(may_raise=True)
            # It ends a part some time after it has begun.
            paced = Paced(
                self, node, self.notes_of(node, *values).choice([0, 1, 3]), 0, inner=False
            )
            return paced.pipe(ops.delay_subscription(seconds))

        match by:
            case "with_time":
                arguments: tuple[Any, ...] = (seconds,)
            case "with_time_or_count":
                arguments = (seconds, self.rng.choice([1, 2, 7]))
            case "when":
                arguments = (ends,)
            case _:
                arguments = (self._other(depth).stream, ends)
        stream = source.stream.pipe(getattr(ops, f"{kind}_{by}")(*arguments))
        if kind == "window":
            stream = stream.pipe(ops.merge_all())

        def read() -> Expected:
            expected = source.read()
            # Parts that begin with a stream may overlap, and their errors are not known here.
            if expected.sequence is None or expected.fails or by == "toggle":
                return UNKNOWN
            return Expected(None, law=partial(law, expected.sequence))

        def law(sequence: list[str], values: list[Any]) -> bool:
            parts = chain.from_iterable(values) if kind == "buffer" else values
            return [repr(value) for value in parts] == sequence

        return Graph(stream, read)

    def _caught(self, depth: int) -> Graph:
        one, other = self._failing(depth), self._other(depth)
        if self.rng.random() < 0.2:
            other = self._failing(depth)
        name = self.rng.choice(["catch", "on_error_resume_next"])
        self._made(name)
        self.may_return = True

        def read() -> Expected:
            first = one.read()
            if first.parts is None:
                return UNKNOWN
            if name == "catch" and not first.fails:
                return first
            second = other.read()
            both = _one_after_another([Expected(first.parts), second])
            return Expected(both.parts) if name != "catch" else both

        return Graph(one.stream.pipe(getattr(ops, name)(other.stream)), read)

    def _again(self, depth: int) -> Graph:
        name = self.rng.choice(["retry", "retry", "repeat", "repeat", "while_do", "do_while"])
        if name.endswith("do") or name.startswith("do"):
            return self._looping(depth, name)
        source = self._failing(depth) if name == "retry" else self._other(depth)
        times = self.rng.choice([1, 2, 3])
        backoff = (Backoff(0.2),) if name == "retry" and self.rng.random() < 0.5 else ()
        self._made(name, f"{times} {backoff}")
        self.may_return = True

        def read() -> Expected:
            readings: list[Expected] = []
            for _ in range(times):
                one = source.read()
                readings.append(Expected(one.parts))
                if one.parts is None:
                    return UNKNOWN
                if one.fails is (name == "repeat"):
                    break
            return Expected(_one_after_another(readings).parts, one.fails)

        return Graph(source.stream.pipe(getattr(ops, name)(times, *backoff)), read)

    def _looping(self, depth: int, name: str) -> Graph:
        source = self._other(depth)
        left = iter([True] * self.rng.choice([0, 1, 2]))
        self._made(name)
        self.may_return = True

        def condition(_: object) -> bool:
            self.touched(may_raise=True)
            return next(left, False)

        # How often it is asked depends on what reads it.
        return Graph(source.stream.pipe(getattr(ops, name)(condition)), lambda: UNKNOWN)

    def _timeout(self, depth: int) -> Graph:
        is_source = self.rng.random() < 0.5
        source = self._source() if is_source else self._graph(depth - 1)
        other = self._other(depth)
        # No event of a source comes so late.
        late = _PAUSE + 0.05 if is_source else 5000
        seconds = self.rng.choice([0.05, 0.2, late, late])
        by_mapper = self.rng.random() < 0.4
        self._made("timeout_with_mapper" if by_mapper else "timeout", seconds)
        self.may_return = True
        others: tuple[Any, ...] = (other.stream,)
        if self.rng.random() < 0.3:
            self.may_be_late = True
            others = ()
        if by_mapper:
            first, mapper = reactivex.timer(seconds), self._timer(seconds)
            stream = source.stream.pipe(ops.timeout_with_mapper(first, mapper, *others))
        else:
            stream = source.stream.pipe(ops.timeout(seconds, *others))
        # A timer that a function makes runs while nothing is requested too.
        is_in_time = seconds == late and not by_mapper
        return Graph(stream, source.read if is_in_time else lambda: UNKNOWN)

    def _timer(self, seconds: float) -> Callable[[Any], Any]:
        def timer(_: object) -> Any:
            self.touched(may_raise=True)
            return reactivex.timer(seconds)

        return timer

    def _take(self, graph: Graph) -> Graph:
        n = self.rng.choice([1, 4])
        self._made("take", n)
        self.may_return = True

        def read() -> Expected:
            expected = graph.read()
            if expected.sequence is None:
                return UNKNOWN
            values = expected.sequence[:n]
            return Expected([values], expected.fails and len(values) < n)

        return Graph(graph.stream.pipe(ops.take(n)), read)

    def _one_stream(self, depth: int) -> Graph:
        graph = self._graph(depth - 1)
        kind = self.rng.choice(["filter", "start_with", "windows", "handler", "handler", "take"])
        if kind == "take":
            return self._take(graph)
        self.made_of.append(kind)
        if kind == "filter":
            return self._filtered(graph)
        if kind == "start_with":
            return self._begun_with(graph)
        if kind == "windows":
            return self._windows(graph)
        return self._handled(graph)

    def _filtered(self, graph: Graph) -> Graph:
        node = self._name("p")

        def passes(value: object) -> bool:
            return self.notes_of(node, str(value)).random() < 0.6

        def predicate(value: Any) -> bool:
            self.touched(may_raise=True)
            return passes(repr(value))

        def read() -> Expected:
            expected = graph.read()
            if expected.parts is None:
                return UNKNOWN
            parts = [[value for value in part if passes(value)] for part in expected.parts]
            return Expected(parts, expected.fails)

        return Graph(graph.stream.pipe(ops.filter(predicate)), read)

    def _begun_with(self, graph: Graph) -> Graph:
        def read() -> Expected:
            expected = graph.read()
            if expected.fails:
                return UNKNOWN
            return _one_after_another([Expected([["'first'"]]), expected])

        return Graph(graph.stream.pipe(ops.start_with("first")), read)

    def _windows(self, graph: Graph) -> Graph:
        self.met.add("windows")
        count = self.rng.choice([1, 3, 7])
        self.may_return = True

        def read() -> Expected:
            expected = graph.read()
            values = expected.sequence
            if values is None or expected.fails:
                return UNKNOWN
            lists = [values[at : at + count] for at in range(0, len(values), count)]
            if len(values) % count == 0:
                lists.append([])
            return Expected([[f"[{', '.join(values)}]" for values in lists]])

        windows = ops.window_with_count(count)
        return Graph(
            graph.stream.pipe(windows, ops.flat_map(lambda window: window.pipe(ops.to_list()))),
            read,
        )

    def _handled(self, graph: Graph) -> Graph:
        ordered = self.rng.random() < 0.5
        seconds = self.rng.choice([0.0, 0.1])
        self.may_return = True

        async def handler(value: Any) -> Any:
            await asyncio.sleep(seconds * self.notes_of("handler", repr(value)).random())
            self.touched(may_raise=True)
            return value

        def read() -> Expected:
            expected = graph.read()
            if expected.parts is None or expected.fails:
                return UNKNOWN
            if ordered:
                return expected
            return Expected([[value] for part in expected.parts for value in part])

        limit, window = Fixed(self.rng.choice([1, 3, 20])), self.rng.choice([1, 256])
        operator = adaptive_flat_map(handler, limit, ordered=ordered, window=window)
        return Graph(graph.stream.pipe(operator), read)

    # Running.

    def run(self) -> None:
        """Run it to its end; AssertionError if any check fails."""
        logger = logging.getLogger("penstock")
        propagate, logger.propagate = logger.propagate, False
        # Every walk has errors that come after the first one.
        nowhere = logging.NullHandler()
        logger.addHandler(nowhere)
        try:
            run_virtual(self._story(), stall=0.01, horizon=10_000)
        finally:
            logger.removeHandler(nowhere)
            logger.propagate = propagate
        assert not self.wrong, "\n".join(self.wrong[:10])

    async def _story(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.blame(f"on the loop: {context}"))
        error: BaseException | None = None
        async with no_leaks():
            self.running = running = self.pipeline.start(drain_deadline=5)
            try:
                await running.wait()
            except (Trouble, TimeoutError, DrainTimeout) as caught:
                error = caught
            for timer in self._timers:
                timer.cancel()
        self._check_end(running, error)

    def _check_end(self, running: Running, error: BaseException | None) -> None:
        numbers = check(running)
        if numbers["unfinished"] or numbers["state"] != "closed":
            self.blame(f"not over: {numbers}")
        if self.open:
            self.blame(f"{self.open} readings of sources were not released")
        if lost := self.began.keys() - self.ended.keys():
            self.blame(f"have not ended: {sorted(lost)}")
        if isinstance(error, Trouble) and not self.may_fail:
            self.blame(f"it failed by {error!r}")
        if isinstance(error, TimeoutError) and not (self.may_be_late or self.is_disturbed):
            self.blame(f"it failed by {error!r}")
        self._check_account(numbers)
        self._check_accepted()
        if not self.is_disturbed:
            self._check_results(error)

    def _check_account(self, numbers: dict[str, Any]) -> None:
        """Its numbers are those of the sources, of those inside as well."""
        every = Counter(ending.name for ending in self.ended.values())
        counted = {
            "FINISHED": numbers["finished"],
            "DROPPED": sum(numbers["dropped"].values()),
            "RETURNED": numbers["returned"],
            "FAILED": numbers["failed"],
        }
        every["FAILED"] += every.pop("FORGIVEN", 0)
        # A value that is kept counts too where it is taken before the source is read.
        kept = math.inf if "publish_value" in self.met else 0
        if any(not 0 <= count - every[name] <= kept for name, count in counted.items()):
            self.blame(f"counted as {counted}, and ended as {every}")

    def _check_accepted(self) -> None:
        """What is finished has come to the sink, and what has come there is not dropped."""
        accepted = set(chain.from_iterable(leaves(value) for value in self.sink.values))
        by: dict[Ending, set[Leaf]] = {}
        for leaf, ending in self.ended.items():
            by.setdefault(ending, set()).add(leaf)
        finished = by.get(Ending.FINISHED, set())
        if not self.leaves_out and (lost := finished - accepted):
            self.blame(f"finished, and not accepted: {sorted(lost)}")
        dropped = by.get(Ending.DROPPED, set()) & accepted
        if dropped and not self.gives_again:
            self.blame(f"accepted, and dropped: {sorted(dropped)}")
        # One that is in several lists is dropped with one of them, and accepted in another.
        if not self.fans_out and (other := accepted - finished - dropped):
            self.blame(f"accepted, and not finished: {sorted(other)}")

    def _kept(self) -> list[Leaf]:
        """What was returned, or has failed."""
        return [leaf for leaf, ending in self.ended.items() if ending >= Ending.RETURNED]

    def _check_results(self, error: BaseException | None) -> None:
        kept = self._kept()
        if kept and not (self.may_return or self.may_fail):
            self.blame(f"were returned or have failed: {kept}")
        expected = self.read()
        if expected.law is not None:
            self.met.add("with a law")
            if not expected.law(self.sink.values):
                self.blame(f"against the law of the last operator: {self.sink.values}")
        if expected.parts is None:
            return
        self.met.add("fully expected")
        if expected.fails is not isinstance(error, Trouble):
            self.blame(f"it ended by {error!r}, expected to fail: {expected.fails}")
        values = [repr(value) for value in self.sink.values]
        due = Counter(chain.from_iterable(expected.parts))
        if extra := Counter(values) - due:
            self.blame(f"came and were not expected: {extra}")
        if expected.fails:
            # What the sink has not accepted when the error comes is returned.
            return
        if lost := due - Counter(values):
            self.blame(f"have not come: {lost}")
        for part in expected.parts:
            members = set(part)
            if len(expected.parts) == 1 or len(due) == due.total():
                came = [value for value in values if value in members]
                if came != part:
                    self.blame(f"came as {came}, expected {part}")


def _together(all_expected: list[Expected]) -> Expected:
    """Of streams that are read at the same time, in any order."""
    parts: list[list[str]] = []
    for expected in all_expected:
        if expected.parts is None or expected.fails:
            return UNKNOWN
        parts += expected.parts
    return Expected(parts)


def _one_after_another(readings: Iterator[Expected] | list[Expected]) -> Expected:
    sequence: list[str] | None = []
    parts: list[list[str]] = []
    for expected in readings:
        if expected.parts is None:
            return UNKNOWN
        parts += expected.parts
        if sequence is not None and expected.sequence is not None:
            sequence += expected.sequence
        else:
            sequence = None
        if expected.fails:
            return Expected(parts if sequence is None else [sequence], True)
    return Expected(parts if sequence is None else [sequence])


def _zipped(all_expected: list[Expected]) -> Expected:
    sequences = [expected.sequence for expected in all_expected if not expected.fails]
    known = [sequence for sequence in sequences if sequence is not None]
    if len(known) < len(all_expected):
        return UNKNOWN
    return Expected([[f"({', '.join(values)})" for values in zip(*known, strict=False)]])


def _are_newest(sequences: list[list[str]], values: list[Any]) -> bool:
    """Each tuple has one new value, and the last has the last of each."""
    if not all(sequences):
        return not values
    places = _places(sequences, values)
    last = [len(sequence) - 1 for sequence in sequences]
    return places[-1:] == [last] and all(
        sorted(step)[-1] == sum(step) == 1 for step in _steps(places)
    )


def _follow(sequences: list[list[str]], values: list[Any]) -> bool:
    """Each value of the first stream from one on, with others that never get older."""
    places = _places(sequences, values)
    is_whole = not values or places[-1][0] == len(sequences[0]) - 1
    return is_whole and all(step[0] == 1 and min(step) >= 0 for step in _steps(places))


def _places(sequences: list[list[str]], values: list[Any]) -> list[list[int]]:
    return [
        [sequence.index(repr(part)) for sequence, part in zip(sequences, value, strict=True)]
        for value in values
    ]


def _steps(places: list[list[int]]) -> list[list[int]]:
    return [[b - a for a, b in zip(*two, strict=True)] for two in pairwise(places)]
