"""Worker processes of one pipeline: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.system.children import children_of, wait_until_gone

EVENTS, CLIENTS = 3000, 20

SCRIPT = """
import os, sys, time
from penstock import *

def work(event):
    end = time.perf_counter() + 0.0005
    while time.perf_counter() < end:
        pass
    if event["number"] == POISON and event["client"] == 3:
        os.kill(os.getpid(), 9)
    return {**event, "by": os.getpid()}

pipeline = read_jsonl().pipe(
    group_by("client"), spread(), adaptive_flat_map(work, on_error=ON_ERROR)
).to(write_jsonl())

if __name__ == "__main__":
    report = run(pipeline, workers=2)
    sys.exit(report.exit_status)
"""


class Started:
    """A script that runs a pipeline with two workers on the events of a file."""

    def __init__(
        self, folder: Path, poison: int = -1, on_error: str = "stop", text: str = SCRIPT
    ) -> None:
        self.output = folder / "output.jsonl"
        source = folder / "input.jsonl"
        script = folder / "script.py"
        script.write_text(f"POISON, ON_ERROR = {poison}, {on_error!r}\n{text}")
        lines = (
            json.dumps({"client": number % CLIENTS, "number": number // CLIENTS})
            for number in range(EVENTS)
        )
        source.write_text("".join(line + "\n" for line in lines))
        with source.open() as lines_in, self.output.open("w") as lines_out:
            self.process = subprocess.Popen(
                [sys.executable, str(script)],
                stdin=lines_in,
                stdout=lines_out,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def results(self) -> list[dict[str, int]]:
        lines = self.output.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def children(self) -> list[int]:
        """The worker processes: they are children of the one that forks them."""
        return children_of(self.nursery())

    def nursery(self) -> int:
        (nursery,) = children_of(self.process.pid)
        return nursery

    def ended(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


def in_order(results: list[dict[str, int]]) -> bool:
    last = dict.fromkeys(range(CLIENTS), -1)
    for result in results:
        if result["number"] <= last[result["client"]]:
            return False
        last[result["client"]] = result["number"]
    return True


def wait_for_results(started: Started, number: int) -> None:
    deadline = time.monotonic() + 30
    while len(started.results()) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_workers_share_the_clients_and_keep_the_order_of_each(tmp_path: Path) -> None:
    started = Started(tmp_path)
    status, said = started.ended()
    assert (status, said) == (0, "")
    results = started.results()
    assert len(results) == EVENTS
    assert in_order(results)
    assert len({result["by"] for result in results}) == 2


def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path, run_seed: int) -> None:
    started = Started(tmp_path)
    wait_for_results(started, 200 + 300 * (run_seed % 5))
    os.kill(started.children()[run_seed % 2], signal.SIGKILL)
    status, said = started.ended()
    assert status == 0
    assert "a worker process ended by SIGKILL" in said
    results = started.results()
    assert sorted({(result["client"], result["number"]) for result in results}) == [
        (client, number) for client in range(CLIENTS) for number in range(EVENTS // CLIENTS)
    ]
    # The worker's last results may have been on their way: no event is there twice.
    assert len(results) == EVENTS
    assert in_order(results)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_an_event_that_kills_its_worker_three_times_is_an_error_of_its_stage(
    tmp_path: Path, on_error: str
) -> None:
    started = Started(tmp_path, poison=20, on_error=on_error)
    status, said = started.ended()
    assert "ended 3 times while it worked on this event, the last time by SIGKILL" in said
    results = started.results()
    assert in_order(results)
    assert all(result["number"] != 20 for result in results if result["client"] == 3)
    if on_error == "skip":
        assert status == 3
        assert len(results) == EVENTS - 1
    else:
        assert status == 1


@pytest.mark.parametrize("kernel_helps", [True, False])
def test_workers_end_with_their_parent(tmp_path: Path, kernel_helps: bool) -> None:
    alone = """
