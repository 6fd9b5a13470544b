from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Fixed,
    Pipeline,
    adaptive_flat_map,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    spread,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.running import Running
from penstock.streams.recording.recorder import KEPT, LATENCIES, Recorder, kept_text
from penstock.streams.testing.loop import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew


async def in_a_tenth(value: Any) -> Any:
    if value == "bad":
        raise ValueError("it is bad")
    return await asyncio.sleep(0.1, value)


async def in_some_time(value: Any) -> Any:
    return await asyncio.sleep(0.15, value)


def recorded(
    run: Callable[..., Any],
    pipeline: Pipeline,
    look: Callable[[Running, Recorder], None] | None = None,
    workers: Any = None,
) -> tuple[dict[str, Any], Recorder]:
    """The last statistics of a running, which `look` sees twice a second, and its recorder."""

    async def story() -> tuple[dict[str, Any], Recorder]:
        async with pipeline.start(workers=workers) as running:
            recorder = running.record()
            while look is not None and running.state != "closed":
                await asyncio.sleep(0.5)
                look(running, recorder)
        return running.statistics(), recorder

    return run(story())


def sent(numbers: dict[str, Any]) -> dict[str, int]:
    return {stage["name"]: stage["sent"] for stage in numbers["stages"] if "sent" in stage}


def test_what_the_stages_in_workers_have_sent_is_counted_as_in_one_process() -> None:
    def flow() -> Pipeline:
        return (
            from_iterable(range(100))
            .pipe(
                group_by(lambda value: value % 7),
                spread(),
                ops.filter(lambda value: value % 2 == 0),
                adaptive_flat_map(in_some_time, Fixed(4)),
                ops.filter(lambda value: value % 5 == 0),
            )
            .to(collect([]))
        )

    alone, _ = recorded(run_virtual, flow())
    numbers, recorder = recorded(run_virtual, flow(), workers=LocalCrew(2))
    assert sent(numbers) == sent(alone)
    for stage in numbers["stages"][:-1]:
        if stage["name"] != "group_by":
            # It is one stage with its spread when it runs.
            in_samples = sum(sample.sent[stage["stage"]] for sample in recorder.samples)
            assert in_samples == stage["sent"] > 0


def test_what_each_stage_has_sent_is_counted(run: Run) -> None:
    stream = from_iterable([1, 2, 2, 3, 4]).pipe(
        distinct_within(10, by=lambda n: n),
        ops.filter(lambda n: n > 1),
        adaptive_flat_map(in_a_tenth),
    )
    numbers, _ = recorded(run, stream.to(for_each(bool), for_each(bool)))
    assert sent(numbers) == {
        "from_iterable": 5,
        "distinct_within": 4,
        "filter": 3,
        "adaptive_flat_map": 3,
    }


def test_what_a_group_sends_inside_is_not_counted_as_what_the_pipeline_sends(run: Run) -> None:
    counted = group_by(
        "k", each=lambda group: group.pipe(ops.map(lambda e: e), ops.count()), idle=1
    )
    stream = from_iterable([{"k": 1}, {"k": 2}, {"k": 1}]).pipe(counted, spread())
    numbers, _ = recorded(run, stream.to(for_each(bool)))
    assert sent(numbers) == {"from_iterable": 3, "spread": 2}, numbers["stages"]


def test_streams_with_stages_of_the_same_names_are_counted_apart(run: Run) -> None:
    other = from_iterable(range(5)).pipe(ops.map(lambda n: n), adaptive_flat_map(in_a_tenth))
    stream = from_iterable(range(3)).pipe(ops.map(lambda n: n), ops.merge(other))
    numbers, recorder = recorded(run, stream.pipe(ops.map(lambda n: n)).to(for_each(bool)))
    found = [(stage["stage"], stage["name"], stage.get("sent")) for stage in numbers["stages"]]
    assert found == [
        (1, "from_iterable", 3),
        (2, "map", 3),
        (3, "from_iterable", 5),
        (4, "map", 5),
        (5, "adaptive_flat_map", 5),
        (6, "merge", 8),
        (7, "map", 8),
        (8, "for_each", None),
    ]
    (sample,) = recorder.samples
    assert sample.sent == {1: 3, 2: 3, 3: 5, 4: 5, 5: 5, 6: 8, 7: 8}
    assert list(sample.calls) == [5]


def test_the_limits_of_other_streams_count_and_their_changes_are_those_of_their_stages(
    run: Run,
) -> None:
    other = from_iterable(range(20)).pipe(adaptive_flat_map(in_a_tenth, (1, 10)))
    stream = from_iterable(range(5)).pipe(adaptive_flat_map(in_a_tenth, Fixed(3)), ops.merge(other))
    seen: list[tuple[int, int]] = []

    def limited(running: Running, recorder: Recorder) -> None:
        stages = running.statistics()["stages"]
        seen.append(
            (running.statistics()["limit"], sum(one["limit"] for one in stages if "limit" in one))
        )

    numbers, recorder = recorded(run, stream.to(for_each(bool)), limited)
    assert seen
    assert all(total == parts for total, parts in seen)
    # The limit of the other one has changed.
    (changed,) = [one for one in numbers["stages"] if one["stage"] == 4]
    assert changed["limit_reason"]
    assert {change.stage for change in recorder.changes} == {4}
    assert {number for number, _ in recorder.reasons} == {4}


