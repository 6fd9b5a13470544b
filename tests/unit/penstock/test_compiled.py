"""The modules with a .pxd file run from extension modules, or all of the library from sources."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path

from penstock.streams.base.compiled import form
from tests.helpers.builds import FOLDERS, HOME, copied

MODULES = sorted(
    path.relative_to(HOME).with_suffix("")
    for folder in FOLDERS
    for path in (HOME / folder).rglob("*.pxd")
)


def run(code: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_PURE": "", "PYTHONPATH": str(home), **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=60
    )


def loaded(module: Path) -> str:
    name = "penstock." + ".".join(module.parts)
    is_source = isinstance(import_module(name).__loader__, SourceFileLoader)
    return "pure" if is_source else "compiled"


def test_each_module_with_a_pxd_file_runs_as_the_library_says() -> None:
    assert {str(module): loaded(module) for module in MODULES} == {
        str(module): form() for module in MODULES
    }


def test_what_is_compiled_is_the_source_beside_it() -> None:
    """Else tests run what was written before: `make compiled` again."""
    assert [
        str(module)
        for module in MODULES
        for extension in (HOME / module).parent.glob(f"{module.name}.*")
        if extension.name.endswith(tuple(EXTENSION_SUFFIXES))
        and extension.stat().st_mtime
        < max((HOME / module).with_suffix(kind).stat().st_mtime for kind in (".py", ".pxd"))
    ] == []


def test_no_number_is_asked_of_a_dict_that_may_not_have_it() -> None:
    """Cython 3.3 takes what `get` returns of a `dict[str, float]` for a number, also None."""
    found: list[str] = []
    for module in MODULES:
        for function in ast.walk(ast.parse((HOME / module).with_suffix(".py").read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            of_numbers = {
                getattr(node, "arg", None) or ast.unparse(getattr(node, "target", node))
                for node in ast.walk(function)
                if isinstance(node, ast.arg | ast.AnnAssign)
                and node.annotation is not None
                and re.match(r"dict\[.*\b(float|int|bool)\]", ast.unparse(node.annotation))
            }
            found += [
                f"{module}.py:{node.lineno}"
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute)
                and node.attr in ("get", "pop", "setdefault")
                and ast.unparse(node.value) in of_numbers
            ]
    assert found == [], "annotate it as a Mapping"


def test_a_parameter_that_may_be_none_takes_whole_numbers_too() -> None:
    """Cython checks that what is annotated as `float | None` is exactly a float."""
    assert [
        f"{module}.py:{node.lineno}"
        for module in MODULES
        for node in ast.walk(ast.parse((HOME / module).with_suffix(".py").read_text()))
        if isinstance(node, ast.arg)
        and node.annotation is not None
        and ast.unparse(node.annotation) in ("float | None", "None | float")
    ] == [], "annotate it as `int | float | None`"


def declared() -> dict[str, tuple[str, set[str]]]:
    """The base and the attributes of each class that a .pxd file declares, by its name."""
    found: dict[str, tuple[str, set[str]]] = {}
    for module in MODULES:
        for line in (HOME / module).with_suffix(".pxd").read_text().splitlines():
            if match := re.match(r"cdef class (\w+)(?:\((\w+)\))?", line):
                attributes: set[str] = set()
                found[match[1]] = match[2] or "", attributes
            elif match := re.match(r"    cdef (?:public |readonly )?\w+ (.+)", line):
                attributes |= set(match[1].split(", "))
    return found


def set_on_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def test_what_a_class_sets_on_itself_is_declared_for_its_compiled_form() -> None:
    """Else an object of the compiled class has no such attribute."""
    classes, missing = declared(), list[str]()
    for module in MODULES:
        for node in ast.parse((HOME / module).with_suffix(".py").read_text()).body:
            if not (isinstance(node, ast.ClassDef) and node.name in classes):
                continue
            known: set[str] = set()
            base = node.name
            while base:
                base, attributes = classes[base]
                known |= attributes
            if "__dict__" in known:
                continue
            for function in ast.walk(node):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    names = sorted(set_on_self(function) - known)
                    missing += [f"{module}.pxd: {node.name}.{name}" for name in names]
    assert missing == []


def test_sources_are_taken_where_extension_modules_stand_beside_them(tmp_path: Path) -> None:
    copied(tmp_path)
    broken = tmp_path / f"streams/protocol/event{EXTENSION_SUFFIXES[0]}"
    broken.write_bytes(b"no machine code")
    code = (
        "from penstock.streams.protocol import event; "
        "from penstock.streams.base.compiled import form; print(form(), event.__file__)"
    )
    source = tmp_path / "penstock/streams/protocol/event.py"
    assert run(code, tmp_path, PENSTOCK_PURE="1").stdout == f"pure {source}\n"
    for value in ("0", ""):
        assert "ImportError" in run(code, tmp_path, PENSTOCK_PURE=value).stderr
