"""Worker processes of programs that have a loop: fresh processes, which import the pipeline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.system.children import children_of, wait_until_gone

MODULE = """
import asyncio, json, os, sys, threading, time
from penstock import *

def work(number):
    time.sleep(SECONDS)
    return {"number": number, "client": number % 10, "by": os.getpid()}

def numbers():
    print("source", os.getpid(), file=sys.stderr)
    yield from range(EVENTS)

stream = from_iterable(numbers()).pipe(
    group_by(lambda number: number % 10), spread(), adaptive_flat_map(work)
)
"""
EMBEDDED = (
    MODULE
    + """
pipeline = stream.to(write_jsonl("output.jsonl", append=True))

async def main():
    report = await pipeline.run(workers=2)
    print(report.outcome, report.statistics["finished"])

if __name__ == "__main__":
    asyncio.run(main())
"""
)


class Program:
    """A program, `main.py`, in a folder of its own."""

    def __init__(
        self, folder: Path, text: str = EMBEDDED, *, events: int = 500, seconds: float = 0.0005
    ) -> None:
        self.output = folder / "output.jsonl"
        self.output.touch()
        (folder / "main.py").write_text(f"EVENTS, SECONDS = {events}, {seconds}\n{text}")
        self.folder = folder
        self.start("main.py")

    def start(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def results(self) -> list[dict[str, int]]:
        lines = self.output.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def wait_for_results(self, number: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.results()) < number:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ended(self) -> tuple[int, str, str]:
        out, said = self.process.communicate(timeout=60)
        return self.process.returncode, out, said


def test_a_pipeline_in_a_running_loop_uses_all_workers_and_keeps_the_order_of_each_key(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    status, out, said = program.ended()
    assert (status, out) == (0, "completed 500\n")
    results = program.results()
    assert len({result["by"] for result in results}) == 2
    assert program.process.pid not in {result["by"] for result in results}
    for client in range(10):
        of_one = [result["number"] for result in results if result["client"] == client]
        assert of_one == list(range(client, 500, 10))
    # Nothing but the parent opens the source.
    assert said == f"source {program.process.pid}\n"


@pytest.mark.parametrize("arguments", [["-m", "main"], ["app.py"]])
def test_a_pipeline_is_found_in_the_program_and_in_a_module_that_it_imports(
    tmp_path: Path, arguments: list[str]
) -> None:
    # It could not be imported: it has no guard.
    (tmp_path / "app.py").write_text("import asyncio, main\nasyncio.run(main.main())\n")
    program = Program(tmp_path)
    program.ended()
    program.start(*arguments)
    assert program.ended()[:2] == (0, "completed 500\n")


def test_values_of_a_class_of_the_program_come_back_as_that_class(tmp_path: Path) -> None:
    text = """
class Order:
    def __init__(self, number):
        self.number = number

def work(order):
    return Order(order.number + 1)

seen = []
pipeline = from_iterable(map(Order, range(3))).pipe(adaptive_flat_map(work)).to(collect(seen))

if __name__ == "__main__":
    asyncio.run(pipeline.run(workers="auto"))
    print(sorted(type(order) is Order and order.number for order in seen))
"""
    assert Program(tmp_path, MODULE + text).ended()[:2] == (0, "[1, 2, 3]\n")


def test_a_spawned_worker_that_is_killed_loses_nothing(tmp_path: Path, run_seed: int) -> None:
    program = Program(tmp_path, events=2000)
    program.wait_for_results(100 + 100 * (run_seed % 5))
    os.kill(children_of(program.process.pid)[run_seed % 2], signal.SIGKILL)
    status, out, said = program.ended()
    assert (status, out) == (0, "completed 2000\n")
    assert "a worker process ended by SIGKILL" in said
    assert sorted(result["number"] for result in program.results()) == list(range(2000))


@pytest.mark.parametrize("kernel_helps", [True, False])
def test_spawned_workers_end_with_their_parent_even_if_a_handler_never_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_helps: bool
) -> None:
    if not kernel_helps:
        (tmp_path / "sitecustomize.py").write_text(
            "from penstock.streams.runtime.process import lifeline\n"
            "lifeline._ask_the_kernel = lambda: None\n"
        )
        monkeypatch.setenv(
            "PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        )
    never = """
def work(number):
    open("output.jsonl", "a").write("{}\\n")
    while True:
        pass
"""
    program = Program(tmp_path, EMBEDDED.replace("\ndef numbers", never + "\ndef numbers"))
    program.wait_for_results(2)
    workers = children_of(program.process.pid)
    assert len(workers) == 2
    program.process.kill()
    program.process.communicate(timeout=60)
    wait_until_gone(workers)


def test_a_spawned_worker_that_is_killed_is_missed_while_a_process_that_it_forked_lives(
    tmp_path: Path,
) -> None:
    forks = """
import signal

def work(number):
    if number == 30 and not os.path.exists("child"):
        child = os.fork()
        if child:
            open("child", "w").write(str(child))
            os.kill(os.getpid(), 9)
        os.closerange(0, 3)
        signal.pause()
    return {"number": number}
"""
    program = Program(tmp_path, EMBEDDED.replace("\ndef numbers", forks + "\ndef numbers"))
    status, out, said = program.ended()
    # It still lives, or this raises an error.
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert (status, out) == (0, "completed 500\n")
    assert "a worker process ended by SIGKILL" in said


def test_a_spawned_worker_that_is_killed_is_missed_while_a_program_that_it_started_lives(
    tmp_path: Path,
) -> None:
    starts = """
