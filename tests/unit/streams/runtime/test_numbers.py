"""The numbers of the stages of a pipeline that reads several streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    adaptive_flat_map,
    collect,
    for_each,
    from_iterable,
    group_by,
    ops,
    read_jsonl,
    spread,
    write_jsonl,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.testing.plugin import Run


async def work(value: Any) -> Any:
    return value


def limited(count: int, limit: int) -> Flowable[Any]:
    return from_iterable(range(count)).pipe(adaptive_flat_map(work, Fixed(limit)))


def named(stream: Flowable[Any]) -> list[tuple[int, str]]:
    described = stream.to(for_each(bool)).describe()
    return [(stage.number, stage.name) for stage in all_stages(described)]


def ran(run: Run, stream: Flowable[Any]) -> list[tuple[int, str, int | None]]:
    """Each stage of a running that has ended, with what it has sent."""

    async def story() -> list[dict[str, Any]]:
        async with stream.to(for_each(bool)).start() as running:
            running.record()
        stages: list[dict[str, Any]] = running.statistics()["stages"]
        return stages

    return [(stage["stage"], stage["name"], stage.get("sent")) for stage in run(story())]


def test_the_stages_of_a_stream_that_is_read_have_the_numbers_before_the_stage_that_reads_it() -> (
    None
):
    inner = limited(1, 1).pipe(ops.merge(from_iterable([1])))
    assert named(limited(1, 1).pipe(ops.zip(inner, from_iterable([2])), ops.map(str))) == [
        (1, "from_iterable"),
        (2, "adaptive_flat_map"),
        (3, "from_iterable"),
        (4, "adaptive_flat_map"),
        (5, "from_iterable"),
        (6, "merge"),
        (7, "from_iterable"),
        (8, "zip"),
        (9, "map"),
        (10, "for_each"),
    ]


def test_the_stages_that_branches_share_have_one_number(run: Run) -> None:
    both = from_iterable(range(4)).pipe(ops.merge(from_iterable(range(6))), ops.share())
    lists = both.pipe(ops.buffer_with_count(5), ops.map(len))
    alarms = both.pipe(ops.filter(lambda n: n > 2), adaptive_flat_map(work, Fixed(2)))
    assert ran(run, lists.pipe(ops.merge(alarms))) == [
        (1, "from_iterable", 4),
        (2, "from_iterable", 6),
        (3, "merge", 10),
        (4, "share", 20),
        (5, "buffer_with_count", 2),
        (6, "map", 2),
        (7, "filter", 4),
        (8, "adaptive_flat_map", 4),
        (9, "merge", 6),
        (10, "for_each", None),
    ]


def test_what_several_inputs_share_is_numbered_once(run: Run) -> None:
    shared = from_iterable(range(3)).pipe(ops.publish(), ops.ref_count())
    stream = from_iterable([9]).pipe(
        ops.merge(shared.pipe(ops.map(str)), shared.pipe(ops.filter(bool))), ops.merge(shared)
    )
    assert ran(run, stream) == [
        (1, "from_iterable", 1),
        (2, "from_iterable", 3),
        (3, "publish", 9),
        (4, "map", 3),
        (5, "filter", 2),
        (6, "merge", 6),
        (7, "merge", 9),
        (8, "for_each", None),
    ]


def test_a_stream_that_is_read_twice_has_two_numbers_for_each_stage(run: Run) -> None:
    once = from_iterable(range(3)).pipe(ops.map(str))
    assert ran(run, once.pipe(ops.merge(once, once))) == [
        (1, "from_iterable", 3),
        (2, "map", 3),
        (3, "from_iterable", 3),
        (4, "map", 3),
        (5, "from_iterable", 3),
        (6, "map", 3),
        (7, "merge", 9),
        (8, "for_each", None),
    ]


@pytest.mark.parametrize("reads", [ops.concat, ops.merge, ops.combine_latest, ops.with_latest_from])
def test_a_stage_has_the_number_that_is_drawn(reads: Any, run: Run) -> None:
    stream = from_iterable(range(2)).pipe(reads(from_iterable(range(3)).pipe(ops.map(bool))))
    assert [stage[:2] for stage in ran(run, stream)] == named(stream)


def test_groups_in_a_stream_that_is_read_are_those_of_its_own_stages(run: Run) -> None:
    grouped = from_iterable(range(4)).pipe(group_by(lambda n: n % 2), spread())
    found = ran(run, from_iterable(range(3)).pipe(ops.merge(grouped)))
    assert [stage[:2] for stage in found] == [
        (1, "from_iterable"),
        (2, "from_iterable"),
        (3, "group_by"),
        (4, "spread"),
        (5, "merge"),
        (6, "for_each"),
    ]


def test_an_error_has_the_number_of_its_own_stage(run: Run) -> None:
    async def bad(value: Any) -> Any:
        raise ValueError(value)

    other = from_iterable([2]).pipe(adaptive_flat_map(bad))
    stream = limited(1, 1).pipe(ops.merge(other))
    with pytest.raises(ValueError, match="2") as caught:
        run(stream.to(for_each(bool)).run())
    assert caught.value.__notes__ == ["in stage 4 'adaptive_flat_map', on the event 2"]
    with pytest.raises(ValueError, match="2") as caught:
        run(stream.to_list())
    assert caught.value.__notes__ == ["in stage 4 'adaptive_flat_map', on the event 2"]


def test_the_limit_of_each_working_stage_is_replaced_by_its_number(run: Run) -> None:
    async def story() -> None:
        stream = limited(9, 3).pipe(ops.merge(limited(9, 5)))
        async with stream.to(collect([])).start() as running:
            await asyncio.sleep(0)
            assert running.statistics()["limit"] == 8
            running.retune(Fixed(2), stage=4)
            assert running.stage_statistics(2)["limit"] == 3
            assert running.stage_statistics(4)["limit"] == 2
            running.retune(Fixed(7), stage=2)
            assert running.stage_statistics(2)["limit"] == 7
            assert running.stage_statistics(4)["limit"] == 2

    run(story())


@pytest.mark.parametrize("reads", [ops.merge, ops.concat])
def test_a_limit_without_a_number_is_refused_where_any_stream_has_another_one(
    reads: Any, run: Run
) -> None:
    async def story() -> None:
        async with limited(9, 3).pipe(reads(limited(9, 5))).to(collect([])).start() as running:
            await asyncio.sleep(0)
            with pytest.raises(BuildError, match="the stages with a limit are: 2, 4"):
                running.retune(Fixed(2))

    run(story())


def test_a_limit_of_the_running_is_that_of_the_stages_of_all_streams() -> None:
    pipeline = limited(9, 3).pipe(ops.merge(limited(9, 5))).to(collect([]))
    notes = [s.note for s in all_stages(pipeline.describe((1, 2))) if s.picture.under is not None]
    assert notes == ["1 to 2 at once, 256 results"] * 2


def test_a_pipeline_shows_the_same_stages_before_and_while_it_runs(run: Run) -> None:
    both = from_iterable(range(4)).pipe(ops.share())
    lists = both.pipe(ops.buffer_with_count(2), ops.map(len))
    pipeline = lists.pipe(ops.merge(both)).to(for_each(bool))

    async def story() -> list[StageInfo]:
        async with pipeline.start() as running:
            return running.describe()

    while_running = run(story())
    assert while_running == pipeline.describe()
    assert [s.holds for s in while_running] == [s.holds for s in pipeline.describe()]


def test_an_output_may_not_be_the_file_of_any_source(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("1\n")
    stream = from_iterable([1]).pipe(ops.merge(read_jsonl(str(path))))
    with pytest.raises(BuildError, match=r"other\.jsonl"):
        stream.to(write_jsonl(str(path))).check_files()
