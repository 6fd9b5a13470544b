"""A wheel that is built with a C compiler has the extension modules, and runs from them."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from tests.helpers.builds import FOLDERS, HOME, build, copied


def test_a_wheel_is_compiled_and_runs_so(tmp_path: Path) -> None:
    # It takes minutes on a small machine; the build has a limit of its own.
    faulthandler.cancel_dump_traceback_later()
    checkout = copied(tmp_path / "checkout")
    modules = {
        f"penstock/{path.relative_to(checkout).with_suffix('')}"
        for folder in FOLDERS
        for path in (checkout / folder).rglob("*.pxd")
    }
    path = build("build_wheel", checkout, tmp_path, PENSTOCK_PURE="")
    site = tmp_path / "site"
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        wheel.extractall(site)
    assert {f"{module}{EXTENSION_SUFFIXES[0]}" for module in modules} <= names
    assert not [name for name in names if name.endswith((".c", ".pxd"))]
    command = [sys.executable, str(HOME / ".ci/is_compiled.py")]
    environment = {**os.environ, "PENSTOCK_PURE": "", "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("compiled\n", "")
