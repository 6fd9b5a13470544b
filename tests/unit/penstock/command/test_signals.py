from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.streams.base.compiled import library

Write = Callable[[str, str], Path]

# Prints on standard error that an event is in work, and waits until its input says to go on.
HANDLER = """
import os, sys

async def work(event):
    print("begun", file=sys.stderr, flush=True)
    while not os.path.exists({gate!r}):
        await asyncio.sleep(0.01)
    return event

pipeline = read_jsonl().pipe(adaptive_flat_map(work, limit=(1, 1))).to(write_jsonl())
"""


class Running:
    """A command with its input held open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen = ""

    def send(self, count: int) -> None:
        assert self.process.stdin is not None
        for number in range(count):
            self.process.stdin.write(json.dumps({"uuid": number}) + "\n")
        self.process.stdin.flush()

    def wait_for(self, words: str) -> None:
        """Read standard error until it contains `words`."""
        assert self.process.stderr is not None
        while words not in self.seen:
            line = self.process.stderr.readline()
            assert line, f"it ended without saying {words!r}: {self.seen}"
            self.seen += line

    def end(self) -> tuple[int, list[str], str]:
        """Status, lines of output, and the rest of standard error."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out.splitlines(), err


@contextmanager
def _started(command: list[str]) -> Generator[Running]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_what_is_in(
    script: list[str], write_file: Write, tmp_path: Path, number: signal.Signals
) -> None:
    gate = tmp_path / "gate"
    path = write_file("job.py", HANDLER.format(gate=str(gate)))
    with _started([*script, "run", str(path)]) as running:
        running.send(5)
        running.wait_for("begun")
        running.process.send_signal(number)
        running.wait_for("draining, for at most 20 s")
        gate.touch()
        status, out, err = running.end()
    assert status == 4
    # A pipe cannot be read again, so lines that were read are finished.
    assert [json.loads(line)["uuid"] for line in out] == [0, 1, 2, 3, 4]
    assert f"{library()}: drained on a signal" in err
    assert "5 in, 5 finished" in err


def test_the_second_signal_cancels_and_says_what_was_not_finished(
    script: list[str], write_file: Write, tmp_path: Path
) -> None:
    path = write_file("job.py", HANDLER.format(gate=str(tmp_path / "never")))
    with _started([*script, "run", str(path)]) as running:
        running.send(5)
        running.wait_for("begun")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("draining")
        running.process.send_signal(signal.SIGTERM)
        status, out, err = running.end()
    assert (status, out) == (5, [])
    assert f"{library()}: cancelled after" in err
    assert "1 in, 0 finished, 1 returned" in err
    assert "not finished, by read_jsonl of standard input: 1\n" in err
    assert "read and not begun, by read_jsonl of standard input: the next 4 lines" in err
    assert "Traceback" not in err


def test_past_the_drains_deadline_work_is_cancelled(
    script: list[str], write_file: Write, tmp_path: Path
) -> None:
    path = write_file("job.py", HANDLER.format(gate=str(tmp_path / "never")))
    with _started([*script, "run", str(path), "--drain-deadline", "0.05"]) as running:
        running.send(3)
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        status, _, err = running.end()
    assert status == 5
    assert "the drain's deadline passed with" in err
    assert "1 in, 0 finished, 1 returned" in err


STUBBORN = """
import sys

async def work(event):
    print("begun", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("not me", file=sys.stderr, flush=True)

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


def test_the_third_signal_ends_even_what_cannot_be_cancelled(
    script: list[str], write_file: Write
) -> None:
    with _started([*script, "run", str(write_file("job.py", STUBBORN))]) as running:
        running.send(1)
        running.wait_for("begun")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("draining")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("not me")
        running.process.send_signal(signal.SIGINT)
        status, _, _ = running.end()
    assert status == -signal.SIGINT


BLOCKED = """
import signal, sys, time

def work(event):
    # The first two, of which the loop does not get to hear.
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
    print("begun", file=sys.stderr, flush=True)
    while True:
        time.sleep(3600)

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


def test_the_third_signal_ends_even_a_handler_that_never_lets_go_of_the_loop(
    script: list[str], write_file: Write
) -> None:
    with _started([*script, "run", str(write_file("job.py", BLOCKED))]) as running:
        running.send(1)
        running.wait_for("begun")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(10) == -signal.SIGTERM


# Sends its process a signal whenever the given function of penstock is called, or at the very end.
LATE = """
import atexit, os, signal, sys
from penstock.command.pipelines import run

def late(*args, before=None):
    os.kill(os.getpid(), {number})
    return before(*args) if before else None

if {where!r} == "exit":
    atexit.register(late)
else:
    run.{where} = lambda *args, before=run.{where}: late(*args, before=before)

pipeline = read_jsonl().to(write_jsonl())
"""