def work(number):
    if number == 30 and not os.path.exists("child"):
        # No fork of Python's: the program gets all that is open and may be inherited.
        os.system("exec sleep 60 < /dev/null > /dev/null 2>&1 & echo $! > child")
        os.kill(os.getpid(), 9)
    return {"number": number}
"""
    program = Program(tmp_path, EMBEDDED.replace("\ndef numbers", starts + "\ndef numbers"))
    status, out, said = program.ended()
    # It still lives, or this raises an error.
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert (status, out) == (0, "completed 500\n")
    assert "a worker process ended by SIGKILL" in said


def test_a_module_of_the_working_directory_is_not_imported_by_a_worker_of_a_script_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "pickle.py").write_text("raise ImportError('not this one')")
    script = tmp_path / "elsewhere"
    script.mkdir()
    program = Program(script)
    program.ended()
    program.folder = tmp_path
    program.start("elsewhere/main.py")
    assert program.ended()[:2] == (0, "completed 500\n")


def test_a_program_without_a_guard_is_told_so_once(tmp_path: Path) -> None:
    program = Program(tmp_path, EMBEDDED.replace('if __name__ == "__main__"', "if True"))
    status, _, said = program.ended()
    assert status == 1
    assert said.count('code for scripts only under `if __name__ == "__main__":`') == 1
    assert program.results() == []


def test_a_module_that_differs_in_its_workers_stops_the_pipeline(tmp_path: Path) -> None:
    differs = 'if __name__ == "__mp_main__": stream = stream.pipe(adaptive_flat_map(work))\n'
    text = EMBEDDED.replace("pipeline = stream", differs + "pipeline = stream")
    status, _, said = Program(tmp_path, text).ended()
    assert status == 1
    assert "the pipeline 'pipeline' has other stages there" in said


def test_a_worker_that_ends_while_it_imports_the_pipeline_stops_it(tmp_path: Path) -> None:
    ends = 'if __name__ == "__mp_main__": os._exit(7)\n'
    status, _, said = Program(tmp_path, EMBEDDED + ends).ended()
    assert status == 1
    assert "a worker process has ended while it imported the pipeline, exit status 7" in said


def test_a_worker_that_hangs_at_the_end_is_killed(tmp_path: Path) -> None:
    hangs = """
import threading, time
from penstock.streams.workers.processes import spawned
spawned._PATIENCE = 0.2
if __name__ == "__mp_main__": threading.Thread(target=time.sleep, args=[60]).start()
"""
    assert Program(tmp_path, hangs + EMBEDDED).ended()[:2] == (0, "completed 500\n")


def test_a_worker_has_no_socket_of_another_one(tmp_path: Path) -> None:
    sockets = """
def work(number):
    fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    found = {os.readlink(fd) for fd in fds if os.path.exists(fd) or os.path.islink(fd)}
    return [name for name in found if name.startswith("socket")]
"""
    program = Program(tmp_path, EMBEDDED.replace("\ndef numbers", sockets + "\ndef numbers"))
    program.ended()
    found = {tuple(sorted(names)) for names in map(tuple, program.results())}
    mine = [set(names) for names in found]
    assert mine[0].isdisjoint(mine[1])


SCRIPT = """
pipeline = stream.to(write_jsonl("output.jsonl", append=True))

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=[1], name="clock").start()
    print(run(pipeline, workers=2).outcome)
"""


def test_a_script_with_a_thread_is_not_forked(tmp_path: Path) -> None:
    program = Program(tmp_path, MODULE + SCRIPT)
    assert program.ended()[:2] == (0, "completed\n")
    assert len({result["by"] for result in program.results()}) == 2


def test_a_script_with_a_thread_and_a_pipeline_without_a_name_is_told_what_to_do(
    tmp_path: Path,
) -> None:
    text = SCRIPT.replace("run(pipeline", "run(stream.to(collect([]))")
    status, _, said = Program(tmp_path, MODULE + text).ended()
    assert status == 1
    assert "workers= in a process with threads (clock) starts processes" in said


def test_signals_to_all_processes_while_workers_start_are_for_the_parent(tmp_path: Path) -> None:
    signalled = """
import os
from penstock.streams.workers.processes import spawned
original = spawned._started

def started(end):
    process = original(end)
    os.killpg(0, 2)
    return process

spawned._started = started
"""
    text = signalled + MODULE + SCRIPT.replace("workers=2", "workers=1")
    status, out, said = Program(tmp_path, text).ended()
    assert (status, out) == (0, "drained\n")
    assert "KeyboardInterrupt" not in said
    assert "ended by" not in said


STARTS_A_PROGRAM = """
import subprocess

SAYS = '''
import signal
print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT).__name__)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), repr(open(0).read()))
'''

def work(number):
    return subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True).stdout
"""


@pytest.mark.parametrize("start", ["asyncio.run(main())", "run(pipeline, workers=2)"])
def test_a_program_that_a_handler_starts_gets_its_signals_and_no_input(
    tmp_path: Path, start: str
) -> None:
    text = EMBEDDED.replace("\ndef numbers", STARTS_A_PROGRAM + "\ndef numbers")
    program = Program(tmp_path, text.replace("asyncio.run(main())", start), events=1)
    program.ended()
    said: list[object] = list(program.results())
    assert said == ["0 default_int_handler\nset() ''\n"]
