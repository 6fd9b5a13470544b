from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Fixed,
    Pipeline,
    adaptive_flat_map,
    collect,
    distinct_within,
    from_async_iterable,
    from_iterable,
    group_by,
    latency_histogram,
    read_jsonl,
    spread,
    write_jsonl,
)
from penstock import run as run_script
from penstock.streams.base.errors import BuildError
from penstock.streams.runtime.process.os_signals import DRAINING, drain_on_signals
from penstock.streams.testing import CountedSource, MemorySink, MemorySource
from penstock.streams.testing.plugin import Run

ROOT = Path(__file__).parents[3]


async def second(value: Any) -> Any:
    return await asyncio.sleep(1, value)


# A value.


def test_a_pipeline_is_immutable() -> None:
    pipeline = from_iterable([1]).to(MemorySink())
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline.sinks = ()  # type: ignore[misc]


def test_a_pipeline_can_be_run_many_times(run: Run) -> None:
    into: list[int] = []
    pipeline = from_iterable([1, 2]).pipe(adaptive_flat_map(second, Fixed(2))).to(collect(into))

    async def story() -> None:
        first = await pipeline.run()
        again = await pipeline.run()
        assert first.statistics == again.statistics
        await asyncio.gather(pipeline.run(), pipeline.run())

    run(story())
    assert into == [1, 2] * 4


def test_building_starts_nothing() -> None:
    source, sink = CountedSource([1, 2]), MemorySink()
    pipeline = source.pipe(adaptive_flat_map(second)).to(sink)
    assert repr(pipeline) == "<Pipeline counted > adaptive_flat_map > memory>"
    assert [stage.number for stage in pipeline.describe()] == [1, 2, 3]
    assert (source.emitted, sink.closed) == (0, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: from_iterable([1]).to(),
        lambda: from_iterable([1]).to(print),  # type: ignore[arg-type]
        lambda: from_iterable([{}]).pipe(group_by("k")).to(MemorySink()),
    ],
)
def test_anything_but_a_pipeline_is_refused(make: Any) -> None:
    with pytest.raises(BuildError):
        make()


def test_run_reports(run: Run) -> None:
    report = run(MemorySource([1, 2]).to(MemorySink()).run())
    assert (report.outcome, report.exit_status, report.error) == ("completed", 0, None)
    assert report.statistics["finished"] == 2


