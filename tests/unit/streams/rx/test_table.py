"""Every claim of the lift table is tried on the installed reactivex.

`broken_laws` plays inputs through an operator and names each law of answering at once that
it breaks. An operator of the table's kind AT_ONCE breaks none, one that HOLDS breaks some.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import Observable
from reactivex import operators as ops
from reactivex.notification import OnNext
from reactivex.subject import Subject
from reactivex.testing import TestScheduler

from penstock.streams.rx.recognise import recognise
from penstock.streams.rx.table import TABLE, Kind

# Names that reactivex spells with other operators: they are recognised as those.
SPELLED_WITH: dict[str, tuple[str, ...]] = {
    "do": ("do_action",),
    "pluck": ("map",),
    "pluck_attr": ("map",),
    "single_or_default_async": ("single",),
    "starmap": ("map",),
    "starmap_indexed": ("map",),
    "tap": ("do_action",),
    "throttle_with_timeout": ("debounce",),
    "to_list": ("to_iterable",),
    "zip_with_list": ("zip_with_iterable",),
}

# These answer at once only if the scheduler given at subscription runs immediate work at
# once, as reactivex's own default does. On one that defers it (an event loop's `call_soon`)
# their outputs leave later.
NEEDS_TRAMPOLINE = frozenset({"delay_subscription", "flat_map", "flat_map_indexed", "start_with"})

Make = Callable[[TestScheduler, Subject[Any]], Callable[[Any], Any]]


def even(value: Any, *_: Any) -> Any:
    return value % 2 == 0


def known(value: Any, *_: Any) -> Any:
    return value > 0


def inner(value: Any, _: int = 0) -> Observable[Any]:
    return reactivex.just(value)


def timer(clock: TestScheduler) -> Callable[[Any], Observable[Any]]:
    return lambda _: reactivex.timer(5, scheduler=clock)


# A plausible call of each public name; `clock` is virtual, `other` ticks after every input.
SAMPLES: dict[str, Make] = {
    "all": lambda clock, other: ops.all(known),
    "amb": lambda clock, other: ops.amb(other),
    "as_observable": lambda clock, other: ops.as_observable(),
    "average": lambda clock, other: ops.average(),
    "buffer": lambda clock, other: ops.buffer(other),
    "buffer_when": lambda clock, other: ops.buffer_when(lambda: other),
    "buffer_toggle": lambda clock, other: ops.buffer_toggle(other, lambda _: other),
    "buffer_with_count": lambda clock, other: ops.buffer_with_count(2),
    "buffer_with_time": lambda clock, other: ops.buffer_with_time(5, scheduler=clock),
    "buffer_with_time_or_count": lambda clock, other: ops.buffer_with_time_or_count(5, 2, clock),
    "catch": lambda clock, other: ops.catch(other),
    "combine_latest": lambda clock, other: ops.combine_latest(other),
    "concat": lambda clock, other: ops.concat(other),
    "concat_all": lambda clock, other: ops.concat_all(),
    "concat_map": lambda clock, other: ops.concat_map(inner),
    "contains": lambda clock, other: ops.contains(0),
    "count": lambda clock, other: ops.count(),
    "debounce": lambda clock, other: ops.debounce(5, clock),
    "default_if_empty": lambda clock, other: ops.default_if_empty(0),
    "delay": lambda clock, other: ops.delay(5, clock),
    "delay_subscription": lambda clock, other: ops.delay_subscription(5, clock),
    "delay_with_mapper": lambda clock, other: ops.delay_with_mapper(timer(clock)),
    "dematerialize": lambda clock, other: ops.dematerialize(),
    "distinct": lambda clock, other: ops.distinct(),
    "distinct_until_changed": lambda clock, other: ops.distinct_until_changed(),
    "do": lambda clock, other: ops.do(Subject[Any]()),
    "do_action": lambda clock, other: ops.do_action(known),
    "do_while": lambda clock, other: ops.do_while(known),
    "element_at": lambda clock, other: ops.element_at(1),
    "element_at_or_default": lambda clock, other: ops.element_at_or_default(1, 0),
    "exclusive": lambda clock, other: ops.exclusive(),
    "expand": lambda clock, other: ops.expand(inner),
    "filter": lambda clock, other: ops.filter(even),
    "filter_indexed": lambda clock, other: ops.filter_indexed(even),
    "finally_action": lambda clock, other: ops.finally_action(lambda: None),
    "find": lambda clock, other: ops.find(even),
    "find_index": lambda clock, other: ops.find_index(even),
    "first": lambda clock, other: ops.first(even),
    "first_or_default": lambda clock, other: ops.first_or_default(None, 0),
    "flat_map": lambda clock, other: ops.flat_map(lambda value: [value, (value,)]),
    "flat_map_indexed": lambda clock, other: ops.flat_map_indexed(lambda value, i: [value] * i),
    "flat_map_latest": lambda clock, other: ops.flat_map_latest(inner),
    "fork_join": lambda clock, other: ops.fork_join(other),
    "group_by": lambda clock, other: ops.group_by(even),
    "group_by_until": lambda clock, other: ops.group_by_until(even, None, timer(clock)),
    "group_join": lambda clock, other: ops.group_join(other, timer(clock), timer(clock)),
    "ignore_elements": lambda clock, other: ops.ignore_elements(),
    "is_empty": lambda clock, other: ops.is_empty(),
    "join": lambda clock, other: ops.join(other, timer(clock), timer(clock)),
    "last": lambda clock, other: ops.last(),
    "last_or_default": lambda clock, other: ops.last_or_default(0),
    "map": lambda clock, other: ops.map(str),
    "map_indexed": lambda clock, other: ops.map_indexed(lambda value, i: (value, i)),
    "materialize": lambda clock, other: ops.materialize(),
    "max": lambda clock, other: ops.max(),
    "max_by": lambda clock, other: ops.max_by(even),
    "merge": lambda clock, other: ops.merge(other),
    "merge_all": lambda clock, other: ops.merge_all(),
    "min": lambda clock, other: ops.min(),
    "min_by": lambda clock, other: ops.min_by(even),
    "multicast": lambda clock, other: ops.multicast(other),
    "observe_on": lambda clock, other: ops.observe_on(clock),
    "on_error_resume_next": lambda clock, other: ops.on_error_resume_next(other),
    "pairwise": lambda clock, other: ops.pairwise(),
    "partition": lambda clock, other: ops.partition(even),
    "partition_indexed": lambda clock, other: ops.partition_indexed(even),
    "pluck": lambda clock, other: ops.pluck("key"),
    "pluck_attr": lambda clock, other: ops.pluck_attr("real"),
    "publish": lambda clock, other: ops.publish(),
    "publish_value": lambda clock, other: ops.publish_value(0),
    "reduce": lambda clock, other: ops.reduce(operator.add, 0),
    "ref_count": lambda clock, other: ops.ref_count(),
    "repeat": lambda clock, other: ops.repeat(2),
    "replay": lambda clock, other: ops.replay(2),
    "retry": lambda clock, other: ops.retry(2),
    "sample": lambda clock, other: ops.sample(5, clock),
    "scan": lambda clock, other: ops.scan(lambda state, value: (state, value), None),
    "sequence_equal": lambda clock, other: ops.sequence_equal([1]),
    "share": lambda clock, other: ops.share(),
    "single": lambda clock, other: ops.single(),
    "single_or_default": lambda clock, other: ops.single_or_default(None, 0),
    "single_or_default_async": lambda clock, other: ops.single_or_default_async(),
    "skip": lambda clock, other: ops.skip(1),
    "skip_last": lambda clock, other: ops.skip_last(1),
    "skip_last_with_time": lambda clock, other: ops.skip_last_with_time(5, clock),
    "skip_until": lambda clock, other: ops.skip_until(other),
    "skip_until_with_time": lambda clock, other: ops.skip_until_with_time(15, clock),
    "skip_while": lambda clock, other: ops.skip_while(even),
    "skip_while_indexed": lambda clock, other: ops.skip_while_indexed(even),
    "skip_with_time": lambda clock, other: ops.skip_with_time(15, clock),
    "slice": lambda clock, other: ops.slice(1, 5, 2),
    "some": lambda clock, other: ops.some(even),
    "starmap": lambda clock, other: ops.starmap(operator.add),
    "starmap_indexed": lambda clock, other: ops.starmap_indexed(operator.add),
    "start_with": lambda clock, other: ops.start_with(0),
    "subscribe_on": lambda clock, other: ops.subscribe_on(clock),
    "sum": lambda clock, other: ops.sum(),
    "switch_latest": lambda clock, other: ops.switch_latest(),
    "switch_map": lambda clock, other: ops.switch_map(inner),
    "switch_map_indexed": lambda clock, other: ops.switch_map_indexed(inner),
    "take": lambda clock, other: ops.take(2),
    "take_last": lambda clock, other: ops.take_last(2),
    "take_last_buffer": lambda clock, other: ops.take_last_buffer(2),
    "take_last_with_time": lambda clock, other: ops.take_last_with_time(15, clock),
    "take_until": lambda clock, other: ops.take_until(other),
    "take_until_with_time": lambda clock, other: ops.take_until_with_time(15, clock),
    "take_while": lambda clock, other: ops.take_while(known),
    "take_while_indexed": lambda clock, other: ops.take_while_indexed(known),
    "take_with_time": lambda clock, other: ops.take_with_time(15, clock),
    "tap": lambda clock, other: ops.tap(known),
    "throttle_first": lambda clock, other: ops.throttle_first(15, clock),
    "throttle_with_mapper": lambda clock, other: ops.throttle_with_mapper(timer(clock)),
    "throttle_with_timeout": lambda clock, other: ops.throttle_with_timeout(5, clock),
    "time_interval": lambda clock, other: ops.time_interval(clock),
    "timeout": lambda clock, other: ops.timeout(50, None, clock),
    "timeout_with_mapper": lambda clock, other: ops.timeout_with_mapper(),
    "timestamp": lambda clock, other: ops.timestamp(clock),
    "to_dict": lambda clock, other: ops.to_dict(even),
    "to_future": lambda clock, other: ops.to_future(),
    "to_iterable": lambda clock, other: ops.to_iterable(),
    "to_list": lambda clock, other: ops.to_list(),
    "to_marbles": lambda clock, other: ops.to_marbles(),
    "to_set": lambda clock, other: ops.to_set(),
    "while_do": lambda clock, other: ops.while_do(known),
    "window": lambda clock, other: ops.window(other),
    "window_toggle": lambda clock, other: ops.window_toggle(other, lambda _: other),
    "window_when": lambda clock, other: ops.window_when(lambda: other),
    "window_with_count": lambda clock, other: ops.window_with_count(2),
    "window_with_time": lambda clock, other: ops.window_with_time(15, None, clock),
    "window_with_time_or_count": lambda clock, other: ops.window_with_time_or_count(15, 2, clock),
    "with_latest_from": lambda clock, other: ops.with_latest_from(other),
    "zip": lambda clock, other: ops.zip(other),
    "zip_latest": lambda clock, other: ops.zip_latest(other),
    "zip_with_iterable": lambda clock, other: ops.zip_with_iterable("abcdef"),
    "zip_with_list": lambda clock, other: ops.zip_with_list("abcdef"),
}

# Where an input must not be a bare number.
INPUTS: dict[str, Callable[[int], Any]] = {
    "dematerialize": OnNext,
    "pluck": lambda number: {"key": number},
    **dict.fromkeys(["starmap", "starmap_indexed"], lambda number: (number, 0)),
}

# The inputs are too few for them, or too many.
MAY_FAIL = {"average", "element_at", "first", "last", "max", "min"}
MAY_FAIL |= {"single", "single_or_default", "single_or_default_async"}

LATE = "an output left while no input was fed"
LEFTOVER = "what left at subscription or completion was not a constant"
EARLIER = "an output carried an earlier input without the one being fed"
GROWING = "an output was a stream that went on after it left"


class Play:
    """One run: numbers from `start` up, each followed by time and a tick elsewhere."""

    def __init__(self, name: str, start: int, count: int, deferring: bool) -> None:
        self.outputs: dict[str, list[Any]] = {}
        self.errors: list[Exception] = []
        self.grew = False
        self._phase = "subscription"
        clock, source, other = TestScheduler(), Subject[Any](), Subject[Any]()
        make_input = INPUTS.get(name, int)
        lifted = SAMPLES[name](clock, other)(source)
        scheduler = clock if deferring else None
        lifted.subscribe(self._on_next, self.errors.append, scheduler=scheduler)
        self._phase = "elsewhere"
        clock.advance_by(10)
        for number in range(start, start + count):
            self._phase = str(number)
            source.on_next(make_input(number))
            self._phase = "elsewhere"
            clock.advance_by(10)
            other.on_next("tick")
        self._phase = "completion"
        source.on_completed()
        other.on_completed()

    def _on_next(self, output: Any) -> None:
        born = self._phase
        if isinstance(output, Observable):
            output.subscribe(lambda _: setattr(self, "grew", self.grew or self._phase != born))
        else:
            self.outputs.setdefault(born, []).append(output)


def plays(name: str, deferring: bool = False) -> list[Play]:
    # Five digits, so that a number is found in the text of an output and nowhere by chance.
    return [Play(name, start, n, deferring) for start in (70_001, 80_002) for n in range(5)]


def broken_laws(runs: list[Play]) -> set[str]:
    broken: set[str] = set()
    constants: dict[str, list[str]] = {}
    for run in runs:
        for phase, outputs in run.outputs.items():
            texts = list(map(str, outputs))
            if phase == "elsewhere":
                broken.add(LATE)
            elif not phase.isdigit():
                if constants.setdefault(phase, texts) != texts:
                    broken.add(LEFTOVER)
            else:
                earlier = [str(number) for number in range(int(phase) - 5, int(phase))]
                without = [text for text in texts if phase not in text]
                if any(number in text for text in without for number in earlier):
                    broken.add(EARLIER)
        if run.grew:
            broken.add(GROWING)
    return broken


def names_of(kind: Kind) -> list[str]:
    return sorted(name for name in set(ops.__all__) if TABLE[name].kind is kind)


def test_the_table_names_every_public_operator_and_no_other() -> None:
    new_in_6 = {"concat_all", "concat_map", "switch_map", "switch_map_indexed", "zip_latest"}
    assert set(ops.__all__) - set(TABLE) == set()
    assert set(TABLE) - set(ops.__all__) <= new_in_6


@pytest.mark.parametrize("name", sorted(set(ops.__all__)))
def test_every_public_operator_is_recognised_and_is_as_hard_as_its_hardest_part(name: str) -> None:
    parts = recognise(SAMPLES[name](TestScheduler(), Subject[Any]()))
    assert tuple(part.name for part in parts) == SPELLED_WITH.get(name, (name,))
    assert TABLE[name].kind is max((part.entry.kind for part in parts), key=list(Kind).index)


@pytest.mark.parametrize("name", names_of(Kind.AT_ONCE))
def test_an_operator_that_answers_at_once_breaks_no_law_of_it(name: str) -> None:
    runs = plays(name)
    assert broken_laws(runs) == set()
    assert any(run.outputs for run in runs) or name == "ignore_elements"
    assert name in MAY_FAIL or not any(run.errors for run in runs)


@pytest.mark.parametrize("name", names_of(Kind.HOLDS))
def test_an_operator_that_holds_breaks_a_law_of_answering_at_once(name: str) -> None:
    runs = plays(name)
    assert broken_laws(runs) != set()
    assert name in MAY_FAIL or not any(run.errors for run in runs)


def test_those_that_need_a_trampoline_are_late_on_a_scheduler_that_defers() -> None:
    late = {name for name in names_of(Kind.AT_ONCE) if broken_laws(plays(name, deferring=True))}
    assert late == NEEDS_TRAMPOLINE


def test_every_refusal_and_nothing_else_says_what_to_use_instead() -> None:
    for name, entry in TABLE.items():
        assert bool(entry.instead) == (entry.kind is Kind.REFUSED), name
        assert entry.why, name
