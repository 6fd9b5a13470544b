"""Import by name: how a process that begins with nothing finds a pipeline in a module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from os.path import exists
from traceback import format_exception
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.process.loading import loading
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["Place", "Stages", "place_of"]

_ADVICE = (
    "Give the pipeline a name at the top level of a module that can be imported. "
    "run(pipeline, workers=...) in a script without a loop and threads needs none"
)


class Stages(Protocol):
    """A pipeline, as far as other processes need it."""

    @property
    def flowable(self) -> Stream[Any]: ...

    @property
    def sinks(self) -> Sequence[Sink[Any]]: ...

    def describe(self) -> list[StageInfo]: ...


class Place(NamedTuple):
    """Where a pipeline is: the name of a module, "__main__" for the program, and its name there.

    `stages` are its stages, and `program` is what multiprocessing needs to import the program.
    """

    module: str
    name: str
    stages: list[str]
    program: dict[str, Any]

    def find(self) -> Stages:
        """Import the module, and return the pipeline.

        Raises BuildError if it cannot be imported, or has another pipeline.
        """
        try:
            with loading():
                module = self._import()
        except BaseException as error:
            told = BuildError(
                f"a worker process cannot import {self._described()}, in which the pipeline "
                f"{self.name!r} is: {type(error).__name__}: {error}"
            )
            if not isinstance(error, BuildError):
                # The error itself stays in the worker process.
                told.add_note("".join(format_exception(error)))
            raise told from error
        found = vars(module).get(self.name)
        if not isinstance(getattr(found, "flowable", None), Stream):
            raise BuildError(
                f"a worker process has imported {self._described()}, and found no pipeline "
                f"{self.name!r} in it. {_ADVICE}"
            )
        pipeline = cast(Stages, found)
        if names_of(pipeline) != self.stages:
            raise BuildError(
                f"a worker process has imported {self._described()}, and the pipeline "
                f"{self.name!r} has other stages there: {', '.join(names_of(pipeline))} instead of "
                f"{', '.join(self.stages)}. Build it alike in every process"
            )
        return pipeline

    def _import(self) -> ModuleType:
        if self.module != "__main__":
            return import_module(self.module)
        from multiprocessing.spawn import prepare

        prepare(self.program)
        return sys.modules["__main__"]

    def _described(self) -> str:
        return "the program" if self.module == "__main__" else f"module '{self.module}'"


def names_of(pipeline: Stages) -> list[str]:
    """The names of the stages, which must be the same in all processes."""
    return [str(stage) for stage in pipeline.describe()]


def place_of(pipeline: Stages, where: str) -> Place:
    """Where other processes can find a pipeline.

    Raises BuildError if they cannot; `where` are the words for what this process is.

    Of several modules that have it the program comes last, because it is often much more than the
    pipeline.
    """
    found = [
        (module, name) for module, names in _modules() for name, value in names if value is pipeline
    ]
    if not found:
        raise BuildError(
            f"workers= {where} starts processes that import the pipeline by its name, and "
            f"{pipeline!r} has no name at the top level of a module. {_ADVICE}"
        )
    module, name = min(found, key=lambda place: place[0] == "__main__")
    program: dict[str, Any] = {}
    if module == "__main__":
        from multiprocessing.spawn import get_preparation_data

        prepared = get_preparation_data("penstock worker")
        program = {key: prepared[key] for key in prepared if key.startswith("init_main")}
        if not _can_be_imported(program):
            raise BuildError(
                f"workers= {where} starts processes that import the pipeline {name!r}, "
                "and they cannot import the program, because it was typed into a session, or is "
                f"the __main__.py of a package. {_ADVICE}"
            )
    return Place(module, name, names_of(pipeline), program)


def _modules() -> Sequence[tuple[str, list[tuple[str, Any]]]]:
    return [
        (name, list(vars(module).items()))
        for name, module in list(sys.modules.items())
        if isinstance(cast(Any, module), ModuleType)
        and (name == "__main__" or module.__spec__ is not None)
        # What multiprocessing calls the program.
        and name != "__mp_main__"
    ]


def _can_be_imported(program: dict[str, Any]) -> bool:
    name = program.get("init_main_from_name")
    if name is not None:
        return not name.endswith("__main__")
    path = program.get("init_main_from_path")
    return path is not None and exists(path)