# Scripts.


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_script_runs_on_uvloop_and_without_it_on_the_standard_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loop: str
) -> None:
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    loops: list[str] = []

    async def look(value: Any) -> Any:
        loops.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])
        return await asyncio.sleep(0, value)

    stream = read_jsonl(tmp_path / "in.jsonl").pipe(adaptive_flat_map(look))
    report = run_script(stream.to(write_jsonl(tmp_path / "out.jsonl")))
    assert report.statistics["finished"] == 2
    assert loops == [loop, loop]
    assert (tmp_path / "out.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


def test_a_scripts_error_is_raised() -> None:
    def fails(value: int) -> None:
        raise ValueError(value)

    with pytest.raises(ValueError, match="7"):
        run_script(from_iterable([7]).pipe(adaptive_flat_map(fails)).to(MemorySink()))


def test_a_script_may_run_in_a_thread_where_no_signals_come() -> None:
    reports: list[Any] = []
    pipeline = from_iterable([7]).to(MemorySink())
    thread = threading.Thread(target=lambda: reports.append(run_script(pipeline)))
    thread.start()
    thread.join(10)
    assert [report.exit_status for report in reports] == [0]


def test_a_scripts_own_signal_handlers_are_back_afterwards() -> None:
    def mine(number: int, frame: Any) -> None:
        raise AssertionError

    before = {n: signal.signal(n, mine) for n in DRAINING}
    try:
        run_script(from_iterable([7]).to(MemorySink()))
        assert [signal.getsignal(n) for n in before] == [mine] * len(DRAINING)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Signals, sent by the process to itself; the loop is the real one, and waits for nothing else.


def endless() -> Any:
    async def numbers() -> Any:
        n = 0
        while True:
            yield n
            n += 1
            await asyncio.sleep(0)

    return from_async_iterable(numbers)


@pytest.mark.parametrize("number", DRAINING)
def test_the_first_signal_drains(number: signal.Signals) -> None:
    def signals(value: int) -> int:
        if value == 10:
            os.kill(os.getpid(), number)
        return value

    sink = MemorySink()
    report = run_script(endless().pipe(adaptive_flat_map(signals)).to(sink))
    assert (report.outcome, report.exit_status) == ("drained", 4)
    assert report.statistics["in"] == report.statistics["finished"] == len(sink.values)


def test_the_second_signal_cancels() -> None:
    async def hangs(value: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(100)

    source = MemorySource([1, 2, 3])
    report = run_script(source.pipe(adaptive_flat_map(hangs, Fixed(1))).to(MemorySink()))
    assert (report.outcome, report.exit_status) == ("cancelled", 5)
    assert source.returned == [1]


hangups = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="terminals of POSIX")


@hangups
def test_a_further_hangup_does_not_cancel() -> None:
    # The kernel and the shell send one each when a terminal is closed.
    async def closes(value: int) -> int:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
        return value

    sink = MemorySink()
    report = run_script(endless().pipe(adaptive_flat_map(closes, Fixed(1))).to(sink))
    assert (report.outcome, report.exit_status) == ("drained", 4)
    assert report.statistics["in"] == len(sink.values)


@hangups
def test_an_ignored_hangup_stays_ignored() -> None:
    def closes(value: int) -> Any:
        os.kill(os.getpid(), signal.SIGHUP)
        return signal.getsignal(signal.SIGHUP)

    sink = MemorySink()
    # As `nohup` does it.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        report = run_script(from_iterable([1]).pipe(adaptive_flat_map(closes)).to(sink))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert report.outcome == "completed"
    assert sink.values == [signal.SIG_IGN]


@pytest.mark.skipif(not hasattr(signal, "SIGCONT"), reason="job control of POSIX")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_process_that_was_stopped_has_not_blocked_its_loop(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def stops(value: int) -> int:
        # Real time, for the processor's clocks do not stop either: from Ctrl-Z to `fg`.
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGCONT)
        return value

    async def stops_later(value: int) -> int:
        await asyncio.sleep(0)
        return stops(value)

    before = signal.getsignal(signal.SIGCONT)
    working = adaptive_flat_map(stops_later if is_async else stops, Fixed(1))
    run_script(from_iterable([1]).pipe(working).to(MemorySink()))
    assert [record.getMessage() for record in caplog.records] == []
    assert signal.getsignal(signal.SIGCONT) is before


def test_a_signal_after_a_stop_does_not_hide_the_error(run: Run) -> None:
    async def fails(value: int) -> None:
        await asyncio.sleep(value)
        raise ValueError(value)

    async def story() -> None:
        flow = MemorySource([1, 9]).pipe(adaptive_flat_map(fails, Fixed(2)))
        running = flow.to(MemorySink()).start()
        await asyncio.sleep(2)
        running.begin_drain(5, by_signal=True)
        with pytest.raises(ValueError, match="1"):
            await running.wait()
        assert running.report().outcome == "stopped"
        # The earlier of the two deadlines.
        assert asyncio.get_running_loop().time() == 7

    run(story())


def test_the_effect_of_a_signal_is_reported() -> None:
    told: list[str] = []

    async def story() -> None:
        running = endless().pipe(adaptive_flat_map(second, Fixed(1))).to(MemorySink()).start()
        with drain_on_signals(running, 20, told.append):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.01)
            await running.wait()

    asyncio.run(story())
    assert told == ["draining, for at most 20 s; another signal cancels", "cancelling"]


