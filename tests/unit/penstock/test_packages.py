"""The built package has every module of the folders, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.helpers.builds import FOLDERS, build, built, copied


@pytest.fixture(params=["with links", "without links"])
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the sources, with the links in `penstock` or, as on Windows, without them."""
    copy = copied(tmp_path / "checkout")
    if request.param == "without links":
        for name in FOLDERS:
            (copy / "penstock" / name).unlink()
            (copy / "penstock" / name).write_text(f"../{name}")
    return copy


def installed_as(checkout: Path) -> set[str]:
    """The modules of the folders, by their paths where they are installed."""
    found = {
        f"penstock/{path.relative_to(checkout)}"
        for name in (*FOLDERS, "examples")
        for path in (checkout / name).rglob("*.py")
    }
    for path in [
        *(checkout / "penstock").glob("*.py"),
        *(checkout / "penstock/command").rglob("*.py"),
    ]:
        found.add(str(path.relative_to(checkout)))
    return found


def test_a_wheel_has_the_modules_of_the_folders(checkout: Path, tmp_path: Path) -> None:
    path = build("build_wheel", checkout, tmp_path)
    assert path.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert {name for name in names if name.endswith(".py")} == installed_as(checkout)
    page = "penstock/streams/telemetry/page"
    assert sorted(name for name in names if not name.endswith(".py")) == [
        "penstock/py.typed",
        *(
            f"{page}/{name}"
            for name in ("all.html", "all.js", "icon.svg", "index.html", "page.css", "page.js")
        ),
        "penstock/streams/telemetry/report/page.css",
    ]


def test_an_example_runs_where_the_package_is_installed(tmp_path: Path) -> None:
    """Also where there is no folder of that name."""
    wheel = build("build_wheel", copied(tmp_path / "checkout"), tmp_path)
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (elsewhere / "prompts.jsonl").write_text('{"id": "p1", "prompt": "What is a penstock?"}\n')
    code = (
        f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path += "
        f"[{sysconfig.get_path('purelib')!r}]; from penstock.__main__ import main; sys.exit(main())"
    )
    arguments = ["draw", "examples/prompts.py", "--", "prompts.jsonl", "answers.jsonl"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *arguments],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "read_jsonl" in done.stdout


def test_a_source_distribution_has_the_folders(checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(build("build_sdist", checkout, tmp_path)) as archive:
        paths = {name.partition("/")[2] for name in archive.getnames()}
    names = {name for name in paths if name.endswith(".py")}
    folders = {
        path for path in installed_as(checkout) if path.split("/")[1] in (*FOLDERS, "examples")
    }
    as_they_stand = {path.removeprefix("penstock/") for path in folders}
    assert names == as_they_stand | (installed_as(checkout) - folders) | {"setup.py"}
    # What is compiled from it.
    declared = {name for name in paths if name.endswith(".pxd")}
    assert declared == {
        str(path.relative_to(checkout))
        for name in FOLDERS
        for path in (checkout / name).rglob("*.pxd")
    }


@pytest.mark.parametrize("checkout", ["without links"], indirect=True)
def test_a_build_that_cannot_compile_says_what_to_do(checkout: Path, tmp_path: Path) -> None:
    event = checkout / "streams/protocol/event.pxd"
    for path in checkout.rglob("*.pxd"):
        # One is enough.
        if path != event:
            path.unlink()
    done = built("build_wheel", checkout, tmp_path, CC="no-such-compiler")
    assert done.returncode == 1
    assert "Install a C compiler" in done.stderr
    assert "or build with PENSTOCK_PURE=1" in done.stderr
    nothing = tmp_path / "Cython"
    nothing.mkdir()
    (nothing / "__init__.py").write_text("raise ImportError('no Cython here')")
    done = built("build_wheel", checkout, tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "Install Cython, or build with PENSTOCK_PURE=1" in done.stderr


def test_a_checkout_that_is_installed_runs_in_place(checkout: Path, tmp_path: Path) -> None:
    """By the default editable mode, which needs no links."""
    site = tmp_path / "site"
    with zipfile.ZipFile(build("build_editable", checkout, tmp_path)) as wheel:
        wheel.extractall(site)
    code = (
        f"import site, sys; sys.path.append({sysconfig.get_path('purelib')!r}); "
        f"site.addsitedir({str(site)!r}); "
        "from penstock import group_by, write_jsonl; from penstock.streams.base import errors; "
        "print(errors.__file__)"
    )
    # Without the packages installed as editable already.
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert os.path.realpath(done.stdout.strip()) == str(
        checkout.resolve() / "streams/base/errors.py"
    )
