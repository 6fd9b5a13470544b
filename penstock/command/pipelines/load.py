"""Loads the pipeline named by `FILE` or `FILE:NAME`.

The file is imported as a module, with its own folder first on Python's path as if it were run, but
not as `__main__`. Every error is a BuildError that says what to do; only a file's own parser of
arguments may end the process.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from inspect import isfunction, signature
from traceback import format_exception_only
from types import ModuleType
from typing import TypeVar

from penstock.command.explain import explain, users_line
from penstock.streams.base.errors import BuildError, MissingExtra
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.protocol.blame import is_ours
from penstock.streams.runtime.process.loading import loading

__all__ = ["choose", "execute", "load", "load_module", "path_and_name"]

_FOLDERS = ("operators", "sinks", "sources", "streams")
"""Folders of the repository, whose names are not those of installed packages."""

T = TypeVar("T")


def load(where: str, arguments: Sequence[str] = (), *, whole: bool = False) -> Pipeline:
    """Import the file, or read its definition, and return its pipeline; raises BuildError for every
    error, but passes the SystemExit of an argparse in the file on.

    `arguments` become the file's `sys.argv[1:]`; `whole` keeps penstock's own frames in the
    traceback of an error of the file.
    """
    path, name = path_and_name(where)
    if not path.endswith(".py"):
        # Imported here: most files are of Python.
        from penstock.streams.definitions.files import form_of

        if form_of(path) is not None:
            return _defined(path, name, arguments)
    return choose(load_module(path, arguments, "pipeline", name, whole=whole), path, name)


def _defined(path: str, name: str | None, arguments: Sequence[str]) -> Pipeline:
    """The pipeline of a file of a definition, whose folder is the first in which modules are."""
    if name is not None:
        raise BuildError(f"{path} has one pipeline, without a name: leave out ':{name}'")
    if arguments:
        raise BuildError(f"{path} takes no arguments: it is read, and not run as Python is")
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    with loading():
        return Pipeline.from_file(path)


def load_module(
    path: str,
    arguments: Sequence[str],
    what: str,
    name: str | None = None,
    *,
    whole: bool = False,
) -> ModuleType:
    """Import the file, which is to have a `what`, of this name if there is one; otherwise as
    `load`."""
    if os.path.isdir(path):
        raise BuildError(f"{path} is a folder: name the file in it that has the {what}")
    if not os.path.exists(path):
        path = _installed(path)
    if not os.path.exists(path):
        file = f"{path.replace('.', os.sep)}.py"
        meant = f"{file}:{name}" if name else file
        meant = f"; did you mean {meant}?" if os.path.exists(file) else ""
        raise BuildError(f"{path} does not exist (seen from {os.getcwd()}){meant}")
    folder = os.path.dirname(os.path.realpath(path))
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    return execute(SourceFileLoader(_module_name(path), os.path.abspath(path)), path, what, whole)


def _installed(path: str) -> str:
    """The path of an example that is installed with penstock, for `examples/NAME.py`; otherwise the
    path as it is."""
    import penstock

    if os.path.dirname(path) != "examples":
        return path
    found = os.path.join(os.path.dirname(penstock.__file__), path)
    return found if os.path.exists(found) else path


def path_and_name(where: str) -> tuple[str, str | None]:
    """The two parts of `FILE` or `FILE:NAME`."""
    path, colon, name = where.rpartition(":")
    if not colon or not path or os.path.exists(where) or not name.isidentifier():
        return where, None
    return path, name


def _module_name(path: str) -> str:
    # Its own name, so that a handler can be pickled for another process; unless that name is taken
    # or not a valid name.
    stem = os.path.splitext(os.path.basename(path))[0]
    taken = stem in sys.modules or stem in sys.stdlib_module_names
    return "penstock_pipeline_file" if taken or not stem.isidentifier() else stem


def execute(
    loader: SourceFileLoader,
    path: str,
    what: str,
    whole: bool,
    names: Mapping[str, object] | None = None,
) -> ModuleType:
    """The module of a loader, which may use these `names` without importing them."""
    name = loader.name
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names or {})
    sys.modules[name] = module
    try:
        with loading():
            loader.exec_module(module)
    except OSError as error:
        if error.filename != loader.path:
            raise BuildError(_raised(path, error, whole)) from error
        raise BuildError(f"Cannot read {path}: {error.strerror}") from error
    except SyntaxError as error:
        raise BuildError(_syntax(path, error)) from error
    except SystemExit as error:
        if _is_of_argparse(error):
            # It has printed what is wrong with the arguments, or their help.
            raise
        raise BuildError(
            f"{path} ended the process (SystemExit: {error.code}) while it was loaded, before "
            f'there was a {what}. Put code for scripts only under `if __name__ == "__main__":`'
        ) from error
    except (BuildError, MissingExtra) as error:
        line = users_line(error) or path
        raise BuildError(f"{line}: this {what} cannot be built: {error}") from error
    except Exception as error:
        raise BuildError(_raised(path, error, whole)) from error
    return module


def _is_of_argparse(error: SystemExit) -> bool:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_globals.get("__name__") == "argparse"


def _syntax(path: str, error: SyntaxError) -> str:
    place = error.filename or path
    shown = place if error.lineno is None else f"{place}:{error.lineno}"
    # The first line of Python's own text repeats the place.
    lines = "".join(format_exception_only(error)).rstrip().splitlines()
    return "\n".join([f"{shown}: {error.msg}", *lines[1:-1]])


def _raised(path: str, error: BaseException, whole: bool) -> str:
    line = users_line(error) or path
    told = explain(error, whole=whole)
    frames = [one for one in told.splitlines() if one.startswith("  File ")]
    if len(frames) == 1 and told.startswith("Traceback"):
        # Of the one frame, the line is named already.
        told = told.partition(f"{frames[0]}\n")[2]
    lines = [f"{line}: {path} raised an error while it was loaded", told]
    # Later versions of Python have said it already.
    if "Did you mean" not in told:
        lines.append(_hint(error))
    return "\n".join(filter(None, lines))


def _hint(error: BaseException) -> str:
    """A hint of what to write instead, for a name of penstock that is wrong or not imported."""
    import penstock

    name, known = getattr(error, "name", None), [*dir(penstock), "ops"]
    if isinstance(error, ModuleNotFoundError):
        if name not in _FOLDERS:
            return _did_you_mean(name, ["penstock"])
        return (
            f"'{name}' of penstock is installed as 'penstock.{name}': "
            "write `from penstock import ...`."
        )
    if isinstance(error, ImportError) and name == "penstock":
        return _did_you_mean(_quoted(error), known)
    if isinstance(error, NameError):
        if name in known:
            return f"Write `from penstock import {name}`."
        return _did_you_mean(name, known)
    if isinstance(error, AttributeError) and is_ours(_module_of(error.obj)):
        return _did_you_mean(name, dir(error.obj))
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
        function = getattr(penstock, str(error).partition("(")[0], None)
        return _did_you_mean(_quoted(error), signature(function).parameters) if function else ""
    return ""


def _did_you_mean(name: str | None, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name or "", [one for one in known if not one.startswith("_")], 1)
    return f"Did you mean '{found[0]}'?" if found else ""


def _quoted(error: BaseException) -> str:
    """The first thing in quotes in the error's text."""
    return str(error).partition("'")[2].partition("'")[0]


