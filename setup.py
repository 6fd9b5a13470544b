"""The part of the build that compiles: the modules with a .pxd file beside them, by Cython.

They are compiled from their own sources. With PENSTOCK_PURE=1 in the environment nothing is, and
the wheel fits everywhere. `make compiled` compiles in place.
"""

from __future__ import annotations

import os
import shutil
from contextlib import chdir
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

FOLDERS = ("streams", "operators", "sources", "sinks")
PURE = os.environ.get("PENSTOCK_PURE", "0") not in ("", "0")
# The folders as they are installed, where neither links nor their names in the checkout count.
TREE = Path("build/cython")
# Numbers come out alike, compiled or not, also where a processor can multiply and add in one.
OPTIONS = (
    ["-O2", "-ffp-contract=off", "-g0", "-fno-semantic-interposition", "-w"]
    if os.name == "posix"
    else []
)


def compiled() -> list[str]:
    """The modules that are compiled, as paths below `penstock`."""
    paths = (path for folder in FOLDERS for path in Path(folder).rglob("*.pxd"))
    return sorted(path.with_suffix("").as_posix() for path in paths)


class BuildExtensions(build_ext):
    """Makes C of the modules, and says what to do where that cannot be compiled."""

    def build_extensions(self) -> None:
        self._make_c()
        self.parallel = self.parallel or os.cpu_count()
        try:
            super().build_extensions()
        except (CompileError, LinkError, PlatformError) as error:
            raise SystemExit(
                f"penstock: its extension modules cannot be compiled: {error}\n"
                "Install a C compiler and the headers of Python (gcc and python3-dev, or what they "
                "are called on this system), or build with PENSTOCK_PURE=1 in the environment: "
                "penstock then runs from its sources."
            ) from error

    def _make_c(self) -> None:
        try:
            from Cython.Build import cythonize
        except ImportError as error:
            raise SystemExit(
                f"penstock: its extension modules cannot be made: {error}\n"
                "Install Cython, or build with PENSTOCK_PURE=1 in the environment."
            ) from error
        for folder in FOLDERS:
            for path in Path(folder).rglob("__init__.py"):
                _copy(path)
        _copy(Path("penstock/__init__.py"), TREE / "penstock/__init__.py")
        for name in compiled():
            for suffix in (".py", ".pxd"):
                _copy(Path(name + suffix))
        extensions = _extensions("penstock/")
        with chdir(TREE):
            made = cythonize(extensions, language_level=3, quiet=True)
        sources = {one.name: [str(TREE / source) for source in one.sources] for one in made}
        for extension in self.extensions:
            extension.sources = sources[extension.name]


def _copy(path: Path, to: Path | None = None) -> None:
    to = to or TREE / "penstock" / path
    to.parent.mkdir(parents=True, exist_ok=True)
    # With its time, by which Cython knows what has changed.
    shutil.copy2(path, to)


def _extensions(folder: str = "") -> list[Extension]:
    return [
        Extension(
            "penstock." + name.replace("/", "."),
            [f"{folder}{name}.py"],
            extra_compile_args=OPTIONS,
        )
        for name in compiled()
    ]


setup(
    ext_modules=[] if PURE else _extensions(),
    cmdclass={"build_ext": BuildExtensions},
)
