"""Everything public is imported from `penstock`, and is on the page of public names."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from inspect import unwrap
from pathlib import Path

import pytest
import reactivex.operators

import penstock
import penstock.operators.rx
from penstock import ops
from penstock.streams import temporal
from penstock.streams.base import errors
from tests.helpers.public_names import with_pages

HOME = Path(__file__).parents[3]
MODULES = [
    importlib.import_module(f"penstock.{name}")
    for name in penstock._PUBLIC
    if name not in ("ops", "streams.aggregates.agg")
]


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


def test_every_public_name_is_one_of_its_module() -> None:
    for module in MODULES:
        names = penstock._PUBLIC[module.__name__.removeprefix("penstock.")]
        assert set(names) <= set(module.__all__)
        assert all(getattr(penstock, name) is getattr(module, name) for name in names)


def test_penstock_has_no_other_public_names() -> None:
    names = sorted(name for names in penstock._PUBLIC.values() for name in names)
    assert names == penstock.__all__
    assert set(names) <= set(dir(penstock))


def test_no_module_in_penstock_takes_the_place_of_a_public_name_but_ops_which_is_one() -> None:
    modules = {path.stem for path in Path(penstock.__path__[0]).iterdir()}
    assert modules & set(penstock.__all__) == {"ops"}


def test_importing_penstock_imports_only_where_streams_find_operators(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import penstock; "
        "print(sorted(set(sys.modules) - before - {'__future__', 'typing'}), penstock.__version__)"
    )
    loaded = "import __future__, os, typing; os.environ.pop('PENSTOCK_PURE', None); " + code
    found = ["penstock", "penstock.streams", "penstock.streams.rx", "penstock.streams.rx.ours"]
    assert run(loaded, cwd=tmp_path).stdout == f"{found} {penstock.__version__}\n"


def test_a_name_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nonsense'"):
        penstock.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_the_module_of_aggregates_is_a_public_name() -> None:
    assert penstock.agg is importlib.import_module("penstock.streams.aggregates.agg")


def test_all_operators_are_under_one_roof_and_ours_win_but_for_the_windows_of_rx() -> None:
    rx = penstock.operators.rx
    ours = with_pages("operators")
    for name in {*reactivex.operators.__all__, *rx.__all__, *ours}:
        its = rx if name in rx.__all__ else reactivex.operators
        is_ours = name in ours and name != "window"
        expected = ours[name] if is_ours else getattr(its, name)
        # Those of reactivex keep a record of their calls.
        assert unwrap(getattr(ops, name)) is unwrap(expected)


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


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("merge", "ops"),
        ("BuildError", "streams.base.errors"),
        ("default", "streams.limits"),
        ("MemorySource", "streams.testing"),
        ("Workflow", "streams.temporal"),
    ],
)
def test_a_name_that_is_elsewhere_in_penstock_is_said_to_be_there(name: str, place: str) -> None:
    hint = rf"Did you mean `from penstock\.{place} import {name}`\?"
    with pytest.raises(
        ImportError, match=rf"^cannot import name '{name}' from 'penstock'\. {hint}"
    ):
        exec(f"from penstock import {name}")
    with pytest.raises(
        AttributeError, match=rf"^module 'penstock' has no attribute '{name}'\. {hint}"
    ):
        exec(f"penstock.{name}")
    exec(f"from penstock.{place} import {name}")


def test_to_ask_whether_there_is_a_name_imports_nothing(tmp_path: Path) -> None:
    code = (
        "import penstock, sys; before = set(sys.modules); print(hasattr(penstock, 'merge')); "
        "print(getattr(penstock, 'merge', None)); import penstock.missing; "
        "print(sorted(name for name in set(sys.modules) - before if 'penstock' in name))"
    )
    assert run(code, cwd=tmp_path).stdout.split("\n")[:3] == [
        "False",
        "None",
        "['penstock.missing']",
    ]


def test_a_name_that_is_nowhere_in_penstock_gets_the_message_of_python() -> None:
    with pytest.raises(ImportError, match=r"^cannot import name 'frob' from 'penstock' \("):
        exec("from penstock import frob")
