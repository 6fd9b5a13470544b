"""What the live page shows for the lines that it reads."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from penstock import (
    Fixed,
    Inbox,
    adaptive_flat_map,
    batch,
    collect,
    distinct_within,
    for_each,
    from_iterable,
    inbox,
    latency_histogram,
    objective,
    rate_limit,
    retry,
    route,
)
from penstock.streams.base.compiled import library
from penstock.streams.telemetry.feed import Fleet
from penstock.streams.testing.loop import run_virtual
from penstock.streams.testing.plugin import Run
from tests.helpers.local_workers import LocalCrew
from tests.helpers.page_in_node import failed, lines_of, looked_at, opened, refused

FLEET: dict[str, Any] = {
    "here": "a",
    "unfinished": 7,
    "unit": "event",
    "stored": 9,
    "letters": 0,
    "workers": {"a": {"name": "worker-1", "in_flight": 1, "waiting": 2}},
    "partitions": {"1": {"lag": 7, "owner": "a"}},
}


def test_the_page_names_the_library_and_its_form(run: Run) -> None:
    async def story() -> list[dict[str, Any]]:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            return await lines_of(running, 1.5)

    seen = looked_at(opened(*run(story())), shown=("library",))
    assert seen[0]["library"] == library()


def test_servers_that_do_not_answer_are_named_and_the_page_goes_on(run: Run) -> None:
    answers = [TimeoutError(), TimeoutError(), FLEET, ConnectionError("url"), FLEET]

    async def fleet() -> dict[str, Any]:
        answer = answers.pop(0) if answers else FLEET
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def story() -> list[dict[str, Any]]:
        async with inbox(1).to(for_each(bool)).start() as running:
            found = await lines_of(running, 9.5, fleet=fleet)
            running.cancel()
        return found

    lines = run(story())
    seen = looked_at(opened(*lines), shown=("state", "fleet-all", "fleet", "letters"))
    assert {one["state"] for one in seen[: len(lines)]} == {"running"}
    said = [one["fleet-all"] for one in seen[: len(lines)]]
    known = "7 events unfinished, 9 kept by the servers"
    # They are asked every two seconds, and each answer is in the next line.
    assert said[1] == said[3] == "The servers have not answered: TimeoutError"
    assert said[5] == said[9] == known
    assert said[7] == f"{known}, before they did not answer: ConnectionError"
    assert seen[1]["fleet"] == []
    assert seen[5]["fleet"] == seen[7]["fleet"] != []
    assert seen[1]["letters"] is None


@pytest.mark.parametrize("others", [0, 1, 2])
def test_the_page_of_one_of_several_workers_says_whose_numbers_it_shows(
    run: Run, others: int
) -> None:
    more = {f"b{n}": {"name": f"other-{n}", "in_flight": 0, "waiting": 0} for n in range(others)}

    async def fleet() -> dict[str, Any]:
        return {**FLEET, "workers": {**FLEET["workers"], **more}}

    async def story() -> list[dict[str, Any]]:
        async with inbox(1).to(for_each(bool)).start() as running:
            found = await lines_of(running, 5.5, fleet=fleet)
            running.cancel()
        return found

    *_, seen = looked_at(opened(*run(story())), shown=("here", "fleet"))
    if not others:
        assert seen["here"] is None
    else:
        whose = f"The numbers of worker-1, one of {others + 1}"
        assert seen["here"] == f"{whose}: the others are under All workers"
    assert len(seen["fleet"]) == others + 1


def test_the_last_dead_letter_on_a_page_of_several_workers_is_of_its_own(run: Run) -> None:
    async def fleet() -> dict[str, Any]:
        return {**FLEET, "letters": 3}

    async def fails(value: int) -> int:
        raise ValueError("no")

    def shown(fleet: Fleet | None) -> Any:
        async def story() -> list[dict[str, Any]]:
            letters = route(collect([]))
            pipeline = from_iterable([1]).pipe(adaptive_flat_map(fails, Fixed(1), on_error=letters))
            running = pipeline.to(for_each(bool)).start()
            found = await lines_of(running, 5.5, fleet=fleet)
            await running.wait()
            return found

        *_, end = looked_at(opened(*run(story())), shown=("letter-name",))
        return end["letter-name"]

    assert shown(None).startswith("The last, ")
    assert shown(fleet).startswith("The last of this worker, ")


@pytest.mark.parametrize("show_values", [False, True])
def test_the_error_that_ends_a_run_is_among_the_failures_with_its_stage(
    run: Run, *, show_values: bool
) -> None:
    async def ends(value: int) -> int:
        await asyncio.sleep(0.5)
        raise KeyError("secret")

    async def fails(value: int) -> int:
        if value == 1:
            raise ValueError("wrong")
        return value

    pipeline = from_iterable([1, 2]).pipe(
        adaptive_flat_map(fails, Fixed(1), on_error="skip"), adaptive_flat_map(ends, Fixed(1))
    )

    async def story() -> list[dict[str, Any]]:
        running = pipeline.to(for_each(bool)).start()
        found = await lines_of(running, 9.5, show_values=show_values)
        with pytest.raises(KeyError):
            await running.wait()
        return found

    lines = run(story())
    *_, seen = looked_at(opened(*lines), shown=("state", "errors"))
    assert seen["state"] == "stopped"
    ending, other = seen["errors"]
    assert ending[:2] == ["KeyError", "ended the run"]
    assert "in stage 3 'adaptive_flat_map'" in ending[2]
    assert other[:2] == ["ValueError", "1"]
    assert ("secret" in ending[2]) is show_values
    assert ("secret" in str(lines)) is show_values


def run_on_a_page(run: Run, *, cancelled: bool) -> list[dict[str, Any]]:
    """The lines about a run that is cancelled, or goes on."""

    async def story() -> list[dict[str, Any]]:
        async with inbox(1).to(for_each(bool)).start() as running:
            if cancelled:
                asyncio.get_running_loop().call_later(2.5, running.cancel)
            found = await lines_of(running, 5)
            running.cancel()
        return found

    return run(story())


def test_a_page_follows_the_next_run_on_the_same_address(run: Run) -> None:
    first, second = (run_on_a_page(run, cancelled=cancelled) for cancelled in (True, False))
    seen = looked_at(
        opened(*first),
        # Nobody listens until the next run has begun.
        failed,
        refused(502, "Bad Gateway"),
        opened(*second, control=True),
        failed,
        shown=("state", "buttons", "message"),
    )
    states = [one["state"] for one in seen]
    closed = states.index("cancelled")
    again = states.index("running", closed)
    assert {*states[:closed]} == {"running"}
    assert {*states[closed:again]} == {"cancelled"}
    # Waited three times: after the end, and twice when nobody answered.
    assert again - closed >= 3
    assert states[-1] == "gone"
    assert {one["message"] for one in seen} == {None}
    assert [one["buttons"] is None for one in (seen[closed], seen[again])] == [True, False]


def test_a_page_whose_token_is_not_that_of_the_next_run_says_so(run: Run) -> None:
    first = run_on_a_page(run, cancelled=True)
    *_, seen = looked_at(opened(*first), refused(401), shown=("state", "message"))
    assert seen["state"] == "refused"
    assert "token" in seen["message"]


async def at_once(value: int) -> int:
    return value


async def slowly(value: Any) -> Any:
    await asyncio.sleep(1_000)
    return value


def boxes_of(run: Run, *stages: Any) -> tuple[list[list[str]], dict[str, Any]]:
    """The texts in the boxes after a second, and the statistics then."""
    numbers: dict[str, Any] = {}

    async def story() -> list[dict[str, Any]]:
        pipeline = from_iterable(range(1_000)).pipe(*stages).to(for_each(slowly))
        async with pipeline.start() as running:
            found = await lines_of(
                running, 1.5, meanwhile=lambda: numbers.update(running.statistics())
            )
            running.cancel()
        return found

    *_, seen = looked_at(opened(*run(story())))
    return seen["boxes"], numbers


def test_results_that_wait_for_the_next_stage_fill_the_box_of_their_own(run: Run) -> None:
    boxes, numbers = boxes_of(run, adaptive_flat_map(at_once, Fixed(8)), rate_limit(1, per=900))
    working = numbers["stages"][1]
    assert (working["in_flight"], working["waiting"]) == (0, 0)
    assert working["undelivered"] > 200
    assert "full · 100 %" in boxes[1][0]
    assert f"0 of 8 calls{working['undelivered']} results wait for the next stage" in boxes[1]


def test_as_many_calls_as_the_limit_allows_are_normal_work(run: Run) -> None:
    boxes, numbers = boxes_of(run, adaptive_flat_map(slowly, Fixed(3)))
    assert numbers["stages"][1]["in_flight"] == 3
    assert "at its limit · 100 %" in boxes[1][0]
    assert "full" not in "".join(boxes[1])


def test_the_word_for_a_probe_is_explained(run: Run) -> None:
    class Probing(Fixed):
        reason = "probing"

    boxes, _ = boxes_of(run, adaptive_flat_map(slowly, Probing(3)))
    said = "limit 3: probing (tries a few calls more or fewer, and keeps what does better)"
    assert any(said in text for text in boxes[1])


def test_percentiles_say_since_when_they_count_and_the_last_minute_has_its_own(run: Run) -> None:
    async def quicker(number: int) -> int:
        await asyncio.sleep(3 if number < 10 else 0.003)
        return number

    async def story() -> list[dict[str, Any]]:
        pipeline = from_iterable(range(100_000)).pipe(adaptive_flat_map(quicker, Fixed(1)))
        async with pipeline.to(latency_histogram(report=lambda text: None)).start() as running:
            found = await lines_of(running, 95.5)
            running.cancel()
        return found

    *_, seen = looked_at(opened(*run(story())), shown=("latency", "latency-since"))
    assert re.match(r"Of [\d,]+ events since the start, 95 s ago; the last", seen["latency-since"])
    total, minute = seen["latency"][-2:]
    assert (total[0], minute[0]) == ("total", "total, last minute")
    assert all(cell.startswith("≤ ") for cell in minute[1:])


def test_duplicates_of_an_event_that_failed_have_a_line_among_the_failures(run: Run) -> None:
    async def fails(event: dict[str, int]) -> None:
        await asyncio.sleep(1)
        raise ConnectionError("away")

    numbers: dict[str, Any] = {}

    async def story() -> list[dict[str, Any]]:
        flow = from_iterable([{"id": n % 2} for n in range(9)]).pipe(
            distinct_within(60, by="id"), adaptive_flat_map(fails, Fixed(4), on_error="skip")
        )
        async with flow.merge(inbox(1)).to(collect([])).start() as running:
            found = await lines_of(
                running, 3.5, meanwhile=lambda: numbers.update(running.statistics())
            )
            running.cancel()
        return found

    *_, seen = looked_at(opened(*run(story())), shown=("errors",))
    assert (numbers["failed"], numbers["errors"]) == (9, {"ConnectionError": 2})
    assert seen["errors"][1:] == [["duplicates of failed events", "7", ""]]


def test_the_boxes_show_all_that_is_in_flight_and_waits(run: Run) -> None:
    async def store(values: list[int]) -> list[int]:
        await asyncio.sleep(1_000)
        return values

    boxes, numbers = boxes_of(run, batch(store, 10, parallel=2))
    batches = numbers["stages"][1]
    assert (batches["calls"], batches["in_flight"]) == (2, numbers["in_flight"])
    facts = f"2 of 2 calls · {batches['in_flight']} in flight"
    assert any(text.endswith(f" wait{facts}") for text in boxes[1])

    boxes, numbers = boxes_of(run, adaptive_flat_map(slowly, Fixed(3)))
    assert numbers["in_flight"] == 3
    assert any(text.startswith("3 of 3 calls") for text in boxes[1])
    boxes, numbers = boxes_of(run, rate_limit(100))
    assert numbers["in_flight"] == 1
    assert any("1 in flight" in text for text in boxes[-1])


def test_events_that_wait_in_a_working_stage_are_in_its_box(run: Run) -> None:
    async def fails(value: int) -> int:
        raise ConnectionError("away")

    again = retry(9, wait=lambda error: 60.0)
    boxes, numbers = boxes_of(run, adaptive_flat_map(fails, Fixed(3), on_error=again))
    working = numbers["stages"][1]
    assert working["waiting"] > 1
    assert any(f"{working['waiting']} wait" in text for text in boxes[1])


def test_a_worker_process_that_does_not_answer_is_named_until_it_goes_on() -> None:
    crew = LocalCrew(2)

    async def slow(value: int) -> int:
        await asyncio.sleep(0.5)
        return value

    async def story() -> list[dict[str, Any]]:
        pipeline = from_iterable(range(60)).pipe(adaptive_flat_map(slow, Fixed(2)))
        async with pipeline.to(for_each(bool)).start(workers=crew) as running:
            running.record()
            loop = asyncio.get_running_loop()
            loop.call_later(0.6, crew.freeze, 1)
            loop.call_later(8.2, crew.thaw, 1)
            found = await lines_of(running, 9.5)
        return found

    lines = run_virtual(story())
    said = [one["silent"] for one in looked_at(opened(*lines), shown=("silent",))]
    assert not said[1]
    assert any(
        (text or "").startswith("Worker 2 (pid 1002) has said nothing for ") for text in said
    )
    assert not said[-1]


def test_objectives_have_a_panel_with_their_verdict_and_burn_rates(run: Run) -> None:
    async def without() -> list[dict[str, Any]]:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            return await lines_of(running, 1.5)

    async def measured() -> list[dict[str, Any]]:
        box: Inbox[float] = inbox(100)
        asked = (
            objective("service < 1500ms", share=0.9),
            objective("p99 < 1s", share=0.9, name="other"),
        )
        async with box.pipe(adaptive_flat_map(asyncio.sleep, Fixed(9))).to(*asked).start() as run:

            async def later() -> None:
                for seconds in (0.0, 0.0, 2.0, 0.0):
                    await box.put(seconds)

            task = asyncio.create_task(later())
            found = await lines_of(run, 11.5)
            await task
            run.cancel()
        return found

    *_, none = looked_at(opened(*run(without())), shown=("objectives",))
    assert none["objectives"] is None
    *_, seen = looked_at(opened(*run(measured())), shown=("objectives",))
    assert seen["objectives"] == [
        ["3 service < 1500ms", "missed", "75 % of 4 events", "90 %", *["2.50"] * 4],
        ["4 other", "missed", "0 % of 1 slice", "90 %", *["10"] * 4],
    ]


@pytest.mark.parametrize("show_values", [False, True])
def test_latencies_of_keys_and_stages_are_shown_and_keys_only_as_values(
    run: Run, show_values: bool
) -> None:
    async def sleep(seconds: float) -> float:
        return await asyncio.sleep(seconds, seconds)

    async def story() -> list[dict[str, Any]]:
        stream = from_iterable([0.5, 0.5, 1.0]).pipe(
            adaptive_flat_map(sleep, Fixed(4)), adaptive_flat_map(sleep, Fixed(4))
        )
        sink = latency_histogram(None, report=None, by=lambda n: f"c{n}", keys=1, stage=2)
        async with stream.to(sink).start() as running:
            return await lines_of(running, 4.5, show_values=show_values)

    *_, seen = looked_at(opened(*run(story())), shown=("slow", "latency", "slow-hidden"))
    name = "c0.5" if show_values else "key 1"
    assert seen["slow"] == [
        [f"stage 2: {name}", "2", "0", *["504 ms"] * 4],
        ["stage 2: all other keys", "1", "0", *["1.01 s"] * 4],
    ]
    assert ["stage 2: service", "500 ms", *["1 s"] * 3] in seen["latency"]
    assert (seen["slow-hidden"] is None) == show_values
