"""The folders import each other in one order, which is written down here, and modules in no circle.

Imports for types, inside functions and by name count. Each folder of `streams` has a place in the
order, and so has each of the other packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[2]
PACKAGES = ("streams", "operators", "sources", "sinks", "penstock")

# Lowest first: a folder imports only from folders before it.
ORDER = [
    "base",
    "limits",
    "protocol",
    "temporal",
    "diagnostics",
    "pictures",
    "runtime",
    "nats/client",
    "stages",
    "failures",
    "boundary",
    "keyed",
    "delivery",
    "execution",
    "recording",
    "io",
    "inbox",
    "state",
    "event_time",
    "aggregates",
    "windows",
    "rx",
    "sql_queue",
    "joins",
    "definitions",
    "running",
    "telemetry",
    "monitoring",
    "workers",
    "pipelines",
    "groups",
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


def folder_of(parts: tuple[str, ...]) -> str:
    """The folder of a module by its path in the repository, or by its name below `penstock`."""
    if parts[0] not in PACKAGES or parts[0] == "penstock":
        return "penstock"
    if "/".join(parts[1:3]) in ORDER:
        return "/".join(parts[1:3])
    is_in_room = parts[0] == "streams" and (HOME / "/".join(parts[:2])).is_dir() and parts[1:]
    return parts[1] if is_in_room else parts[0]


def files() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        folder = HOME / package / "command" if package == "penstock" else HOME / package
        for path in sorted(folder.rglob("*.py")):
            yield folder_of(path.relative_to(HOME).parts), path


def imports_of(path: Path) -> Iterator[str]:
    """The folders from which a module imports."""
    yield from (folder_of(tuple(name.split(".")[1:])) for name in names_imported_by(path))


@cache
def names_imported_by(path: Path) -> list[str]:
    """The names below `penstock` that a module imports, with those of the modules they are in."""
    return list(_names_imported_by(path))


def _names_imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "penstock":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("penstock."))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "import_module"
        ):
            name = _beginning(node.args[0])
            if name.startswith("penstock."):
                yield name


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


def modules() -> dict[str, set[str]]:
    """Each module, by its name, with the modules that it imports, in whatever way."""
    paths = {name_of(path): path for _, path in files()}

    def found(name: str) -> str | None:
        """The module that is imported by this name, or that has it."""
        return next((one for one in (name, name.rpartition(".")[0]) if one in paths), None)

    return {
        name: {other for other in map(found, names_imported_by(path)) if other} - {name}
        for name, path in paths.items()
    }


def name_of(path: Path) -> str:
    parts = path.relative_to(HOME).with_suffix("").parts
    inner = parts if parts[0] == "penstock" else ("penstock", *parts)
    return ".".join(inner[:-1] if inner[-1] == "__init__" else inner)


def test_no_module_imports_itself_in_a_circle() -> None:
    left = modules()
    # Those that import none of the others are in no circle, nor then those that import only these.
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    # Nor are those that none of the others imports.
    while free := left.keys() - set().union(*left.values()):
        left = {name: others for name, others in left.items() if name not in free}
    assert {name: sorted(others & left.keys()) for name, others in left.items()} == {}


def test_every_folder_has_its_place_in_the_order() -> None:
    assert {folder for folder, _ in files()} == set(ORDER)


def test_no_folder_imports_from_one_above_it() -> None:
    place = {folder: at for at, folder in enumerate(ORDER)}
    up = {pair: names for pair, names in arrows().items() if place[pair[1]] > place[pair[0]]}
    assert up == {}


def test_temporal_logic_knows_nothing_of_streams() -> None:
    assert {pair[1] for pair in arrows() if pair[0] == "temporal"} == {"base"}


def test_operators_sources_and_sinks_import_only_streams() -> None:
    public = {"operators", "sources", "sinks"}
    assert [
        pair for pair in arrows() if pair[0] in public and pair[1] in {*public, "penstock"}
    ] == []


def test_operators_sources_and_sinks_do_not_import_each_other_but_the_one_made_of_others() -> None:
    names = "|".join(("operators", "sources", "sinks"))
    imports = re.compile(rf"^\s*(?:from|import) penstock\.(?:{names})\b", re.M)
    files = [path for name in names.split("|") for path in (HOME / name).rglob("[!_]*.py")]
    assert any(path.parent.name == "rx" for path in files)
    made_of_others = ["adaptive_flat_map.py"]  # `key=` is `group_by` and `spread` in front.
    found = [path.name for path in files if imports.search(path.read_text(encoding="utf-8"))]
    assert found == made_of_others
