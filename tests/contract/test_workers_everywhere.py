"""Every operator at every place of a pipeline gives with workers what it gives in one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex.operators._timeinterval import TimeInterval
from reactivex.operators._timestamp import Timestamp

from penstock import (
    Flowable,
    adaptive_flat_map,
    batch,
    buffer,
    chunk,
    collect,
    count_over_time,
    distinct_within,
    from_iterable,
    group_by,
    monitor,
    ops,
    rate_limit,
    spread,
    violations,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.rx.table import STATELESS, TABLE, Kind
from penstock.streams.temporal.periods.intervals import Period
from penstock.streams.testing.loop import run_virtual
from tests.helpers.local_workers import LocalCrew, random_delay
from tests.unit.streams.rx.test_table import SAMPLES

Operator = Callable[[Flowable[Any]], Flowable[Any]]
Place = Callable[[Flowable[Any], Operator], Flowable[Any]]

EVENTS = [*range(24), 3, 3, 30, 1]


def number_of(value: Any) -> int:
    """The first number in a value, whatever an operator has made of it."""
    while not isinstance(value, int):
        if isinstance(value, str):
            return len(value)
        parts: Any = value.values() if isinstance(value, dict) else value
        try:
            value = next(iter(parts), 0)
        except TypeError:
            value = getattr(value, "key", getattr(value, "value", 0))
    return value


def key_of(value: Any) -> int:
    return number_of(value) % 3


def one_key(value: Any) -> int:
    return 0


def without_time(value: Any) -> Any:
    """A value that is the same in every run, and can be sent to another process."""
    if isinstance(value, Timestamp | TimeInterval):
        return value.value
    return value if isinstance(value, int | str | tuple | list | dict | Period) else str(value)


def handler(value: Any) -> Any:
    return without_time(value)


async def waiting(value: Any) -> Any:
    return handler(value)


def same(values: list[Any]) -> list[Any]:
    return [handler(value) for value in values]


def in_dict(value: Any) -> dict[str, Any]:
    return {"key": value}


def in_pair(value: Any) -> tuple[Any, Any]:
    return value, 1


# Those that need a value of a certain kind in front of them.
FITTED: dict[str, Any] = {
    "map": [ops.map(in_pair)],
    "pluck": [ops.map(in_dict), ops.pluck("key")],
    "starmap": [ops.map(in_pair), ops.starmap(lambda a, b: a * b)],
    "starmap_indexed": [ops.map(in_pair), ops.starmap_indexed(lambda a, b, i: a * b)],
    "dematerialize": [ops.materialize(), ops.dematerialize()],
    # Their other source is read again and again.
    "buffer_when": [ops.buffer_when(reactivex.never)],
    "window_when": [ops.window_when(reactivex.never)],
}


def lifted(name: str) -> Operator:
    made = FITTED.get(name) or [SAMPLES[name](None, reactivex.just(0))]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the loop's own scheduler
    return lambda stream: stream.pipe(*made)


OURS: dict[str, Operator] = {
    "distinct_within": distinct_within(10, by=lambda value: value),
    "rate_limit": rate_limit(100, burst=3),
    "chunk": chunk(4, wait=1),
    "count_over_time": count_over_time(key_of, begin=number_of, end=lambda v: number_of(v) + 2.0),
    "monitor": monitor("G(small)", by=key_of, on_violation=print, small=lambda v: v != 7),
    "violations": violations("G(small)", by=key_of, small=lambda v: v != 7),
    "group_by and spread": lambda stream: stream.pipe(group_by(key_of), spread()),
    "group_by(each=)": lambda stream: stream.pipe(
        group_by(key_of, each=lambda group: group.pipe(ops.scan(lambda a, _: a + 1, 0)), idle=9),
        spread(),
    ),
    "spread(feeders=)": lambda stream: stream.pipe(group_by(key_of), spread(feeders=2)),
    "adaptive_flat_map": adaptive_flat_map(handler),
    "adaptive_flat_map, async": adaptive_flat_map(waiting),
    "adaptive_flat_map, ordered": adaptive_flat_map(waiting, ordered=True),
    "batch": batch(same, max_size=3),
}

# Those that read several streams are below: at every place, what some of them give depends on when
# each of the streams comes.
NAMES = [name for name, entry in TABLE.items() if entry.kind not in (Kind.REFUSED, Kind.OURS)]
OPERATORS: dict[str, Operator] = {**OURS, **{name: lifted(name) for name in NAMES}}
# They have keys of their own, and keep the order of each key only.
KEYED = {"group_by and spread", "spread(feeders=)"}
# Their results come in any order, are numbers of which the key cannot be known, or belong to no
# group, as the end of the stream and that of a period do.
UNORDERED = {
    "materialize",
    "count_over_time",
    "adaptive_flat_map",
    "adaptive_flat_map, async",
    "group_by(each=)",
    "batch",
}


def places(key: Any) -> dict[str, Place]:
    work = adaptive_flat_map(handler)
    return {
        "before the groups": lambda s, op: s.pipe(op, group_by(key), spread(), work),
        "inside the groups": lambda s, op: s.pipe(
            group_by(key, each=lambda group: group.pipe(op), idle=9), spread(), work
        ),
        "before the handler": lambda s, op: s.pipe(group_by(key), spread(), op, work),
        "behind the handler": lambda s, op: s.pipe(group_by(key), spread(), work, op),
        "behind a batch": lambda s, op: s.pipe(group_by(key), spread(), batch(same), op),
        "between two handlers": lambda s, op: s.pipe(group_by(key), spread(), work, op, work),
        "in order behind a handler that waits": lambda s, op: s.pipe(
            group_by(key), spread(), adaptive_flat_map(waiting, ordered=True), op
        ),
    }


def outcome(stream: Flowable[Any], workers: int, seed: int = 0) -> Any:
    """The results in their order, or the error."""
    into: list[Any] = []

    async def main() -> Any:
        crew = LocalCrew(workers, random_delay(seed, 0.0001)) if workers else None
        async with stream.to(collect(into)).start(workers=crew) as running:
            return await running.wait()

    try:
        report = run_virtual(main())
    except Exception as error:
        return type(error).__name__, str(error)
    assert report.statistics["unfinished"] == 0
    return [without_time(value) for value in into]


def by_key(values: list[Any]) -> dict[int, list[Any]]:
    found = defaultdict[int, list[Any]](list)
    for value in values:
        found[key_of(value)].append(value)
    return found


@pytest.mark.parametrize("place", list(places(one_key)))
@pytest.mark.parametrize("name", list(OPERATORS))
def test_one_key_gives_what_it_gives_in_one_process_in_the_same_order(
    name: str, place: str
) -> None:
    try:
        stream = places(one_key)[place](from_iterable(EVENTS), OPERATORS[name])
    except BuildError:
        # Not at this place, with or without workers.
        return
    alone = outcome(stream, 0)
    for workers in (2, 3):
        shared = outcome(stream, workers, seed=workers)
        if isinstance(alone, tuple) or isinstance(shared, tuple):
            assert shared == alone
        elif name in UNORDERED:
            assert Counter(map(repr, shared)) == Counter(map(repr, alone))
        elif name in KEYED:
            assert by_key(shared) == by_key(alone)
        else:
            assert shared == alone


# What comes out of them does not depend on the order in which events of several keys come.
ORDERLESS = {*STATELESS, "do_action", "as_observable", *OURS} - {
    "chunk",
    "batch",
    "violations",
    "count_over_time",
}


@pytest.mark.parametrize("place", list(places(key_of)))
@pytest.mark.parametrize("name", sorted(ORDERLESS))
def test_several_keys_give_what_they_give_in_one_process_each_in_its_order(
    name: str, place: str
) -> None:
    try:
        stream = places(key_of)[place](from_iterable(EVENTS), OPERATORS[name])
    except BuildError:
        return
    alone = outcome(stream, 0)
    for workers in (2, 3):
        shared = outcome(stream, workers, seed=workers)
        if name in UNORDERED:
            assert Counter(map(repr, shared)) == Counter(map(repr, alone))
        else:
            assert by_key(shared) == by_key(alone)


def both(shared: Any) -> Any:
    return shared.pipe(_ops.zip(shared))


def twice(value: Any) -> Any:
    return from_iterable([value, value])


def failing(value: Any) -> Any:
    if value == 3:
        raise ValueError("3")
    return value


# What reactivex says of its types does not fit a lambda.
_ops: Any = ops
_over: Any = from_iterable(range(100, 104))
SEVERAL: dict[str, Any] = {
    "amb": [_ops.amb(Flowable.of(reactivex.never(), buffer(1)))],
    "catch": [_ops.map(failing), _ops.catch(_over)],
    "combine_latest": [_ops.combine_latest(from_iterable([100]))],
    "concat": [_ops.concat(_over)],
    "concat_all": [_ops.map(twice), _ops.concat_all()],
    "concat_map": [_ops.concat_map(twice)],
    "do_while": [_ops.do_while(lambda _: False)],
    "exclusive": [_ops.map(twice), _ops.exclusive()],
    "exhaust_map": [_ops.exhaust_map(twice)],
    "flat_map_latest": [_ops.flat_map_latest(twice)],
    "merge": [_ops.merge(_over)],
    "merge_all": [_ops.map(twice), _ops.filter(lambda _: True), _ops.merge_all()],
    "on_error_resume_next": [_ops.map(failing), _ops.on_error_resume_next(_over)],
    "publish": [_ops.publish(both)],
    "publish_value": [_ops.publish_value(0, lambda shared: shared)],
    "repeat": [_ops.repeat(2)],
    "replay": [_ops.replay(2, mapper=both)],
    "retry": [_ops.map(failing), _ops.retry(2), _ops.catch(_over)],
    "sequence_equal": [_ops.sequence_equal(_over)],
    "share": [_ops.share(), both],
    "skip_until": [_ops.skip_until(reactivex.of(0))],
    "switch_latest": [_ops.map(twice), _ops.switch_latest()],
    "switch_map": [_ops.switch_map(twice)],
    "take_until": [_ops.take_until(Flowable.of(reactivex.never(), buffer(1)))],
    "timeout": [_ops.timeout(1000.0)],
    "timeout_with_mapper": [_ops.timeout_with_mapper(None, lambda _: reactivex.never())],
    "with_latest_from": [_ops.with_latest_from(from_iterable([100]))],
    "zip": [_ops.zip(from_iterable(range(100, 200)))],
}
# They are made of these, or are made by a subject. `to_future` makes no stream.
MADE_OF = {
    "multicast": "publish",
    "partition": "publish",
    "partition_indexed": "publish",
    "to_future": "",
    "ref_count": "share",
    "switch_map_indexed": "switch_map",
    "while_do": "do_while",
}


def test_every_operator_over_several_streams_is_compared() -> None:
    names = {name for name, entry in TABLE.items() if entry.kind is Kind.OURS}
    # Reactivex has no operator of this name.
    names.add("exhaust_map")
    assert set(SEVERAL) | set(MADE_OF) == names


@pytest.mark.parametrize("place", ["before the groups", "behind the handler"])
@pytest.mark.parametrize("name", list(SEVERAL))
def test_streams_that_are_combined_give_with_workers_what_they_give_in_one_process(
    name: str, place: str
) -> None:
    def operator(stream: Any) -> Any:
        return stream.pipe(*SEVERAL[name])

    stream = places(one_key)[place](from_iterable(EVENTS), operator)
    alone, shared = outcome(stream, 0), outcome(stream, 2, seed=2)
    assert not isinstance(alone, tuple)
    if name == "combine_latest":
        # When the one value of the other stream comes depends on the time.
        assert shared[-1] == alone[-1]
    elif name == "merge":
        assert Counter(shared) == Counter(alone)
    else:
        assert shared == alone
