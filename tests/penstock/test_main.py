from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

Penstock = Callable[..., Any]
Process = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_version_is_the_packages(penstock: Penstock) -> None:
    assert penstock("--version").out == f"penstock {version('penstock')}\n"


def test_help_imports_no_library(process: Process) -> None:
    code = (
        "import sys; from penstock.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([m for m in sys.modules if m in ('streams', 'reactivex')])"
    )
    result = process([sys.executable, "-c", code])
    assert result.stdout.splitlines()[-1] == "[]"
    assert result.stdout.startswith("usage: penstock")


@pytest.mark.parametrize("command", ["run", "draw", "check", "kata", "queue"])
def test_every_sub_command_has_help(penstock: Penstock, command: str) -> None:
    result = penstock(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"usage: penstock {command}")
