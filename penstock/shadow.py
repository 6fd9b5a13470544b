"""Detects a user's module or package that shadows one of penstock's packages.

`operators`, `sources`, `sinks` and `streams` are ordinary words, and Python looks for modules
beside the script and, with `python -m`, in the current folder before it looks among the installed
ones. A module that would silently win is named here instead. This runs before any of penstock's
packages is imported, and therefore imports none of them.
"""

from __future__ import annotations

import importlib.util
import os

__all__ = ["PACKAGES", "shadowing"]

PACKAGES = ("streams", "operators", "sources", "sinks")

_HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def shadowing(folder: str | None = None) -> str | None:
    """The message about the first module with the name of one of penstock's packages, or None.

    Without a folder: one that Python would import instead of ours. With it: one in the folder
    of a pipeline file, which expects to import its neighbours.
    """
    for name in PACKAGES:
        place = _imported(name) if folder is None else _beside(name, folder)
        if place is not None and not _is_ours(name, place):
            return (
                f"{place} has the name of penstock's own package '{name}', so that "
                f"`from {name} import ...` could mean either. Rename it (my_{name}, say), or "
                "put the pipeline file into a folder of its own and run penstock there."
            )
    return None


def _imported(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        return spec.origin
    return next(iter(spec.submodule_search_locations or ()), None)


def _beside(name: str, folder: str) -> str | None:
    module = os.path.join(folder, f"{name}.py")
    if os.path.isfile(module):
        return module
    package = os.path.join(folder, name)
    return package if _holds_python(package) else None


def _holds_python(package: str) -> bool:
    # A data folder with such a name is not a package and does no harm.
    try:
        with os.scandir(package) as entries:
            return any(
                entry.name.endswith((".py", ".so", ".pyd"))
                or (entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")))
                for entry in entries
            )
    except OSError:
        return False


def _is_ours(name: str, place: str) -> bool:
    ours = os.path.join(_HOME, name)
    place = os.path.realpath(place)
    return place == ours or place.startswith(ours + os.sep)
