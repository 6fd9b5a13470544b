"""The command for tests: in this process if that is enough, else in a separate one."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.__main__ import main

SOURCE = """
import asyncio
from penstock import adaptive_flat_map, distinct_within, group_by, spread
from penstock import write_jsonl
from penstock import read_jsonl

async def work(event):
    await asyncio.sleep(0)
    return {"uuid": event["uuid"], "client_id": event["client_id"]}

pipeline = read_jsonl().pipe(
    distinct_within(10, by="uuid"),
    group_by("client_id"),
    spread(),
    adaptive_flat_map(work),
).to(write_jsonl())
"""


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Path:
    """A file with the main job's pipeline, in a new folder."""
    path = tmp_path / "job.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a pipeline file: its name and what follows the imports of the main job."""

    def write(name: str, rest: str) -> Path:
        path = tmp_path / name
        path.write_text(SOURCE.partition("async def work")[0] + rest)
        return path

    return write


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what loading a file does to a process, which otherwise ends with it."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    log = logging.getLogger("penstock")
    handlers, propagate = list(log.handlers), log.propagate
    yield
    log.handlers[:], log.propagate = handlers, propagate
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name == "penstock_pipeline_file" or "pytest-of" in file:
            del sys.modules[name]


@pytest.fixture
def penstock(clean: None, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command in this process."""

    def run(*words: object) -> Result:
        arguments = [str(word) for word in words]
        # As in a separate process, where logging is not set up: pytest has set it up here.
        log = logging.getLogger("penstock")
        log.handlers[:], log.propagate = [], False
        try:
            # A new context, as in a new process.
            status = copy_context().run(main, arguments)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        finally:
            asyncio.set_event_loop(None)
        out, err = capfd.readouterr()
        return Result(status, out, err)

    return run


@pytest.fixture(params=["script", "module"])
def either_way(request: pytest.FixtureRequest) -> list[str]:
    """How to call the command: by its script, and by `python -m`."""
    return _script() if request.param == "script" else _module()


@pytest.fixture
def script() -> list[str]:
    return _script()


@pytest.fixture
def module() -> list[str]:
    return _module()


def _script() -> list[str]:
    return [os.path.join(sysconfig.get_path("scripts"), "penstock")]


def _module() -> list[str]:
    return [sys.executable, "-m", "penstock"]


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a separate process, to its end."""

    def run(command: list[str], *words: object, **options: Any) -> Any:
        options.setdefault("capture_output", "stdout" not in options)
        return subprocess.run(
            [*command, *map(str, words)], text=True, timeout=30, check=False, **options
        )

    return run