from penstock.streams.runtime.process import lifeline
lifeline._ask_the_kernel = lambda: None
"""
    started = Started(tmp_path, text=SCRIPT if kernel_helps else alone + SCRIPT)
    wait_for_results(started, 100)
    workers = [*children_of(started.process.pid), *started.children()]
    assert len(workers) == 3
    started.process.kill()
    started.process.communicate(timeout=60)
    wait_until_gone(workers)


def test_a_signal_drains_and_the_workers_finish_what_they_have(tmp_path: Path) -> None:
    # So few that most of the input is not read yet.
    few = SCRIPT.replace('group_by("client")', 'group_by("client", 500, overflow="wait")')
    started = Started(tmp_path, text=few)
    wait_for_results(started, 100)
    started.process.send_signal(signal.SIGTERM)
    status, _ = started.ended()
    results = started.results()
    assert status == 4
    assert in_order(results)
    assert 100 <= len(results) < EVENTS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_all_processes_is_for_the_parent(
    tmp_path: Path, number: signal.Signals
) -> None:
    # So does a terminal, and so do service managers.
    started = Started(tmp_path)
    wait_for_results(started, 100)
    os.killpg(started.process.pid, number)
    status, said = started.ended()
    assert status == 4
    assert "ended by" not in said
    assert in_order(started.results())


def test_without_the_process_that_starts_workers_the_pipeline_stops_and_says_why(
    tmp_path: Path,
) -> None:
    started = Started(tmp_path)
    wait_for_results(started, 100)
    workers = started.children()
    os.kill(started.nursery(), signal.SIGKILL)
    status, said = started.ended()
    assert status == 1
    assert "a worker process cannot be started: the process that starts them has ended by" in said
    assert "worked on again" not in said
    assert "Exception in callback" not in said
    assert "DrainTimeout" not in said
    wait_until_gone(workers)
    assert in_order(started.results())


def test_a_pipeline_stops_if_the_process_that_starts_workers_ends_before_it_has_begun(
    tmp_path: Path,
) -> None:
    # Killed at the first look at the source, it has read no request for a worker yet.
    source = """
def numbers():
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    os.kill(int(children[0]), 9)
    yield from range(10)

pipeline = from_iterable(numbers()).pipe(adaptive_flat_map(lambda n: n)).to(write_jsonl())

if __name__"""
    status, said = Started(tmp_path, text=SCRIPT.replace("\nif __name__", source)).ended()
    assert status == 1
    assert "a worker process cannot be started: the process that starts them has ended by" in said
    assert "Exception in callback" not in said


def test_a_worker_that_cannot_be_forked_is_an_error(tmp_path: Path) -> None:
    fails = """
import os
fork, forks = os.fork, []

def fork_once():
    forks.append(0)
    if len(forks) > 1:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()

