"""Which stages run in workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Fixed,
    Flowable,
    Shared,
    adaptive_flat_map,
    batch,
    chunk,
    distinct_within,
    from_iterable,
    group_by,
    ops,
    rate_limit,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.workers.placement import section_of


def same(value: Any) -> Any:
    return value


KEYS = (group_by(same), spread())
WORK = adaptive_flat_map(same)
MAP = ops.map(same)
COUNTED = group_by(same, each=lambda group: group.pipe(ops.scan(max)), idle=1)


def names(*operators: Callable[[Any], Any]) -> list[str]:
    stream: Flowable[Any] = from_iterable([1]).pipe(*operators)
    return [stream.info.name for stream in section_of(stream.chain()).streams]


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ([WORK], ["adaptive_flat_map"]),
        ([batch(same)], ["batch"]),
        ([*KEYS, WORK], ["group_by", "spread", "adaptive_flat_map"]),
        ([distinct_within(1, by=same), *KEYS, WORK], ["group_by", "spread", "adaptive_flat_map"]),
        ([MAP, *KEYS, MAP, WORK, MAP], ["group_by", "spread", "map", "adaptive_flat_map", "map"]),
        ([MAP, WORK, ops.filter(bool)], ["map", "adaptive_flat_map", "filter"]),
        ([*KEYS, distinct_within(1, by=same), MAP, WORK], ["map", "adaptive_flat_map"]),
        ([*KEYS, rate_limit(1), WORK], ["adaptive_flat_map"]),
        ([group_by(same), spread(feeders=2), WORK], ["adaptive_flat_map"]),
        ([COUNTED, spread(), MAP, WORK], ["map", "adaptive_flat_map"]),
        ([*KEYS, *KEYS, WORK], ["group_by", "spread", "adaptive_flat_map"]),
        ([WORK, ops.scan(max), MAP], ["adaptive_flat_map"]),
        ([WORK, MAP, *KEYS, WORK], ["adaptive_flat_map", "map"]),
        ([WORK, chunk(2)], ["adaptive_flat_map"]),
        ([WORK, ops.map_indexed(lambda value, _: value)], ["adaptive_flat_map"]),
    ],
)
def test_workers_run_the_handler_and_what_keeps_nothing_around_it(
    operators: list[Callable[[Any], Any]], expected: list[str]
) -> None:
    assert names(*operators) == expected


def test_all_events_of_a_key_go_to_one_worker_only_where_the_key_is_read_there() -> None:
    stream = from_iterable([1]).pipe(group_by("client"), spread(), adaptive_flat_map(same))
    assert section_of(stream.chain()).by == "client"
    stream = stream.pipe(group_by("other"), spread())
    assert section_of(stream.chain()).by == "client"
    assert section_of(from_iterable([1]).pipe(MAP, WORK).chain()).by is None


def test_a_pipeline_without_a_handler_is_refused() -> None:
    with pytest.raises(BuildError, match="has neither"):
        names(MAP)


def test_a_shared_limit_is_refused() -> None:
    with pytest.raises(BuildError, match="shares its limit"):
        names(adaptive_flat_map(same, limit=Shared(Fixed(2))))


def test_the_section_holds_no_more_than_the_same_stages_in_one_process() -> None:
    pipeline = from_iterable([1]).pipe(*KEYS, adaptive_flat_map(same, limit=Fixed(8), window=10))
    section = section_of(pipeline.chain())
    assert section.bound() == 4096 + 8 + 10