@pytest.mark.parametrize("where", ["tell", "_naming_files", "exit"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_end_of_the_run_changes_neither_report_nor_status(
    script: list[str], write_file: Write, where: str, number: signal.Signals
) -> None:
    path = write_file("job.py", LATE.format(number=int(number), where=where))
    with _started([*script, "run", str(path)]) as running:
        running.send(3)
        status, out, err = running.end()
    assert (status, len(out)) == (0, 3)
    assert err.startswith(f"{library()}: completed after")
    assert err.endswith("  events: 3 in, 3 finished\n")


def test_a_second_signal_after_the_end_of_the_run_ends_the_process_with_the_status_of_the_run(
    script: list[str], write_file: Write
) -> None:
    path = write_file(
        "job.py",
        "import threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "pipeline = read_jsonl().to(write_jsonl())\n",
    )
    with _started([*script, "run", str(path)]) as running:
        running.send(3)
        assert running.process.stdin is not None
        running.process.stdin.write("not JSON\n")
        running.process.stdin.close()
        running.wait_for("bad lines: 1")
        # The system keeps one signal of a kind, and Python does not hear at once of one that comes
        # to the other thread.
        for _ in range(100):
            running.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(0.1)
                break
        assert running.process.returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["run", "draw", "check"])
def test_a_signal_while_the_file_is_loaded_ends_with_one_line(
    script: list[str], write_file: Write, command: str, number: signal.Signals
) -> None:
    path = write_file(
        "job.py",
        "import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(60)\n",
    )
    with _started([*script, command, str(path)]) as running:
        running.wait_for("loading")
        running.process.send_signal(number)
        status, _, err = running.end()
    assert status == 128 + number
    assert err == f"penstock: ended by {number.name} before anything was begun\n"


def test_a_signal_before_the_start_is_not_reported_where_no_report_is_wanted(
    script: list[str], write_file: Write
) -> None:
    path = write_file(
        "job.py",
        "import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(60)\n",
    )
    with _started([*script, "run", str(path), "--report", "none"]) as running:
        running.wait_for("loading")
        running.process.send_signal(signal.SIGTERM)
        status, _, err = running.end()
    assert status == 128 + signal.SIGTERM
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_penstock_itself_is_imported_ends_with_one_line(
    number: signal.Signals,
) -> None:
    # Stands for a signal that comes in the middle of an import.
    code = (
        "import sys, signal\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.endswith('pipelines.flowable'): signal.raise_signal({int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['penstock', 'check', 'job.py']\n"
        "from penstock.__main__ import main\n"
        "sys.exit(main())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == 128 + number
    assert result.stderr == f"penstock: ended by {number.name} before anything was begun\n"


def test_a_signal_that_the_caller_ignores_stays_ignored(
    script: list[str], write_file: Write
) -> None:
    path = write_file(
        "job.py",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
        "pipeline = read_jsonl().to(write_jsonl())\n",
    )
    command = f"trap '' INT; exec '{script[0]}' check '{path}'"
    result = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=False)
    assert result.returncode == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_signals_that_the_caller_ignores_neither_drain_nor_cancel_a_run(
    script: list[str], write_file: Write, tmp_path: Path, workers: list[str]
) -> None:
    gate = tmp_path / "gate"
    path = write_file("job.py", HANDLER.format(gate=str(gate)))
    words = ["sh", "-c", "trap '' INT HUP TERM; exec \"$@\"", "sh", *script, "run", str(path)]
    with _started([*words, *workers]) as running:
        running.send(5)
        running.wait_for("begun")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            running.process.send_signal(number)
        running.send(5)
        gate.touch()
        status, out, err = running.end()
    assert (status, len(out)) == (0, 10)
    assert "draining" not in err


@pytest.mark.parametrize("variants", [(), ("--variant", "sequential"), ("--try", "my.py")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_kata_prints_what_was_measured(
    script: list[str], number: signal.Signals, variants: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "my.py").write_text("def consume(event):\n    event.process()\n")
    variants = tuple(word.replace("my.py", str(tmp_path / "my.py")) for word in variants)
    gate = "import sys; sys.stderr.write('begun\\n'); sys.stderr.flush()"
    code = (
        "import sys\n"
        "from penstock.command.kata.load.feed import Arrivals\n"
        "take = Arrivals.take\n"
        "def tell(self):\n"
        f"    Arrivals.take = take; {gate}\n"
        "    return take(self)\n"
        "Arrivals.take = tell\n"
        f"sys.argv = ['penstock', 'kata', '--seconds', '600', *{variants!r}]\n"
        "from penstock.__main__ import main\n"
        "sys.exit(main())"
    )
    with _started([sys.executable, "-c", code]) as running:
        running.wait_for("begun")
        running.process.send_signal(number)
        status, out, err = running.end()
    assert status == 128 + number
    assert out[0].startswith("1,000 events/s for 600 s")
    row = (
        {"--variant": "sequential", "--try": str(tmp_path)}[variants[0]] if variants else "penstock"
    )
    assert any(line.startswith(row) for line in out)
    assert err.endswith(f"penstock: ended by {number.name} before the load's end\n")


def test_results_are_out_before_the_input_ends(script: list[str], pipeline_file: Path) -> None:
    with _started([*script, "run", str(pipeline_file)]) as running:
        assert running.process.stdin is not None
        assert running.process.stdout is not None
        running.process.stdin.write('{"uuid": 1, "client_id": 1}\n')
        running.process.stdin.flush()
        # Blocks until the line is out, while the input stays open.
        assert json.loads(running.process.stdout.readline())["uuid"] == 1
        assert running.process.poll() is None
        os.kill(running.process.pid, signal.SIGTERM)
        status, _, _ = running.end()
    assert status == 4


# A thread that waits for a file which never comes: nothing can interrupt it.
STUCK = """
import sys, threading
from penstock import in_threads

def work(event):
    print("begun", file=sys.stderr, flush=True)
    threading.Event().wait()

pipeline = read_jsonl().pipe(adaptive_flat_map(in_threads(1)(work))).to(write_jsonl())
"""


def test_a_thread_that_never_ends_keeps_neither_the_report_nor_the_process(
    script: list[str], write_file: Write
) -> None:
    path = write_file("job.py", STUCK)
    with _started([*script, "run", str(path)]) as running:
        running.send(1)
        running.wait_for("begun")
        running.process.send_signal(signal.SIGINT)
        running.wait_for("draining")
        running.process.send_signal(signal.SIGINT)
        status, _, err = running.end()
    assert status == 5
    assert "1 in, 0 finished" in err