os.fork = fork_once
"""
    started = Started(tmp_path, text=fails + SCRIPT)
    status, said = started.ended()
    assert status == 1
    assert "a worker process ends before it has begun anything" in said
    assert "Resource temporarily unavailable" in said
    assert said.count("Traceback") == 1
    assert started.results() == []


def test_a_worker_that_hangs_is_killed_when_the_deadline_of_a_drain_has_passed(
    tmp_path: Path,
) -> None:
    quick = "from penstock.streams.workers.processes import forked; forked._PATIENCE = 0.2"
    text = SCRIPT.replace("import os", f"{quick}\nimport os")
    text = text.replace("workers=2", "workers=2, drain_deadline=0.5")
    started = Started(tmp_path, text=text)
    wait_for_results(started, 100)
    workers = started.children()
    os.kill(workers[0], signal.SIGSTOP)
    started.process.send_signal(signal.SIGTERM)
    status, said = started.ended()
    assert status == 1
    assert "DrainTimeout: the drain's deadline passed with" in said
    wait_until_gone(workers)


@pytest.mark.parametrize("how", ["stopped", "holds the interpreter"])
def test_a_worker_that_does_not_answer_holds_up_no_clients_of_others(
    tmp_path: Path, how: str
) -> None:
    flag = tmp_path / "flag"
    hold = f"""
        if not os.path.exists({str(flag)!r}):
            with open({str(flag)!r}, "w") as file:
                file.write(str(os.getpid()))
            ctypes.PyDLL(None).sleep(1000)"""
    text = SCRIPT.replace("import os", "import ctypes, os").replace("workers=2", "workers=3")
    text = text.replace("\n        os.kill(os.getpid(), 9)", hold)
    text = text.replace('"client")', '"client", buffer=200, share=20)')
    text = text.replace("(work, ", "(work, limit=Fixed(6), window=16, ")
    started = Started(tmp_path, poison=5 if how != "stopped" else -1, text=text)
    wait_for_results(started, 100)
    if how == "stopped":
        worker = started.children()[1]
        os.kill(worker, signal.SIGSTOP)
    else:
        while not (flag.exists() and flag.read_text()):
            time.sleep(0.01)
        worker = int(flag.read_text())
    deadline = time.monotonic() + 60
    done: Counter[int] = Counter()
    # It may have events of as many clients as it has room for.
    while sum(many == EVENTS // CLIENTS for many in done.values()) < CLIENTS // 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        done = Counter(result["client"] for result in started.results())
    assert len(started.results()) < EVENTS
    os.kill(worker, signal.SIGCONT if how == "stopped" else signal.SIGKILL)
    status, said = started.ended()
    assert status == 0
    assert "temporary file" in said
    assert len(started.results()) == EVENTS
    assert in_order(started.results())


def test_each_worker_that_an_event_holds_up_is_named_until_its_deaths_are_an_error_of_the_event(
    tmp_path: Path,
) -> None:
    text = SCRIPT.replace("os.kill(os.getpid(), 9)", "while True: pass")
    started = Started(tmp_path, poison=5, on_error="skip", text=text)
    assert started.process.stderr is not None
    named: list[int] = []
    while len(named) < 3:
        line = started.process.stderr.readline()
        assert line, "the run has ended"
        if found := re.search(r"has said nothing for 4 s.* kill -9 (\d+) ", line):
            named.append(int(found[1]))
            assert named[-1] in started.children()
            os.kill(named[-1], signal.SIGKILL)
    status, _ = started.ended()
    assert status == 3
    assert "by its only event, {'client': 3, 'number': 5}" in line
    assert len(started.results()) == EVENTS - 1
    assert in_order(started.results())


def test_a_run_ends_also_if_the_process_that_starts_workers_is_stopped(tmp_path: Path) -> None:
    quick = "from penstock.streams.workers.processes import forked; forked._PATIENCE = 0.2"
    started = Started(tmp_path, text=SCRIPT.replace("import os", f"{quick}\nimport os"))
    wait_for_results(started, 100)
    processes = [started.nursery(), *started.children()]
    os.kill(processes[0], signal.SIGSTOP)
    status, said = started.ended()
    assert (status, said) == (0, "")
    assert len(started.results()) == EVENTS
    wait_until_gone(processes)


def test_lines_that_handlers_print_stay_whole_and_are_not_lost_with_their_worker(
    tmp_path: Path,
) -> None:
    text = SCRIPT.replace(
        "    return {**event",
        "    print('{\"client\": 3, \"number\":', event['number'], '}')\n    return {**event",
    )
    text = text.replace("write_jsonl()", "collect([])")
    started = Started(tmp_path, poison=20, on_error="skip", text=text)
    started.ended()
    # Each is printed before the worker that is killed has a result.
    assert len(started.results()) >= EVENTS - 1


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    looks = """
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child", file=sys.stderr)
"""
    status, said = Started(
        tmp_path, text=SCRIPT.replace("    sys.exit", looks + "    sys.exit")
    ).ended()
    assert (status, said) == (0, "no child\n")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("source", "a worker process cannot read what it was sent: KeyError: 'lost'"),
        ("handler", "the last time by a result that cannot be read, KeyError: 'lost'"),
    ],
)
def test_a_value_that_cannot_be_read_on_the_other_side_fails_in_its_stage(
    tmp_path: Path, made: str, said: str
) -> None:
    unreadable = """
class Unreadable:
    def __reduce__(self):
        return {}.__getitem__, ("lost",)

def work(event):
    bad = isinstance(event, Unreadable) or MADE == "handler" and event == 3
    return Unreadable() if bad else event

values = [Unreadable() if MADE == "source" and n == 3 else n for n in range(10)]
pipeline = from_iterable(values).pipe(adaptive_flat_map(work, on_error="skip")).to(write_jsonl())

if __name__"""
    text = SCRIPT.replace("\nif __name__", f"\nMADE = {made!r}" + unreadable)
    started = Started(tmp_path, text=text)
    status, errors = started.ended()
    assert status == 3
    assert said in errors
    assert "Fatal error" not in errors
    assert sorted(started.output.read_text().split()) == [str(n) for n in range(10) if n != 3]


@pytest.mark.parametrize("handler", ["work", "waits"])
def test_a_handler_that_exits_stops_the_program_with_its_status(
    tmp_path: Path, handler: str
) -> None:
    exits = f"""
def work(event):
    if event == 3:
        sys.exit(7)
    return event

async def waits(event):
    return work(event)

pipeline = from_iterable(range(10)).pipe(
    adaptive_flat_map({handler}, on_error="skip")
).to(write_jsonl())