def test_a_third_signal_ends_the_process() -> None:
    script = """
        import asyncio, os, signal
        from penstock import adaptive_flat_map
        from penstock import Fixed, from_iterable, run
        from penstock.streams.testing import MemorySink

        async def stubborn(value):
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
                await asyncio.sleep(0.05)

        async def other(value):
            await asyncio.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)

        work = lambda n: stubborn(n) if n else other(n)
        run(from_iterable([1, 0]).pipe(adaptive_flat_map(work, Fixed(2))).to(MemorySink()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr.decode()


# Real time and the real loop, for a moment.


def test_smoke_the_whole_kata_runs_on_the_real_loop() -> None:
    at_work: set[int] = set()
    order: dict[int, list[int]] = {}

    async def project(event: dict[str, Any]) -> dict[str, Any]:
        client = event["client_id"]
        assert client not in at_work
        at_work.add(client)
        await asyncio.sleep(0.001)
        at_work.discard(client)
        order.setdefault(client, []).append(event["n"])
        return event

    events = [{"uuid": f"u{i % 990}", "client_id": 1000 + i % 100, "n": i} for i in range(1000)]
    into: list[dict[str, Any]] = []
    latencies: list[Any] = []
    pipeline: Pipeline = (
        from_iterable(events)
        .pipe(
            distinct_within(10, by="uuid"),
            group_by("client_id"),
            spread(),
            adaptive_flat_map(project),
        )
        .to(collect(into), latency_histogram(None, report=latencies.append))
    )
    report = run_script(pipeline)
    assert report.exit_status == 0
    assert report.statistics["dropped"] == {"duplicate": 10}
    assert report.statistics["finished"] == len(into) == 990
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert latencies[-1]["total"].count == 990


# A run that nobody awaits.


def script(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script with a `pipeline`, and return its output."""
    begin = """
        import asyncio
        from penstock import for_each
        from penstock import from_iterable, run
        pipeline = from_iterable([1, 2]).to(for_each(print))
    """
    path = folder / "script.py"
    path.write_text(textwrap.dedent(begin) + textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, "-W", "error", path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_script_that_runs_nothing_says_so_and_what_to_write(tmp_path: Path) -> None:
    done = script("others = [pipeline]", tmp_path)
    assert done.stderr == (
        "penstock: nothing ran: script.py makes 'pipeline', and does not run it. `penstock run "
        "script.py` does; or write `run(pipeline)` in the file, under "
        '`if __name__ == "__main__":`.\n'
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(len(pipeline.describe()))", "2\n"),
        ("print(pipeline)", "<Pipeline from_iterable > for_each>\n"),
        ("asyncio.run(from_iterable([3]).to_list())", ""),
        ("del pipeline", ""),
    ],
    ids=["described", "printed", "a stream is read", "none is left"],
)
def test_a_script_that_uses_what_it_has_made_is_told_nothing(
    code: str, said: str, tmp_path: Path
) -> None:
    done = script(code, tmp_path)
    assert (done.stdout, done.stderr) == (said, "")


def test_a_script_that_fails_before_it_runs_anything_shows_only_its_error(tmp_path: Path) -> None:
    done = script("raise ValueError(7)", tmp_path)
    assert done.stderr.splitlines()[-1] == "ValueError: 7"


@pytest.mark.parametrize(
    "code",
    [
        "sys.exit(2)",
        "sys.exit()",
        "raise SystemExit",
        "def main():\n    try:\n        sys.exit(2)\n    finally:\n        pass\nmain()",
        "with contextlib.suppress(ValueError): sys.exit(2)",
    ],
)
def test_a_script_that_exits_before_it_runs_anything_is_told_nothing(
    code: str, tmp_path: Path
) -> None:
    done = script("import contextlib, sys\n" + code, tmp_path)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "code",
    [
        "if len(sys.argv) > 1:\n    sys.exit(2)",
        "with contextlib.suppress(SystemExit): sys.exit(2)",
        "for n in range(3): pass\nelse: n = 4",
        "def made(): return from_iterable([3]).to(for_each(print))\nother = made()",
    ],
)
def test_a_script_that_runs_to_its_end_is_told_that_nothing_ran(code: str, tmp_path: Path) -> None:
    done = script("import contextlib, sys\n" + code, tmp_path)
    assert "nothing ran" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "pipeline.run()",
        "left = pipeline.run()",
        "async def main(): pipeline.run()\nasyncio.run(main())",
    ],
    ids=["at once", "at the end", "in a loop"],
)
def test_a_run_that_nobody_awaits_says_in_one_line_what_to_write(code: str, tmp_path: Path) -> None:
    done = script(code, tmp_path)
    (line,) = done.stderr.splitlines()
    assert line == (
        "penstock: <Pipeline from_iterable > for_each> was never run: pipeline.run() only makes "
        "a run, which must be awaited. Write `run(pipeline)` in a script, `await pipeline.run()` "
        "in a loop."
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    "code",
    [
        "run(pipeline)",
        "asyncio.run(pipeline.run())",
        "loop = asyncio.new_event_loop()\nloop.run_until_complete(pipeline.run())\nloop.close()",
        "async def main(): await pipeline.run()\nasyncio.run(main())",
        "async def main(): await asyncio.create_task(pipeline.run())\nasyncio.run(main())",
        "async def main(): await asyncio.gather(pipeline.run())\nasyncio.run(main())",
        "async def main(): await asyncio.wait_for(pipeline.run(), 9)\nasyncio.run(main())",
        "async def main():\n    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(pipeline.run())\nasyncio.run(main())",
        "async def main(): pipeline.run().close()\nasyncio.run(main())\nprint('1\\n2')",
    ],
)
def test_a_run_goes_wherever_a_coroutine_does(code: str, tmp_path: Path) -> None:
    done = script(code, tmp_path)
    assert (done.stdout, done.stderr) == ("1\n2\n", "")


def test_run_takes_the_pipeline_and_not_something_else() -> None:
    with pytest.raises(BuildError, match=r"run\(pipeline\)"):
        run_script(from_iterable([1]))  # type: ignore[arg-type]
