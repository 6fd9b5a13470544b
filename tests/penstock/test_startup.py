from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Process = Callable[..., "subprocess.CompletedProcess[str]"]

# Each costs milliseconds at every start, and is for something that a plain run does not do.
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
    "streams.lift_table",
    "streams.native",
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
