"""`penstock run FILE --workers N`: real processes, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.test_worker_processes import children_of

EVENTS, CLIENTS = 3000, 20

PIPELINE = """
import os, sys, time
from penstock import *

def work(event):
    end = time.thread_time() + 0.0005
    while time.thread_time() < end:
        pass
    if event["number"] == 7 and event["client"] == 3 and MODE == "fails":
        raise ValueError("seven of three")
    return {**event, "by": os.getpid()}

MODE, ON_ERROR = sys.argv[1], sys.argv[2]
pipeline = (
    read_jsonl()
    .pipe(
        distinct_within(60, by=lambda event: (event["client"], event["number"])),
        group_by("client", 500, overflow="wait"),
        spread(),
        adaptive_flat_map(
            work, on_error=route(dead_letters("letters.jsonl")) if ON_ERROR == "route" else ON_ERROR
        ),
    )
    .to(write_jsonl())
)
"""


class Command:
    """`penstock run` in a folder, with its input in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[str]] = []
        (folder / "orders.py").write_text(PIPELINE, encoding="utf-8")
        events = [
            {"client": number % CLIENTS, "number": number // CLIENTS} for number in range(EVENTS)
        ]
        # The second half again: duplicates are found before the events are divided.
        lines = (json.dumps(event) + "\n" for event in [*events, *events[EVENTS // 2 :]])
        (folder / "in.jsonl").write_text("".join(lines), encoding="utf-8")

    def start(self, *options: str, mode: str = "works", on_error: str = "stop") -> None:
        with (
            open(self.folder / "in.jsonl", encoding="utf-8") as given,
            open(self.folder / "out.jsonl", "w", encoding="utf-8") as results,
        ):
            words = [sys.executable, "-m", "penstock", "run", "orders.py", *options]
            self._running.append(
                subprocess.Popen(
                    [*words, "--", mode, on_error],
                    cwd=self.folder,
                    env={**os.environ, "PYTHONPATH": os.getcwd()},
                    stdin=given,
                    stdout=results,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    @property
    def process(self) -> subprocess.Popen[str]:
        return self._running[-1]

    def ended(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def results(self) -> list[dict[str, int]]:
        lines = (self.folder / "out.jsonl").read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def workers(self) -> list[int]:
        """They are children of the process that forks them."""
        parents = children_of(self.process.pid)
        return [child for parent in parents for child in children_of(parent)]

    def until_it_works(self) -> None:
        until = time.monotonic() + 30
        while not self.results():
            assert time.monotonic() < until, self.process.poll()
            time.sleep(0.01)

    def clean(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    command.clean()


def are_in_order(results: list[dict[str, int]]) -> bool:
    return all(
        numbers == sorted(numbers)
        for client in range(CLIENTS)
        for numbers in [[one["number"] for one in results if one["client"] == client]]
    )


def test_several_processes_work_and_each_clients_results_are_in_order(command: Command) -> None:
    command.start("--workers", "2")
    status, said = command.ended()
    results = command.results()
    assert (status, len(results)) == (0, EVENTS), said
    assert are_in_order(results)
    assert len({one["by"] for one in results}) == 2
    assert command.process.pid not in {one["by"] for one in results}
    assert f"4,500 in, {EVENTS:,} finished, 1,500 dropped (duplicate)" in said
    assert "  worked on by 2 worker processes" in said


def test_auto_is_as_many_as_there_are_cores(command: Command) -> None:
    command.start("--workers", "auto")
    status, said = command.ended()
    assert (status, len(command.results())) == (0, EVENTS), said
    cores = len(os.sched_getaffinity(0))
    assert len({one["by"] for one in command.results()}) in range(1, cores + 1)


def test_a_handler_that_fails_stops_the_run_with_status_1_and_no_traceback(
    command: Command,
) -> None:
    command.start("--workers", "2", mode="fails")
    status, said = command.ended()
    assert status == 1
    assert "seven of three" in said
    assert "stage 5 'adaptive_flat_map'" in said
    assert "Traceback" not in said
    assert are_in_order(command.results())


def test_an_error_of_a_handler_is_reported_with_its_line(command: Command) -> None:
    command.start("--workers", "2", mode="fails")
    _, said = command.ended()
    lines = PIPELINE.splitlines()
    line = 1 + next(at for at, text in enumerate(lines) if "raise ValueError" in text)
    assert re.search(rf"^raised in a worker process, at .*orders\.py:{line}$", said, re.M)
    command.start("--workers", "2", "--traceback", mode="fails")
    _, said = command.ended()
    assert 'raise ValueError("seven of three")' in said


def test_an_event_that_is_skipped_is_counted_and_the_status_is_3(command: Command) -> None:
    command.start("--workers", "2", mode="fails", on_error="skip")
    status, said = command.ended()
    assert (status, len(command.results())) == (3, EVENTS - 1), said
    assert "stage 5 'adaptive_flat_map': 1 skipped" in said


def test_a_dead_letter_is_written_by_the_parent(command: Command) -> None:
    command.start("--workers", "2", mode="fails", on_error="route")
    status, said = command.ended()
    assert (status, len(command.results())) == (3, EVENTS - 1), said
    (letter,) = (command.folder / "letters.jsonl").read_text().splitlines()
    found = json.loads(letter)
    assert found["value"] == {"client": 3, "number": 7}
    assert (found["error"], found["message"]) == ("ValueError", "seven of three")


def test_a_worker_that_is_killed_loses_nothing(command: Command) -> None:
    command.start("--workers", "2")
    command.until_it_works()
    os.kill(command.workers()[0], signal.SIGKILL)
    status, said = command.ended()
    results = command.results()
    assert status == 0, said
    assert "a worker process ended by SIGKILL" in said
    assert {(one["client"], one["number"]) for one in results} == {
        (number % CLIENTS, number // CLIENTS) for number in range(EVENTS)
    }
    assert are_in_order(results)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 4), (signal.SIGTERM, 4)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_drains_what_was_read(
    command: Command, number: signal.Signals, status: int
) -> None:
    command.start("--workers", "2")
    command.until_it_works()
    command.process.send_signal(number)
    ended, said = command.ended()
    assert ended == status, said
    assert "drained on a signal" in said
    assert 0 < len(command.results()) < EVENTS
    assert are_in_order(command.results())


def test_the_report_as_json_has_the_numbers_of_each_worker(command: Command) -> None:
    command.start("--workers", "2", "--report", "json")
    status, said = command.ended()
    assert status == 0, said
    stages = json.loads(said)["statistics"]["stages"]
    working = next(stage for stage in stages if stage["name"] == "adaptive_flat_map")
    assert len(working["by_worker"]) == 2


def test_a_page_about_the_run_has_the_numbers_of_all_workers(command: Command) -> None:
    command.start("--workers", "2", "--report-page", "run.html", "--show-values")
    status, said = command.ended()
    assert status == 0, said
    page = (command.folder / "run.html").read_text(encoding="utf-8")
    keys = page[page.index("Hottest keys") : page.index("Machine and versions")]
    assert "of all events" in keys
    assert float(keys.partition(" %")[0].rpartition(">")[2]) > 0
    assert f"<b>{EVENTS + EVENTS // 2:,}</b>in" in page
    assert f"<b>{EVENTS:,}</b>finished" in page
    assert f"<b>{EVENTS // 2:,}</b>dropped (duplicate)" in page


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_workers_need_no_standard_streams(command: Command, closed: str) -> None:
    words = [sys.executable, "-m", "penstock", "run", "orders.py", "--workers", "2"]
    files = ["--input", "in.jsonl", "--output", "out.jsonl", "--", "works", "stop"]
    status = subprocess.run(
        f"{shlex.join([*words, *files])} {closed}",
        shell=True,
        cwd=command.folder,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        timeout=60,
        check=False,
    ).returncode
    assert (status, len(command.results())) == (0, EVENTS)
