from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.shadow import PACKAGES, shadowing

Process = Callable[..., "subprocess.CompletedProcess[str]"]
Penstock = Callable[..., Any]


def _package(folder: Path, name: str, *, init: bool = True) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    (package / ("__init__.py" if init else "mine.py")).write_text("x = 1\n")
    return package


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_of_ours_is_no_stranger_to_itself(name: str) -> None:
    import penstock

    assert shadowing() is None
    assert shadowing(os.path.dirname(os.path.dirname(str(penstock.__file__)))) is None


@pytest.mark.parametrize("name", PACKAGES)
def test_a_folder_beside_the_pipeline_file_is_refused(
    penstock: Penstock, pipeline_file: Path, name: str
) -> None:
    package = _package(pipeline_file.parent, name)
    result = penstock("check", pipeline_file)
    assert result.status == 2
    assert str(package) in result.err
    assert f"Rename it (my_{name}, say)" in result.err
    assert "a folder of its own" in result.err


def test_a_folder_without_an_init_is_refused_as_well(
    penstock: Penstock, pipeline_file: Path
) -> None:
    _package(pipeline_file.parent, "sources", init=False)
    assert penstock("check", pipeline_file).status == 2


def test_a_module_beside_the_pipeline_file_is_refused(
    penstock: Penstock, pipeline_file: Path
) -> None:
    (pipeline_file.parent / "streams.py").write_text("")
    result = penstock("check", pipeline_file)
    assert result.status == 2
    assert str(pipeline_file.parent / "streams.py") in result.err


def test_a_pipeline_file_must_not_have_such_a_name_itself(
    penstock: Penstock, pipeline_file: Path
) -> None:
    renamed = pipeline_file.rename(pipeline_file.parent / "operators.py")
    result = penstock("check", renamed)
    assert result.status == 2
    assert str(renamed) in result.err


def test_a_folder_of_data_is_nobodys_package(penstock: Penstock, pipeline_file: Path) -> None:
    (pipeline_file.parent / "sources").mkdir()
    (pipeline_file.parent / "sources" / "events.jsonl").write_text("")
    assert penstock("check", pipeline_file).status == 0


def test_a_package_in_the_current_folder_is_refused_where_python_would_take_it(
    process: Process, module: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    package = _package(tmp_path / "here", "operators", init=True)
    result = process(module, "check", pipeline_file, cwd=package.parent)
    assert result.returncode == 2
    assert str(package) in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_of_modules_without_init_is_refused_or_loses_to_ours(
    process: Process, module: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    package = _package(tmp_path / "here", "operators", init=False)
    result = process(module, "check", pipeline_file, cwd=package.parent)
    # Which of the two depends on how penstock is installed: a folder loses to a package that
    # stands on the path, and wins against one that an import hook finds.
    if result.returncode:
        assert result.returncode == 2
        assert str(package) in result.stderr
    else:
        assert "OK, 6 stages: read_jsonl > distinct_within > group_by > spread" in result.stdout


def test_streams_in_the_current_folder_is_refused_before_it_is_imported(
    process: Process, module: list[str], tmp_path: Path
) -> None:
    (tmp_path / "streams.py").write_text("raise SystemExit('imported')\n")
    result = process(module, "kata", "--seconds", "0", cwd=tmp_path)
    assert result.returncode == 2
    assert str(tmp_path / "streams.py") in result.stderr


def test_the_script_is_not_concerned_by_the_current_folder(
    process: Process, script: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    here = _package(tmp_path / "here", "operators").parent
    result = process(script, "run", pipeline_file, cwd=here, stdin=subprocess.DEVNULL)
    assert result.returncode == 0


def test_a_package_on_the_python_path_is_refused(
    process: Process, script: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    package = _package(tmp_path / "elsewhere", "sinks")
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    result = process(script, "check", pipeline_file, env=environment)
    assert result.returncode == 2
    assert str(package) in result.stderr
