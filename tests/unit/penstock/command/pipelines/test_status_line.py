from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from penstock.command.output import use
from penstock.command.pipelines.status_line import Remaining, line, on_a_terminal
from penstock.streams.diagnostics.histogram import LatencyHistogram

Write = Callable[[str, str], Path]

NUMBERS: dict[str, Any] = {
    "state": "running",
    "progress": None,
    "in_flight": 12,
    "limit": 16,
    "limit_reason": "fixed",
    "waiting": 1030,
    "groups": 100,
    "dropped": {},
    "failed": 0,
    "bad_lines": 0,
    "closed_early": {},
    "latency": None,
}


def test_the_line_says_how_it_is_going() -> None:
    histogram = LatencyHistogram()
    histogram.record(0.001, 0.002, 0.003)
    numbers = {
        **NUMBERS,
        "dropped": {"duplicate": 9},
        "latency": {"waiting": asdict(histogram.snapshot())},
    }
    assert line(numbers, 1234.5) == (
        "1,234/s  in flight 12/16  waiting 1,030  groups 100  duplicates 9  p50 2.0 p99 3.0 ms"
    )


def test_the_line_leaves_out_what_the_pipeline_has_not_got() -> None:
    assert line({**NUMBERS, "limit": None, "limit_reason": "", "groups": None}, 0) == (
        "0/s  in flight 12/-  waiting 1,030"
    )


def test_the_line_explains_no_limit_that_is_the_users_own() -> None:
    assert line({**NUMBERS, "limit_reason": "fixed; fixed", "groups": None}, 0).endswith("1,030")
    text = line({**NUMBERS, "limit_reason": "fixed; doubling pays", "groups": None}, 0)
    assert text.endswith("(fixed; doubling pays)")


def test_the_line_says_why_the_limit_changed_last() -> None:
    assert line({**NUMBERS, "limit_reason": "doubling pays", "groups": None}, 0) == (
        "0/s  in flight 12/16  waiting 1,030  (doubling pays)"
    )


def test_the_line_shows_trouble_and_the_state() -> None:
    text = line({**NUMBERS, "failed": 2, "bad_lines": 1, "state": "draining"}, 0)
    assert text.endswith("failed 2, bad lines 1  draining")


def test_the_line_begins_with_the_part_that_is_done_and_the_time_to_the_end() -> None:
    numbers = {**NUMBERS, "progress": 0.999, "groups": None}
    assert line(numbers, 5).startswith("99%  5/s  in flight")
    assert line(numbers, 5, 6.2).startswith("99%  0:07 left  5/s  in flight")
    assert line(numbers, 5, 3723).startswith("99%  1:02:03 left")


def test_the_time_to_the_end_comes_from_the_average_speed_since_the_start() -> None:
    remaining = Remaining()
    assert remaining.seconds(10, None) is None
    # Resumed in the middle: what was done before took no time of this run.
    assert remaining.seconds(20, 0.5) is None
    assert remaining.seconds(25, 0.5) is None
    assert remaining.seconds(30, 0.75) == pytest.approx(10)
    assert remaining.seconds(40, 1.0) == 0


JOB = """
import sys
from penstock import for_each

async def work(event):
    await asyncio.sleep(0.4 * event["uuid"])
    print("a line of its own", file=sys.stderr)

pipeline = read_jsonl({path!r}).pipe(adaptive_flat_map(work)).to(for_each(lambda result: None))
"""


WAITING = """
import os

async def work(event):
    while not os.path.exists({gate!r}):
        await asyncio.sleep(0.01)
    return event

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


@pytest.mark.parametrize(("rich", "columns"), [(True, 120), (True, 40), (False, 120)])
def test_a_terminal_shows_the_line_and_then_the_report(
    script: list[str], write_file: Write, tmp_path: Path, rich: bool, columns: int
) -> None:
    # A real terminal and real time: 0.4 s of work after an event without, so that a line with
    # percentiles is due at least once.
    (tmp_path / "in.jsonl").write_text('{"uuid": 0}\n{"uuid": 1}\n')
    hide = "" if rich else "import sys; sys.modules['rich.console'] = None\n"
    path = write_file("job.py", hide + JOB.format(path=str(tmp_path / "in.jsonl")))
    status, seen = _on_a_terminal([*script, "run", str(path)], columns)
    assert status == 0
    assert ("in flight 1/" in seen) is rich
    # One of the two events, which are all of the file, is done.
    assert ("50%" in seen) is rich
    assert ("━━" in seen) is rich
    assert bool(re.search(r"p50\s+[\d.]+\s+p99\s+[\d.]+\s+ms", seen)) is rich
    advice = re.search(r"no status line without rich: pip install .*\[terminal\]", seen)
    assert (advice is None) is rich
    assert "a line of its own" in seen
    assert "2 in, 2 finished" in seen


def test_a_log_in_json_has_no_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    use(as_json=False, least=0)
    assert on_a_terminal()
    use(as_json=True, least=0)
    try:
        assert not on_a_terminal()
    finally:
        use(as_json=False, least=0)


def test_a_terminal_that_is_closed_drains(
    script: list[str], write_file: Write, tmp_path: Path
) -> None:
    gate, output = tmp_path / "gate", tmp_path / "out.jsonl"
    path = write_file("job.py", WAITING.format(gate=str(gate)))
    ours, theirs = pty.openpty()

    def take_over() -> None:
        os.setsid()
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        [*script, "run", str(path), "--output", str(output)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        preexec_fn=take_over,
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(b'{"uuid": 1}\n')
        process.stdin.flush()
        seen = b""
        # The status line is there, and will be written again.
        while b"in flight 1/" not in seen:
            seen += os.read(ours, 65536)
        os.close(ours)
        gate.touch()
        # Its input is still open.
        assert process.wait(30) == 4
    assert json.loads(output.read_text()) == {"uuid": 1}


def test_on_a_terminal_every_event_is_measured_and_the_sinks_keep_their_numbers(
    script: list[str], write_file: Write, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n" * 3)
    path = write_file(
        "job.py",
        "from penstock import for_each\n"
        "pipeline = read_jsonl().to(for_each(lambda event: None), write_jsonl())\n",
    )
    _, seen = _on_a_terminal(
        [*script, "run", str(path), "--input", str(tmp_path / "in.jsonl"), "--report", "json"]
    )
    numbers = json.loads(seen[seen.index('{"outcome"') :])["statistics"]
    assert numbers["latency"]["waiting"]["count"] == 3
    assert [(stage["stage"], stage["name"]) for stage in numbers["stages"]] == [
        (1, "read_jsonl"),
        (2, "for_each"),
        (3, "write_jsonl"),
        (4, "latency_histogram"),
    ]


def _on_a_terminal(command: list[str], columns: int = 120) -> tuple[int, str]:
    """The exit status of a process, and what it wrote to a terminal as its standard error."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(columns)},
    ) as process:
        os.close(theirs)
        seen = _read_all(ours)
        status = process.wait(30)
    os.close(ours)
    return status, seen


def _read_all(descriptor: int) -> str:
    seen = b""
    try:
        while chunk := os.read(descriptor, 65536):
            seen += chunk
    except OSError:
        # Linux reports like this that the other end is closed.
        pass
    return seen.decode()


def test_the_line_has_duplicates_only_if_there_are_any() -> None:
    assert "duplicates" not in line(NUMBERS, 1.0)
    assert "duplicates 1" in line({**NUMBERS, "dropped": {"duplicate": 1, "filter": 2}}, 1.0)
