"""Results that workers encode, because the sinks need nothing but their bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Sink,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    latency_histogram,
    ops,
    write_jsonl,
)
from penstock.streams.pipelines.running import Report
from penstock.streams.testing.loop import run_virtual
from penstock.streams.workers.placement import section_of
from tests.helpers.local_workers import LocalCrew


def run_with(workers: int, handler: Any, *sinks: Sink[Any]) -> Report:
    async def main() -> Report:
        crew = LocalCrew(workers) if workers else None
        pipeline = from_iterable(range(6)).pipe(adaptive_flat_map(handler)).to(*sinks)
        async with pipeline.start(workers=crew) as running:
            return await running.wait()

    return run_virtual(main())


def encoder_of(*sinks: Sink[Any], map_after: bool = False) -> Any:
    stream = from_iterable([1]).pipe(adaptive_flat_map(str))
    if map_after:
        stream = stream.pipe(ops.scan(max))
    return section_of(stream.chain(), sinks).encode


def test_workers_encode_results_that_are_written_and_nothing_else(tmp_path: Path) -> None:
    output = write_jsonl(tmp_path / "out.jsonl")
    assert encoder_of(output) is encoder_of(output, latency_histogram()) is not None
    assert encoder_of(output, collect([])) is None
    assert encoder_of(for_each(str)) is None
    assert encoder_of(latency_histogram()) is None
    assert encoder_of(output, map_after=True) is None


def test_a_result_that_can_be_written_need_not_be_picklable(tmp_path: Path) -> None:
    @dataclass
    class Found:
        number: int

    assert run_with(2, Found, write_jsonl(tmp_path / "out.jsonl")).exit_status == 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(lines) == [f'{{"number":{number}}}' for number in range(6)]


def test_several_results_of_one_event_are_encoded_too(tmp_path: Path) -> None:
    def twice(value: int) -> list[int]:
        return [value, value]

    run_with(2, twice, write_jsonl(tmp_path / "lists"))
    assert sorted((tmp_path / "lists").read_text().split()) == [f"[{n},{n}]" for n in range(6)]

    async def each(value: int) -> Any:
        yield value
        yield value

    run_with(2, each, write_jsonl(tmp_path / "out"))
    assert sorted((tmp_path / "out").read_text().split()) == [
        str(n) for n in range(6) for _ in "ab"
    ]


@pytest.mark.parametrize("bad", [{1, 2}, [math.nan]], ids=["set", "nan"])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_result_that_cannot_be_written_ends_as_it_does_in_one_process(
    tmp_path: Path, on_error: Any, bad: object
) -> None:
    def handler(value: int) -> Any:
        return bad if value == 3 else value

    def outcome(workers: int) -> Any:
        path = tmp_path / f"{workers}.jsonl"
        try:
            report = run_with(workers, handler, write_jsonl(path, on_error=on_error))
        except TypeError as error:
            return [type(error), str(error), error.__notes__]
        return sorted(path.read_text().split()), report.exit_status, report.statistics["failed"]

    assert outcome(2) == outcome(0)
