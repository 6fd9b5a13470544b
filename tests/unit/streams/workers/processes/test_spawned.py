"""Fresh processes as workers, on every system: what is special to one is in `tests/system`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import adaptive_flat_map, collect, from_iterable, in_processes, run
from penstock.streams.base.errors import BuildError, WorkerLost
from penstock.streams.pipelines.pipeline import Engine
from penstock.streams.workers.processes import spawned


def work(number: int) -> tuple[int, int]:
    return number, os.getpid()


def opens(number: int) -> str:
    raise ValueError(f"no {number}")


results: list[tuple[int, int]] = []
pipeline = from_iterable(range(50)).pipe(adaptive_flat_map(work)).to(collect(results))
in_pools = (
    from_iterable(range(3)).pipe(adaptive_flat_map(in_processes(1)(work))).to(collect(results))
)
failing = from_iterable(range(3)).pipe(adaptive_flat_map(opens)).to(collect([]))
without_work = from_iterable(range(3)).to(collect([]))


def numbers_of_results() -> list[int]:
    numbers = sorted(number for number, process in results if process != os.getpid())
    results.clear()
    return numbers


def test_results_of_fresh_processes_come_back() -> None:
    report = asyncio.run(pipeline.run(workers=2))
    assert report.outcome == "completed"
    assert report.statistics["finished"] == 50
    assert numbers_of_results() == list(range(50))


def test_a_loop_in_another_thread_has_workers_too() -> None:
    thread = threading.Thread(target=lambda: asyncio.run(pipeline.run(workers=1)))
    thread.start()
    thread.join()
    assert numbers_of_results() == list(range(50))


def test_run_starts_fresh_processes_where_there_are_threads() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert run(pipeline, workers=1).outcome == "completed"
    finally:
        stop.set()
        thread.join()
    assert numbers_of_results() == list(range(50))


def test_a_handler_of_a_worker_may_have_processes_of_its_own() -> None:
    asyncio.run(in_pools.run(workers=1))
    assert numbers_of_results() == [0, 1, 2]


def test_an_error_of_a_handler_keeps_its_type() -> None:
    with pytest.raises(ValueError, match="no 0"):
        asyncio.run(failing.run(workers=1))


def test_a_cancelled_pipeline_does_not_wait_for_workers_that_still_start() -> None:
    async def main() -> None:
        running = pipeline.start(workers=2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        assert (await running.wait()).outcome == "cancelled"

    asyncio.run(main())
    results.clear()


async def start(some: Any, **options: Any) -> None:
    with pytest.raises(BuildError) as error:
        some.start(**options)
    raise error.value


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "many", None.__class__])
def test_a_wrong_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(BuildError, match=r'give a number of at least 1, or "auto"'):
        asyncio.run(start(pipeline, workers=workers))


def test_a_pipeline_that_workers_cannot_find_is_refused_before_anything_runs() -> None:
    local = from_iterable(range(3)).pipe(adaptive_flat_map(work)).to(collect([]))
    with pytest.raises(BuildError, match="has no name at the top level of a module"):
        asyncio.run(start(local, workers=2))


def test_a_pipeline_without_a_handler_is_refused() -> None:
    with pytest.raises(BuildError, match="this pipeline has neither"):
        asyncio.run(start(without_work, workers=2))


def test_workers_on_an_engine_are_refused() -> None:
    engine = Engine(from_iterable([1]), "skip")
    with pytest.raises(BuildError, match="an engine has workers of its own"):
        asyncio.run(start(pipeline, workers=2, engine=engine))


def test_a_system_that_starts_no_process_stops_the_pipeline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(end: object) -> None:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(spawned, "_started", refuse)
    with pytest.raises(WorkerLost, match="cannot be started: too many processes"):
        asyncio.run(pipeline.run(workers=2))
    assert caplog.messages == []


ABANDONED = """
import asyncio, time
from penstock import adaptive_flat_map, collect, from_iterable

def work(number):
    time.sleep(0.01)
    return number

pipeline = from_iterable(range(10_000)).pipe(adaptive_flat_map(work)).to(collect([]))

if __name__ == "__main__":
    loop = asyncio.new_event_loop()

    async def main():
        pipeline.start(workers=1)
        await asyncio.sleep(0.5)

    loop.run_until_complete(main())
    print("over")
"""


def test_a_program_that_forgets_its_pipeline_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ABANDONED)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "over\n")
