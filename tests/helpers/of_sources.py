"""Tests that replace parts of the library's classes, which compiled classes do not allow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from penstock.streams.base.compiled import form

__all__ = ["of_sources"]

P = ParamSpec("P")

HOME = Path(__file__).parents[2]


def of_sources(test: Callable[P, None]) -> Callable[P, None]:
    """The test of what is so of the sources, however they run: if they are compiled here, it runs
    in a process of its own, where they are not."""

    @wraps(test)
    def run(*args: P.args, **fixtures: P.kwargs) -> None:
        if form() == "pure":
            test(*args, **fixtures)
            return
        name, _, _ = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")
        options = "addopts=--strict-markers --import-mode=importlib -p no:cacheprovider"
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-o", options, name],
            cwd=HOME,
            env={**os.environ, "PENSTOCK_PURE": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout

    return run
