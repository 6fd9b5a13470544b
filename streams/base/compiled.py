"""Whether the modules that may be compiled are, and the switch that takes their sources.

A wheel, or `make compiled`, has extension modules beside the sources of the modules that cost most
for each event. With PENSTOCK_PURE=1 in the environment they are left aside.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from typing import Any, Literal

__all__ = ["form", "import_sources", "library"]

# One of them; they are compiled together.
_MODULE = "penstock.streams.protocol.event"


def form() -> Literal["compiled", "pure"]:
    """How the library runs in this process."""
    # Every run has imported it. `importlib.util`, which would find out without, is slow to import.
    loader = import_module(_MODULE).__loader__
    return "compiled" if isinstance(loader, ExtensionFileLoader) else "pure"


def library() -> str:
    """The library with its version and form, as a report of a bug should name it."""
    # It is below the package that has the version.
    return f"penstock {sys.modules['penstock'].__version__} ({form()})"


def import_sources(folder: str) -> None:
    """Import only sources from this folder, and from those below it, in this process."""
    find = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def hook(path: str) -> Any:
        if path != folder and not path.startswith((f"{folder}/", f"{folder}\\")):
            raise ImportError(path)
        return find(path)

    sys.path_hooks.insert(0, hook)
    # Of the packages that were imported to get here.
    for path in [path for path in sys.path_importer_cache if path.startswith(folder)]:
        del sys.path_importer_cache[path]
