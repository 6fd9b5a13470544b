from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Pipeline,
    adaptive_flat_map,
    chunk,
    distinct_within,
    group_by,
    ops,
    rate_limit,
    read_jsonl,
    read_lines,
    retry,
    spread,
    write_jsonl,
)
from penstock.streams.definitions.difference import differences
from tests.unit.streams.definitions.named import client, is_large, project


def between(old: Pipeline, new: Pipeline) -> list[str]:
    return differences(old.definition(), new.definition())


def of(*operators: Any) -> Pipeline:
    pipeline: Pipeline = read_jsonl().pipe(*operators).to(write_jsonl())
    return pipeline


HERE = "tests.unit.streams.definitions.named"
WORK = adaptive_flat_map(project, 8)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (of(WORK), of(WORK), []),
        (
            of(WORK),
            of(adaptive_flat_map(project, 9, ordered=True)),
            [
                "operator 1 adaptive_flat_map, limit: 9, was 8",
                "operator 1 adaptive_flat_map, ordered: True, was not given",
                "stage 2 adaptive_flat_map: holds at most 265 events, was 264 events",
            ],
        ),
        (
            of(ops.map(client)),
            of(ops.map(is_large)),
            [f"operator 1 map, mapper: '{HERE}:is_large', was '{HERE}:client'"],
        ),
        (
            of(chunk(2), WORK),
            of(WORK, rate_limit(5)),
            [
                "operator 1 chunk(size=2): removed",
                "operator 2 rate_limit(rate=5): added",
                # An event of a chunk is two events of the source.
                "stage 2 adaptive_flat_map: holds at most 264 events, was 528 events",
                "stage 4 write_jsonl: holds at most 1,024 events, was 2,048 events",
            ],
        ),
        (
            of(ops.filter(bool), ops.map(client), ops.take(2)),
            of(ops.map(client), ops.take(2), ops.filter(bool)),
            ["operator 1 filter(predicate='builtins:bool'): moved to place 3"],
        ),
        (
            of(adaptive_flat_map(project, 8, on_error="skip")),
            of(adaptive_flat_map(project, 8, on_error=retry(3))),
            [
                "operator 1 adaptive_flat_map, on_error: retry(times=3), was 'skip'",
                "stage 2 adaptive_flat_map: holds at most 272 events, was 264 events",
            ],
        ),
        (
            of(adaptive_flat_map(project, 8, on_error=retry(3))),
            of(adaptive_flat_map(project, 8, on_error=retry(4))),
            ["operator 1 adaptive_flat_map, on_error, times: 4, was 3"],
        ),
        (
            of(ops.merge(read_lines("a").pipe(ops.map(client)))),
            of(ops.merge(read_lines("a").pipe(ops.map(is_large)))),
            [
                "operator 1 merge, sources: item 1 the stream read_lines > map, operator 1 map, "
                f"mapper: '{HERE}:is_large', was '{HERE}:client'"
            ],
        ),
        (
            read_jsonl("a").to(write_jsonl()),
            read_lines("a").to(write_jsonl(), write_jsonl("b")),
            [
                "source: read_lines(path='a'), was read_jsonl(path='a')",
                "sink 2 write_jsonl(path='b'): added",
            ],
        ),
        (
            of(group_by("a"), spread()),
            of(group_by("a", 64, overflow="wait"), spread()),
            [
                "operator 1 group_by, buffer: 64, was not given",
                "operator 1 group_by, overflow: 'wait', was not given",
                "stage 2 group_by: holds at most 64 events, was 4,096 events",
                "stage 2 group_by: holds at most 0 events on disk, was 100,000 events",
            ],
        ),
        (
            of(distinct_within(10, "id")),
            of(distinct_within(10.5, "id", max_keys=5)),
            [
                "operator 1 distinct_within, seconds: 10.5, was 10",
                "operator 1 distinct_within, max_keys: 5, was not given",
            ],
        ),
    ],
)
def test_the_difference_of_two_pipelines_is_said_in_words(
    old: Pipeline, new: Pipeline, told: list[str]
) -> None:
    assert between(old, new) == told


def test_a_lambda_is_named_by_its_file_and_line() -> None:
    (line,) = between(of(ops.map(client)), of(ops.map(lambda order: order)))
    assert line.startswith("operator 1 map, mapper: lambda at tests/unit/streams/definitions/")
    assert line.endswith(f", was '{HERE}:client'")
