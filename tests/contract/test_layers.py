"""The folders import each other in one order, which is written down here.

Imports for types, inside functions and by name count. Each folder of `streams` has a place in the
order, and so has each module directly in `streams` and each of the other packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[2]
PACKAGES = ("streams", "operators", "sources", "sinks", "penstock")

# Lowest first: a folder imports only from folders before it.
ORDER = [
    "errors",
    "clock",
    "validation",
    "ahead",
    "base",
    "temporal",
    "extras",
    "pages",
    "protocol",
    "pictures",
    "failures",
    "limits",
    "diagnostics",
    "runtime",
    "delivery",
    "boundary",
    "flowable",
    "keyed",
    "io",
    "execution",
    "rx",
    "monitoring",
    "sql_queue",
    "workers",
    "telemetry",
    "running",
    "pipeline",
    "nats",
    "kafka",
    "work_pulling",
    "testing",
    "streams",
    "operators",
    "sinks",
    "sources",
    "penstock",
]

# Imports that still run up, each with its reason.
EXCEPTIONS = {
    ("boundary", "flowable"): "what enters becomes a stream, and `connect` takes one",
    ("boundary", "rx"): "a plain Observable is subscribed to on the loop's scheduler",
    ("failures", "runtime"): "an error policy counts in the run, and sends its dead letters",
    ("flowable", "pipeline"): "the one place that reaches up: `to` makes a pipeline, lazily",
    ("flowable", "rx"): "the one place that reaches up: `pipe` and the fluent methods, lazily",
    ("keyed", "rx"): "operators inside groups may be stock ones, some of which need no stage",
    ("protocol", "runtime"): "a source's and a sink's stage are given their run, for types",
    ("runtime", "boundary"): "a run puts a user's stage behind its guard",
    ("runtime", "telemetry"): "a run serves its own page, lazily",
    ("rx", "operators"): "an operator of Rx that this library has is found by its name",
    ("workers", "telemetry"): "a worker traces the calls in it, lazily",
    ("runtime", "flowable"): "a run attaches to a stream; an engine is one's source",
}


def folder_of(parts: tuple[str, ...]) -> str:
    """The folder of a module by its path in the repository, or by its name below `penstock`."""
    if parts[0] not in PACKAGES or parts[0] == "penstock":
        return "penstock"
    if parts[0] != "streams":
        return parts[0]
    folder = parts[1].removesuffix(".py") if len(parts) > 1 else "streams"
    is_one = (HOME / "streams" / folder).is_dir() or (HOME / "streams" / f"{folder}.py").exists()
    return folder if is_one and folder != "__init__" else "streams"


def files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        folder = HOME / package / "command" if package == "penstock" else HOME / package
        for path in sorted(folder.rglob("*.py")):
            yield folder_of(path.relative_to(HOME).parts), path


def imports_of(path: Path) -> Iterator[str]:
    """The folders from which a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "penstock":
            inner = tuple((node.module or "").split(".")[1:])
            yield from (folder_of((*inner, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("penstock."):
                    yield folder_of(tuple(alias.name.split(".")[1:]))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
            name = _beginning(node.args[0])
            if name.startswith("penstock."):
                yield folder_of(tuple(name.split(".")[1:]))


def _beginning(name: ast.expr) -> str:
    """The text with which the name of a module begins that is imported by its name."""
    first = name.values[0] if isinstance(name, ast.JoinedStr) else name
    return str(first.value) if isinstance(first, ast.Constant) else ""


def arrows() -> dict[tuple[str, str], set[str]]:
    """(a folder, one that it imports from) with the modules that do."""
    found: dict[tuple[str, str], set[str]] = {}
    for folder, path in files():
        for other in imports_of(path):
            if other != folder:
                found.setdefault((folder, other), set()).add(str(path.relative_to(HOME)))
    return found


def test_every_folder_has_its_place_in_the_order() -> None:
    assert {folder for folder, _ in files()} == set(ORDER)


def test_no_folder_imports_from_one_above_it() -> None:
    place = {folder: at for at, folder in enumerate(ORDER)}
    up = {pair: names for pair, names in arrows().items() if place[pair[1]] > place[pair[0]]}
    assert {pair: names for pair, names in up.items() if pair not in EXCEPTIONS} == {}
    # An exception that nothing needs any more has to go.
    assert set(EXCEPTIONS) - set(up) == set()


def test_temporal_logic_knows_nothing_of_streams() -> None:
    known = {"base", "errors", "validation", "ahead"}
    assert {pair[1] for pair in arrows() if pair[0] == "temporal"} <= known


def test_operators_sources_and_sinks_import_only_streams() -> None:
    public = {"operators", "sources", "sinks"}
    assert [
        pair for pair in arrows() if pair[0] in public and pair[1] in {*public, "penstock"}
    ] == []


def test_operators_sources_and_sinks_do_not_import_each_other() -> None:
    names = "|".join(("operators", "sources", "sinks"))
    imports = re.compile(rf"^\s*(?:from|import) penstock\.(?:{names})\b", re.M)
    files = [path for name in names.split("|") for path in (HOME / name).rglob("[!_]*.py")]
    assert any(path.parent.name == "rx" for path in files)
    assert [path.name for path in files if imports.search(path.read_text(encoding="utf-8"))] == []
