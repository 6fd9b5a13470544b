from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reactivex import operators as ops

from penstock.check import lost_path
from sinks import collect
from streams import from_iterable
from streams.stage import StageInfo

Write = Callable[[str, str], Path]
Penstock = Callable[..., Any]


def test_a_good_pipeline_is_shown_with_its_stages(penstock: Penstock, pipeline_file: Path) -> None:
    result = penstock("check", pipeline_file)
    assert result.status == 0
    assert result.out == (
        f"{pipeline_file}: OK, 6 stages: read_jsonl > distinct_within > group_by > spread > "
        "adaptive_flat_map > write_jsonl\n"
    )


@pytest.mark.parametrize(
    ("stages", "advice"),
    [
        ("group_by('client_id'), adaptive_flat_map(work)", "insert spread()"),
        ("group_by('client_id')", "insert spread()"),
        ("group_by('a'), group_by('b')", "put spread() between them"),
        ("adaptive_flat_map(work, timeout=1)", "Make it async"),
        ("adaptive_flat_map(work, limit=4)", "Fixed(8)"),
        ("distinct_within(-1, by='uuid')", "distinct_within"),
        ("spread(), adaptive_flat_map(work)", "put group_by(...) before it"),
    ],
)
def test_an_impossible_pipeline_is_explained_at_its_line(
    penstock: Penstock, write_file: Write, stages: str, advice: str
) -> None:
    path = write_file(
        "job.py",
        "def work(event):\n    return event\n\n"
        f"pipeline = read_jsonl().pipe({stages}).to(write_jsonl())\n",
    )
    result = penstock("check", path)
    assert result.status == 2
    assert f"{path}:10: this pipeline cannot be built: " in result.err
    assert advice in result.err
    assert "Traceback" not in result.err


def test_a_stream_cannot_end_in_a_plain_function(penstock: Penstock, write_file: Write) -> None:
    result = penstock("check", write_file("job.py", "pipeline = read_jsonl().to(print)\n"))
    assert result.status == 2
    assert "wrap a function: for_each(function)" in result.err


def test_dead_letters_at_the_end_are_refused_with_where_they_belong(
    penstock: Penstock, write_file: Write
) -> None:
    lines = "from sinks import dead_letters\npipeline = read_jsonl().to(dead_letters('lost.jsonl'))"
    result = penstock("check", write_file("job.py", lines))
    assert result.status == 2
    assert "as on_error=route(dead_letters(path))" in result.err


def test_a_way_through_the_stages_that_ends_in_no_sink_is_found() -> None:
    stages = [StageInfo("read", number=1), StageInfo("map", number=2)]
    assert str(lost_path(stages, sinks=0)) == "1 read -> 2 map"


@pytest.mark.parametrize("sinks", [1, 2, 3])
def test_every_way_through_a_pipeline_reaches_a_sink(sinks: int) -> None:
    pipeline = from_iterable([1]).pipe(ops.map(abs)).to(*(collect([]) for _ in range(sinks)))
    assert lost_path(pipeline.describe(), sinks) is None