def test_a_stream_that_is_merged_with_itself_is_counted_apart(run: Run) -> None:
    source = from_iterable(range(3))
    numbers, _ = recorded(run, source.pipe(ops.merge(source)).to(for_each(bool)))
    found = [(stage["stage"], stage.get("sent")) for stage in numbers["stages"]]
    assert found == [(1, 3), (2, 3), (3, 6), (4, None)]


def test_what_went_to_each_reader_of_a_stage_is_counted_where_several_read_it(run: Run) -> None:
    shared = from_iterable(range(3)).pipe(ops.share())
    stream = shared.pipe(ops.filter(bool), ops.merge(shared))
    numbers, recorder = recorded(run, stream.to(for_each(bool), collect([])))
    found = {
        stage["stage"]: (stage["sent"], stage.get("sent_to"))
        for stage in numbers["stages"]
        if "sent" in stage
    }
    assert found == {1: (3, None), 2: (6, {3: 3, 4: 3}), 3: (2, None), 4: (5, None)}
    assert [one.sent_to for one in recorder.samples] == [{2: {3: 3, 4: 3}}]


def test_what_a_stage_has_sent_goes_on_when_its_stream_is_read_again(run: Run) -> None:
    stream = from_iterable(range(3)).pipe(ops.repeat(2))
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    assert sent(numbers) == {"from_iterable": 6, "repeat": 6}
    assert [one.sent for one in recorder.samples] == [{1: 6, 2: 6}]


def test_a_stream_that_is_read_again_many_times_is_counted_without_more_memory(run: Run) -> None:
    stream = from_iterable(range(3)).pipe(ops.repeat(200))
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    assert sent(numbers) == {"from_iterable": 600, "repeat": 600}
    assert max(len(one) for to in recorder._arrows._arrows.values() for one in to.values()) < 20


def test_a_running_without_a_recorder_has_no_number_more(run: Run) -> None:
    numbers = run(from_iterable([1]).to(for_each(bool)).run()).statistics
    assert sent(numbers) == {}
    assert numbers["latency"] is None


def test_a_sample_a_second_has_the_events_of_that_second(run: Run) -> None:
    stream = from_iterable(range(25)).pipe(adaptive_flat_map(in_a_tenth, Fixed(1)))
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    samples = list(recorder.samples)
    assert [round(sample.at, 3) for sample in samples] == [1.0, 2.0, 2.5]
    # The tenth call of each second ends as the sample is taken.
    assert sum(sample.finished for sample in samples) == numbers["finished"] == 25
    assert [sample.sent[2] for sample in samples] == [sample.finished for sample in samples]
    assert samples[0].calls == {2: (1, 1, "fixed")}
    assert samples[-1].calls == {2: (0, 1, "fixed")}
    assert 9 <= samples[0].finished <= 10


def test_a_sample_has_no_more_numbers_than_the_picture_says(run: Run) -> None:
    stages = [adaptive_flat_map(in_a_tenth), adaptive_flat_map(in_some_time)]
    pipeline = from_iterable(range(40)).pipe(*stages).to(for_each(bool), for_each(bool))
    _, recorder = recorded(run, pipeline)
    found = re.search(r"at most (\d+) numbers", kept_text(pipeline.describe(), 2))
    assert found is not None
    sizes = [
        7 + 3 * len(one.calls) + len(one.sent) + 3 * (one.latency is not None) + len(one.heat)
        for one in recorder.samples
    ]
    # Of the rows of latencies only few are used here.
    assert max(sizes) <= int(found[1])
    assert max(sizes) > int(found[1]) - len(LATENCIES)


def test_latency_is_measured_from_creation_to_the_end_of_the_handler(run: Run) -> None:
    stream = from_iterable(range(3)).pipe(
        group_by(lambda _: "all"), spread(), adaptive_flat_map(in_some_time, Fixed(1))
    )
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    latency = numbers["latency"]
    assert latency["service"]["count"] == 3
    assert latency["service"]["median"] == pytest.approx(0.15, rel=0.001)
    assert latency["total"]["max"] == pytest.approx(0.45, rel=0.001)
    (sample,) = recorder.samples
    rows = {LATENCIES[row]: count for row, count in sample.heat.items()}
    assert rows == {0.1: 1, 0.2: 2}
    assert sample.latency is not None
    assert sample.latency[0] == pytest.approx(0.3, rel=0.001)


def test_latency_is_not_measured_at_a_stage_of_a_longer_stream_that_is_merged(run: Run) -> None:
    # The stage above the sinks has the number 2, as the first map of the other stream.
    longer = from_iterable([7]).pipe(ops.map(lambda n: n), adaptive_flat_map(in_a_tenth))
    numbers, _ = recorded(run, from_iterable([1, 2]).pipe(ops.merge(longer)).to(for_each(bool)))
    assert numbers["latency"]["total"]["count"] == 3