def _module_of(thing: object) -> str:
    """The module that a thing, or its class, is of; its own name if it is one."""
    name = "__name__" if isinstance(thing, ModuleType) else "__module__"
    return str(getattr(thing, name, ""))


def choose(module: ModuleType, path: str, name: str | None) -> Pipeline:
    """The pipeline of a module, by its name if there is one. Raises BuildError."""
    if name is not None:
        return _named(module, path, name)
    found = _named_values(module, Pipeline)
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join(found)
        raise BuildError(
            f"{path} has {len(found)} pipelines: {names}. Say which: {path}:{next(iter(found))}"
        )
    for loose in _names_of_streams(module):
        raise BuildError(
            f"{path} has no pipeline, but the stream '{loose}', which has no sink: end it in a "
            "sink, as in `pipeline = stream.to(write_jsonl())`"
        )
    raise BuildError(
        f"{path} has no pipeline: {_in_its_place(module)}it needs one in a variable of the module, "
        "as in `pipeline = read_jsonl().pipe(...).to(write_jsonl())`"
    )


def _in_its_place(module: ModuleType) -> str:
    """The part of the message about a variable `pipeline` that is not a pipeline."""
    if not hasattr(module, "pipeline"):
        return ""
    value = module.pipeline
    if isfunction(value):
        return f"'pipeline' is the function '{value.__name__}', which is not called; "
    return f"'pipeline' is of type {type(value).__name__}; "


def _named(module: ModuleType, path: str, name: str) -> Pipeline:
    found = _named_values(module, Pipeline)
    there_are = f"Its pipelines are: {', '.join(found)}" if found else "It has no pipeline"
    if not hasattr(module, name):
        raise BuildError(f"{path} has no '{name}'. {there_are}.")
    value = getattr(module, name)
    if not isinstance(value, Pipeline):
        kind = type(value).__name__
        raise BuildError(f"'{name}' of {path} is not a pipeline, but of type {kind}. {there_are}.")
    return value


def _named_values(module: ModuleType, kind: type[T]) -> dict[str, T]:
    """Public variables of a kind; of several names for one value, the first."""
    found: dict[str, T] = {}
    seen: set[int] = set()
    for name, value in vars(module).items():
        if isinstance(value, kind) and not name.startswith("_") and id(value) not in seen:
            seen.add(id(value))
            found[name] = value
    return found


def _names_of_streams(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, Flowable)]
