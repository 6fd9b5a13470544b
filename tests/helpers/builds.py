"""Builds of the package, from a copy of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["FOLDERS", "HOME", "build", "built", "copied"]

HOME = Path(__file__).parents[2]
FOLDERS = ("streams", "operators", "sources", "sinks")


def copied(into: Path) -> Path:
    """A copy of what the package is built from, without extension modules."""
    without = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    for name in (*FOLDERS, "examples", "penstock"):
        shutil.copytree(HOME / name, into / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(HOME / name, into)
    return into


def built(
    what: str, checkout: Path, into: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What has become of `what`, a function of setuptools as one that builds a wheel."""
    code = f"from setuptools import build_meta as b; print('\\n' + b.{what}({str(into)!r}))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env={**os.environ, "PENSTOCK_PURE": "", **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )


def build(what: str, checkout: Path, into: Path, **variables: str) -> Path:
    """The file that was built; by default without compiling."""
    done = built(what, checkout, into, **{"PENSTOCK_PURE": "1", **variables})
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]