def test_a_sink_that_measures_latency_is_not_measured_again(run: Run) -> None:
    stream = from_iterable(range(3)).pipe(adaptive_flat_map(in_a_tenth, Fixed(3)))
    numbers, _ = recorded(run, stream.to(latency_histogram(None, report=None)))
    assert numbers["latency"] == numbers["stages"][-1]["latency"]


def test_of_many_events_a_second_about_a_thousand_are_measured(run: Run) -> None:
    async def at_once(value: int) -> int:
        return await asyncio.sleep(0.001, value)

    stream = from_iterable(range(40_000)).pipe(adaptive_flat_map(at_once, Fixed(10)))
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    heats = [sum(sample.heat.values()) for sample in recorder.samples]
    speeds = [sample.finished for sample in recorder.samples]
    # All of the first second, which shows how many there are.
    assert heats[0] == pytest.approx(speeds[0], abs=10)
    assert [900 <= heat <= 1100 for heat in heats[1:-1]] == [True] * len(heats[1:-1])
    # Each of the others stands for those of which it was chosen.
    assert 40_000 - recorder.stride <= numbers["latency"]["total"]["count"] <= 40_000
    assert sum(heats) < 15_000


def test_samples_of_a_quarter_of_an_hour_are_kept(run: Run) -> None:
    async def slow(value: int) -> int:
        return await asyncio.sleep(10, value)

    stream = from_iterable(range(100)).pipe(adaptive_flat_map(slow, Fixed(1)))
    _, recorder = recorded(run, stream.to(for_each(bool)))
    assert len(recorder.samples) == KEPT == 900
    assert recorder.samples[0].at == pytest.approx(101, abs=1)


def test_the_last_error_of_each_type_is_an_example(run: Run) -> None:
    stream = from_iterable(["bad", "good"]).pipe(adaptive_flat_map(in_a_tenth, on_error="skip"))
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    assert numbers["errors"] == {"ValueError": 1}
    example = recorder.examples["ValueError"]
    assert example.where == "in stage 2 'adaptive_flat_map'"
    assert example.text == (
        "ValueError: it is bad (in stage 2 'adaptive_flat_map', on the event 'bad')"
    )


def test_a_running_is_recorded_from_its_beginning_or_not_at_all(run: Run) -> None:
    async def story() -> None:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            await asyncio.sleep(0)
            with pytest.raises(BuildError, match=r"right after start\(\)"):
                running.record()

    run(story())


def test_it_is_recorded_once_for_all_that_ask(run: Run) -> None:
    async def story() -> None:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            first = running.record()
            await asyncio.sleep(0)
            assert running.record() is first

    run(story())


def test_what_is_recorded_adds_up_while_it_runs(run: Run) -> None:
    """Of a pipeline with two sinks, operators inside groups and a stage that fails."""

    def look(running: Running, recorder: Recorder) -> None:
        numbers = running.statistics()
        flow = sent(numbers)
        looked.append(numbers["in"])
        assert flow["from_iterable"] == numbers["in"]
        assert flow["adaptive_flat_map"] <= flow["spread"]
        assert sum(sample.finished for sample in recorder.samples) <= numbers["finished"]

    async def work(pair: tuple[int, int]) -> int:
        await asyncio.sleep(0.05)
        return 1 // (pair[0] % 5)

    looked: list[int] = []
    each = group_by(lambda n: n % 7, each=lambda group: group.pipe(ops.pairwise()), idle=30)
    stream = from_iterable(range(300)).pipe(
        each, spread(), adaptive_flat_map(work, Fixed(3), on_error="skip")
    )
    numbers, recorder = recorded(run, stream.to(for_each(bool), for_each(bool)), look)
    assert len(looked) > 4
    assert sum(sample.arrived for sample in recorder.samples) == numbers["in"] == 300
    assert sum(sample.failed for sample in recorder.samples) == numbers["failed"]
    assert sum(sample.sent[4] for sample in recorder.samples) == sent(numbers)["adaptive_flat_map"]


@pytest.mark.parametrize("keys", [2, 4, 16])
def test_keys_that_take_turns_are_measured_alike(run: Run, keys: int) -> None:
    async def slow_for_one(event: dict[str, int]) -> int:
        return await asyncio.sleep(0.001 if event["k"] == 0 else 0.0001, event["k"])

    stream = from_iterable([{"k": n % keys} for n in range(8_000)]).pipe(
        group_by("k"), spread(), adaptive_flat_map(slow_for_one, Fixed(1))
    )
    numbers, recorder = recorded(run, stream.to(for_each(bool)))
    shares = {one.key: one.events / recorder.keys.total for one in recorder.keys.hottest(keys)}
    assert shares == pytest.approx(dict.fromkeys(range(keys), 1 / keys), rel=0.2)
    mean = (0.001 + (keys - 1) * 0.0001) / keys
    assert numbers["latency"]["service"]["mean"] == pytest.approx(mean, rel=0.1)
