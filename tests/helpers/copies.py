"""Processes that are copies of one that has imported all: starting Python and importing take longer
than what most tests have them do. They are no copies of the tests' own process, so what that one
has changed or started is not in them. Windows has none."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from multiprocessing.context import BaseContext
from pathlib import Path

__all__ = ["COPIES", "run_command"]

_IMPORTED = [
    "penstock.command.cluster.dead_letters",
    "penstock.command.cluster.nats",
    "penstock.command.cluster.publish",
    "penstock.command.cluster.status",
    "penstock.command.dispatch",
    "penstock.command.pipelines.run",
    "penstock.operators.in_processes",
    "penstock.streams.nats.client.client",
    "penstock.streams.telemetry.report",
    __name__,
]

COPIES: BaseContext | None = None
"""What makes them; None if the system cannot."""

if "forkserver" in multiprocessing.get_all_start_methods():
    COPIES = multiprocessing.get_context("forkserver")
    COPIES.set_forkserver_preload(_IMPORTED)


def run_command(
    words: tuple[str, ...], folder: Path, given: str = "", seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """What came of `python -m penstock` with these words and this input, in a folder."""
    command = [sys.executable, "-m", "penstock", *words]
    if COPIES is None:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("in", "out", "err")]
        for file, text in zip(files, (given, "", ""), strict=True):
            file.write_text(text, encoding="utf-8")
        process = COPIES.Process(  # type: ignore[attr-defined]
            target=_run, args=(words, str(folder), files, dict(os.environ))
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, seconds)
        _, out, err = (file.read_text(encoding="utf-8") for file in files)
        done = subprocess.CompletedProcess(command, process.exitcode, out, err)
        process.close()
        return done


def _run(words: tuple[str, ...], folder: str, files: list[Path], variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for number, file in enumerate(files):
        opened = os.open(file, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    # Multiprocessing has closed the one of its own process.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.path.insert(0, folder)
    sys.argv = ["penstock", *words]
    sys.exit(import_module("penstock.__main__").main())
