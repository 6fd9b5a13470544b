"""Everything public is imported from `penstock`, and is on the page of public names."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import reactivex.operators

import penstock
import penstock.operators.rx
from penstock import operators, ops, sinks, sources
from penstock.streams import temporal
from penstock.streams.base import errors

HOME = Path(__file__).parents[3]
STREAMS = [
    importlib.import_module(f"penstock.{name}")
    for name in penstock._PUBLIC
    if name.startswith("streams.")
]
PACKAGES = [operators, sinks, sources]


def run(code: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Without PYTHONSAFEPATH, so that the current folder is on the path.
    environment = {name: it for name, it in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_what_is_public_is_what_the_page_of_public_names_lists() -> None:
    page = (HOME / "docs/names.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == penstock.__all__


def test_every_error_of_penstock_is_on_the_page_of_errors() -> None:
    page = (HOME / "docs/reference/errors.md").read_text(encoding="utf-8")
    firsts = re.findall(r"^\| (`[A-Z]\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    listed = [name.strip("`") for names in firsts for name in names.split(", ")]
    public = [(module, name) for module in (errors, temporal) for name in module.__all__]
    raised = [
        name
        for module, name in public
        if isinstance(it := getattr(module, name), type) and issubclass(it, Exception)
    ]
    assert sorted([*listed, "PenstockError"]) == sorted(raised)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_of_a_package_is_the_same_thing_in_penstock(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(penstock, name) is getattr(package, name)


def test_every_public_name_of_streams_is_one_of_its_module() -> None:
    for module in STREAMS:
        names = penstock._PUBLIC[module.__name__.removeprefix("penstock.")]
        assert set(names) <= set(module.__all__)
        assert all(getattr(penstock, name) is getattr(module, name) for name in names)


def test_penstock_has_no_other_public_names() -> None:
    names = sorted(name for names in penstock._PUBLIC.values() for name in names)
    assert names == penstock.__all__
    assert {name for package in PACKAGES for name in package.__all__} <= set(names)
    assert set(names) <= set(dir(penstock))


def test_no_module_in_penstock_takes_the_place_of_a_public_name_but_ops_which_is_one() -> None:
    modules = {path.stem for path in Path(penstock.__path__[0]).iterdir()}
    assert modules & set(penstock.__all__) == {"ops"}


def test_importing_penstock_imports_only_where_streams_find_operators(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import penstock; "
        "print(sorted(set(sys.modules) - before - {'__future__', 'typing'}), penstock.__version__)"
    )
    loaded = "import __future__, typing; " + code
    found = ["penstock", "penstock.streams", "penstock.streams.rx", "penstock.streams.rx.ours"]
    assert run(loaded, cwd=tmp_path).stdout == f"{found} {penstock.__version__}\n"


def test_a_name_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nonsense'"):
        penstock.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_all_operators_are_under_one_roof_and_ours_win() -> None:
    for name in {*reactivex.operators.__all__, *operators.rx.__all__, *operators.__all__}:
        packages = (operators, operators.rx, reactivex.operators)
        whose = next(package for package in packages if name in package.__all__)
        assert getattr(ops, name) is getattr(whose, name)


@pytest.mark.parametrize("name", ["operators", "sinks", "sources", "streams"])
def test_a_folder_that_is_imported_by_its_own_name_names_the_right_one(name: str) -> None:
    result = run(f"import {name}", cwd=HOME)
    assert result.returncode == 1
    assert f"ImportError: '{name}' is 'penstock.{name}'" in result.stderr


def test_no_module_is_there_twice() -> None:
    for name in ("streams.base.errors", "operators.batch", "sources.jsonl", "sinks.jsonl"):
        with pytest.raises(ImportError):
            importlib.import_module(name)
        assert importlib.import_module(f"penstock.{name}").__name__ == f"penstock.{name}"


def test_a_star_imports_every_public_name(tmp_path: Path) -> None:
    code = "from penstock import *; import penstock; print(set(penstock.__all__) - set(globals()))"
    assert run(f"{code}; print(ops.map)", cwd=tmp_path).stdout.startswith("set()\n<function map")
