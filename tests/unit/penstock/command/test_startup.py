from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Process = Callable[..., "subprocess.CompletedProcess[str]"]

# Each costs milliseconds at every start, and is for something that a plain run does not need.
SLOW = {
    "gzip",
    "hdrh",
    "importlib.metadata",
    "json",
    "multiprocessing",
    "pathlib",
    "random",
    "reactivex.operators",
    "rich",
    "shutil",
    "penstock.streams.execution.batch_stage",
    "penstock.streams.nats.client.connection",
    "penstock.streams.nats.streams.reading",
    "penstock.streams.nats.streams.writing",
    "penstock.streams.rx.table",
    "penstock.streams.rx.map_filter",
    "penstock.streams.temporal",
    "penstock.streams.work_pulling.in_process",
    "penstock.streams.work_pulling.wire",
    "sysconfig",
}


def test_a_plain_run_imports_nothing_slow_that_it_does_not_use(
    process: Process, pipeline_file: Path
) -> None:
    code = (
        "import sys, asyncio, uvloop, orjson, reactivex\n"
        "before = set(sys.modules)\n"
        "from penstock.__main__ import main\n"
        f"status = main(['run', {str(pipeline_file)!r}])\n"
        "print(status, sorted(set(sys.modules) - before))"
    )
    result = process([sys.executable, "-c", code], input="")
    status, _, modules = result.stdout.partition(" ")
    assert status == "0"
    assert SLOW & set(eval(modules)) == set()


COUNTS_WHAT_IS_FROZEN = """
async def frozen(event):
    return gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 10_000

pipeline = read_jsonl().pipe(adaptive_flat_map(frozen)).to(write_jsonl())
"""


def test_where_nothing_else_runs_the_collector_comes_seldom_and_leaves_out_what_is_loaded(
    process: Process, write_file: Callable[[str, str], Path]
) -> None:
    file = write_file("frozen.py", "import gc\n" + COUNTS_WHAT_IS_FROZEN)
    result = process([sys.executable, "-m", "penstock", "run", str(file)], input="{}\n")
    assert result.stdout == "[true,true]\n"


def test_a_run_within_another_program_leaves_its_collector_alone(
    process: Process, write_file: Callable[[str, str], Path]
) -> None:
    file = write_file("frozen.py", "import gc\n" + COUNTS_WHAT_IS_FROZEN)
    code = f"from penstock.__main__ import main; main(['run', {str(file)!r}])"
    result = process([sys.executable, "-c", code], input="{}\n")
    assert result.stdout == "[false,false]\n"