if __name__"""
    status, errors = Started(tmp_path, text=SCRIPT.replace("\nif __name__", exits)).ended()
    assert status == 7
    assert "Fatal error" not in errors


def test_a_blocked_loop_of_a_worker_is_reported_with_the_worker_unless_its_handler_is_plain(
    tmp_path: Path,
) -> None:
    blocking = """
async def blocks(event):
    time.sleep(0.4)
    return os.getpid()

def is_slow(pid):
    time.sleep(0.4)
    return pid

def pipeline_of(work):
    return from_iterable([0]).pipe(adaptive_flat_map(work)).to(write_jsonl())

if __name__ == "__main__":
    run(pipeline_of(blocks), workers=1)
    report = run(pipeline_of(is_slow), workers=1)
    sys.exit()
"""
    started = Started(tmp_path, text=SCRIPT.replace("\nif __name__", blocking + "\nif __name__"))
    status, said = started.ended()
    worker = started.output.read_text().split()[0]
    assert status == 0
    assert said.startswith(f"in worker process {worker} the loop was blocked for")
    assert "while 'blocks' (stage 2 'adaptive_flat_map') was at work" in said
    assert said.count("\n") == 1


def test_an_interrupt_before_anything_has_begun_is_reported_by_the_parent_only(
    tmp_path: Path,
) -> None:
    interrupted = """
import os, time
fork = os.fork

def fork_and_interrupt():
    pid = fork()
    # What comes in the first moment is lost in a forked process.
    time.sleep(0.2)
    if pid:
        os.killpg(0, 2)
    else:
        time.sleep(0.4)
    return pid

os.fork = fork_and_interrupt
"""
    status, said = Started(tmp_path, text=interrupted + SCRIPT).ended()
    assert status == -signal.SIGINT
    assert said.count("Traceback") == 1


FORKS = """
import signal
import warnings

def fork():
    with warnings.catch_warnings():
        # Python 3.12 and newer warn of a fork beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        open("child", "w").write(str(child))
    else:
        os.closerange(0, 3)
        signal.pause()
"""


# No fork of Python's: the program gets all that is open and may be inherited.
STARTS = """
def fork():
    os.system("exec sleep 60 < /dev/null > /dev/null 2>&1 & echo $! > child")
"""


@pytest.mark.parametrize("begins", [FORKS, STARTS], ids=["process", "program"])
def test_a_worker_that_is_killed_is_missed_while_what_it_has_started_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    monkeypatch.chdir(tmp_path)
    handler = f"""{begins}
def work(event):
    if event == 3 and not os.path.exists("child"):
        fork()
        os.kill(os.getpid(), 9)
    return event

pipeline = from_iterable(range(10)).pipe(adaptive_flat_map(work)).to(write_jsonl())

if __name__"""
    started = Started(tmp_path, text=SCRIPT.replace("\nif __name__", handler))
    status, said = started.ended()
    # It still lives, or this raises an error.
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert status == 0
    assert "a worker process ended by SIGKILL" in said
    assert sorted(started.output.read_text().split()) == [str(n) for n in range(10)]


def test_a_run_ends_while_a_process_that_the_parent_forked_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"""{FORKS}
def numbers():
    fork()
    yield from range(10)

pipeline = from_iterable(numbers()).pipe(adaptive_flat_map(lambda n: n)).to(write_jsonl())

if __name__"""
    started = Started(tmp_path, text=SCRIPT.replace("\nif __name__", source))
    assert started.ended() == (0, "")
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert sorted(started.output.read_text().split()) == [str(n) for n in range(10)]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(
            "class Both:\n"
            "    def write(self, text):\n"
            "        sys.__stdout__.write(text)\n"
            "    def flush(self):\n"
            "        sys.__stdout__.flush()\n"
            "sys.stdout = Both()\n",
            id="an object with only write() and flush() in place of standard output",
        ),
        pytest.param(
            "files = [open(os.devnull) for _ in range(1100)]\n",
            id="more open files than select() can watch",
        ),
    ],
)
def test_a_program_is_forked_whatever_it_has_open(tmp_path: Path, state: str) -> None:
    text = SCRIPT.replace("    report = run", "    from_here()\n    report = run")
    body = "".join(f"    {line}\n" for line in state.splitlines())
    text = text.replace(
        "\nif __name__", f"\ndef from_here():\n    global files\n{body}\nif __name__"
    )
    assert Started(tmp_path, text=text).ended() == (0, "")
