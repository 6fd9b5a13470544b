from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from penstock import Fixed, Report, adaptive_flat_map, in_processes
from penstock.streams.base.errors import BuildError, NotPicklable, RaisedInWorker
from penstock.streams.testing import MemorySink, MemorySource, VirtualTimeLoop

# The handlers are functions of a module that a fresh process can import.
HANDLERS = """
import os
import signal
import threading

from penstock import in_processes

def where(value):
    return value, os.getpid()

def dies_of_two(value):
    if value == 2:
        os._exit(3)
    return value

def is_killed(value):
    os.kill(os.getpid(), signal.SIGKILL)

def is_signalled(number):
    os.kill(os.getpid(), number)
    return number

def unpicklable(value):
    return (lambda: value) if value == 1 else value

def fails(value):
    raise ValueError(value)

class OfTwo(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")

class Locked(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()

class Unreadable:
    def __reduce__(self):
        return {}.__getitem__, ("lost",)

def fails_oddly(value):
    if value == 1:
        raise OfTwo(value, 2)
    if value == 2:
        raise Locked("closed")
    return Unreadable() if value == 3 else value

@in_processes(1)
def decorated(value):
    return value, os.getpid()
"""


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module of plain functions, importable here and in the processes."""
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "penstock_test_handlers.py").write_text(HANDLERS)
    sys.path.insert(0, str(folder))
    import penstock_test_handlers as module

    yield module
    sys.path.remove(str(folder))


def run(
    loop: VirtualTimeLoop, handler: Any, source: MemorySource[Any], **options: Any
) -> tuple[list[Any], Report]:
    async def story() -> tuple[list[Any], Report]:
        sink = MemorySink()
        operator = adaptive_flat_map(in_processes(1)(handler), Fixed(1), **options)
        # Time stands still: processes take real time, about 0.1 s to start.
        with loop.hold():
            report = await source.pipe(operator).to(sink).run()
        return sink.values, report

    return loop.run_until_complete(story())


def test_calls_run_in_another_process_which_ends_with_the_running(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    values, _ = run(virtual_loop, handlers.where, MemorySource(range(3)))
    assert [value for value, _ in values] == [0, 1, 2]
    (pid,) = {pid for _, pid in values}
    assert pid != os.getpid()
    assert not Path(f"/proc/{pid}").exists() or sys.platform != "linux"
    assert not [thread for thread in threading.enumerate() if "Executor" in thread.name]


def test_a_handler_may_be_decorated(virtual_loop: VirtualTimeLoop, handlers: Any) -> None:
    async def story() -> Any:
        with virtual_loop.hold():
            return await handlers.decorated(7)

    value, pid = virtual_loop.run_until_complete(story())
    assert value == 7
    assert pid != os.getpid()


def test_a_process_that_dies_fails_its_call_and_later_ones_get_a_new_one(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    source = MemorySource(range(5))
    values, report = run(virtual_loop, handlers.dies_of_two, source, on_error="skip")
    assert values == [0, 1, 3, 4]
    assert report.statistics["failed"] == 1


def test_a_process_that_dies_is_an_error_with_a_name(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    source = MemorySource(range(5))
    with pytest.raises(BrokenProcessPool) as raised:
        run(virtual_loop, handlers.dies_of_two, source)
    assert "has died (exit status 3)" in str(raised.value)
    assert "this one of 'dies_of_two' among them" in str(raised.value)
    assert raised.value.__notes__ == ["in stage 2 'adaptive_flat_map', on the event 2"]
    assert source.failed == [2]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_process_that_is_killed_is_reported_by_its_signal(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    with pytest.raises(BrokenProcessPool, match=r"has died \(SIGKILL, as .* memory runs out\)"):
        run(virtual_loop, handlers.is_killed, MemorySource([1]))


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_call_goes_on_when_a_terminal_signals_all_processes(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    numbers = [signal.SIGINT, signal.SIGHUP]
    values, _ = run(virtual_loop, handlers.is_signalled, MemorySource(numbers))
    assert values == numbers


def test_what_cannot_be_pickled_fails_its_own_call_only(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    # A result, and then a value.
    source: MemorySource[Any] = MemorySource([0, 1, lambda: None, 3])
    values, report = run(virtual_loop, handlers.unpicklable, source, on_error="skip")
    assert values == [0, 3]
    assert report.statistics["failed"] == 2


@pytest.mark.parametrize(
    ("value", "said"), [(1, "The result of 'unpicklable'"), (lambda: None, "The value")]
)
def test_what_cannot_be_pickled_is_named_in_one_line_without_an_executors_traceback(
    virtual_loop: VirtualTimeLoop, handlers: Any, value: Any, said: str
) -> None:
    with pytest.raises(NotPicklable) as raised:
        run(virtual_loop, handlers.unpicklable, MemorySource([value]))
    (message,) = str(raised.value).splitlines()
    assert message.startswith(f"{said} cannot go to another process: ")
    assert "takes and returns plain data" in message


def test_a_handler_that_cannot_be_pickled_is_refused_by_the_stage_that_gets_it() -> None:
    def local(value: int) -> int:
        return value

    for handler, name in ((lambda value: value, "<lambda>"), (local, "local")):
        with pytest.raises(BuildError) as raised:
            adaptive_flat_map(in_processes(2)(handler))
        (message,) = str(raised.value).splitlines()
        assert message.startswith(f"adaptive_flat_map(in_processes(...)({name})): another process")
        assert "at the top level of a module" in message
        assert raised.value.__suppress_context__


def test_an_error_keeps_its_type(virtual_loop: VirtualTimeLoop, handlers: Any) -> None:
    with pytest.raises(ValueError, match="7"):
        run(virtual_loop, handlers.fails, MemorySource([7]))


def test_an_error_that_is_hard_to_pickle_fails_its_own_call_only(
    virtual_loop: VirtualTimeLoop, handlers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = MemorySource(range(5))
    values, report = run(virtual_loop, handlers.fails_oddly, source, on_error="skip")
    assert values == [0, 4]
    assert report.statistics["errors"] == {"OfTwo": 1, "JobFailed": 1, "NotPicklable": 1}
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[0] for line in said] == [
        "OfTwo: 1 and 2",
        "JobFailed: Locked: 'closed'",
        "NotPicklable: The result of 'fails_oddly' cannot be read by the process that gets it, "
        "KeyError: 'lost'",
    ]


def test_the_cause_of_an_error_is_its_traceback_in_the_process(
    virtual_loop: VirtualTimeLoop, handlers: Any
) -> None:
    with pytest.raises(ValueError, match="7") as raised:
        run(virtual_loop, handlers.fails, MemorySource([7]))
    assert isinstance(raised.value.__cause__, RaisedInWorker)
    assert "raise ValueError(value)" in str(raised.value.__cause__)


def test_at_least_one_process_is_needed() -> None:
    with pytest.raises(BuildError, match="at least 1"):
        in_processes(0)


IN_NO_FILE = """
from penstock import adaptive_flat_map, in_processes
from penstock import collect
from penstock import from_iterable, run

def double(n):
    return n * 2

try:
    run(from_iterable([1]).pipe(adaptive_flat_map(in_processes(1)(double))).to(collect([])))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_handler_of_a_script_without_a_file_is_refused_in_one_line_that_says_what_to_do() -> None:
    command = [sys.executable, "-"]
    done = subprocess.run(command, input=IN_NO_FILE, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith("BuildError adaptive_flat_map(in_processes(...)(double)): other")
    assert line.endswith("Write it to a module, and import it from there")
