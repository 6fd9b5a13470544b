"""Paths of inputs and outputs: "-", names in messages, opening, and checks for conflicts.

"-" is standard input or output, unless the command replaces them. The replacements are context
variables, because several pipelines may run in one process: the code that starts one sets them for
that running alone, and every task and callback of it inherits them.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard

from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.io.compression import compression_by_name
from penstock.streams.io.inputs.patterns import files_of, is_several, listed
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.process.standard_streams import Taken, standing_for

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from penstock.streams.io.rotation import Rotation

__all__ = [
    "OPEN_FLAGS",
    "Path",
    "Paths",
    "Written",
    "actual_input",
    "actual_output",
    "check_rotation",
    "file_of",
    "input_name",
    "input_path",
    "is_path",
    "is_same_file",
    "opening",
    "output_name",
    "output_path",
    "output_rotation",
    "read_once",
    "refuse_overwriting",
    "refuse_same_file",
    "refuse_to_empty",
    "rotation_for",
    "standard_streams_of",
]

Path = str | os.PathLike[str] | int
"""A file's name, "-" for a standard stream, or an open descriptor, which stays open."""

Paths = Path | Sequence[str | os.PathLike[str]]
"""The same, where the name of an input may be a pattern such as `logs/*.gz`, or several paths."""

# For each use: the access, the descriptor of the standard stream, and the other use.
_USES = {"read": (os.O_RDONLY, 0, "written"), "write": (os.O_WRONLY, 1, "read")}

# The folders of the descriptors of a process.
_FOLDERS = ("/dev/fd/", "/proc/self/fd/")

OPEN_FLAGS: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags of every `open`, besides those of its access."""

input_path: ContextVar[Paths] = ContextVar("penstock input", default="-")
"""The path that `read_jsonl("-")` reads; "-" is standard input itself."""

output_path: ContextVar[Path] = ContextVar("penstock output", default="-")
"""The path that `write_jsonl("-")` writes; "-" is standard output itself."""

output_rotation: ContextVar[str | None] = ContextVar("penstock rotation", default=None)
"""How the file in place of standard output is rotated."""


# Names of the standard streams, which mean another file while a stream is taken.
_NUMBERS = {
    f"{folder}{name}": number
    for folder, names in (("/dev/", ("stdin", "stdout")), *((one, ("0", "1")) for one in _FOLDERS))
    for number, name in enumerate(names)
}


def actual_input(path: Any) -> Any:
    """The paths or the descriptor to read in place of `path`."""
    return _numbered(_in_place_of(path, input_path))


def actual_output(path: Path) -> Path:
    """The path or descriptor to write in place of `path`."""
    found: Path = _numbered(_in_place_of(path, output_path))
    return found


def _in_place_of(path: Any, standard: ContextVar[Any]) -> Any:
    return standard.get() if path == "-" else path


def _numbered(path: Any) -> Any:
    """The number of a standard stream that is given by its name as a file."""
    return _NUMBERS.get(os.fspath(path), path) if is_path(path) else path


def input_name(path: Paths) -> str:
    """An input's name; its suffix shows the compression."""
    path = _in_place_of(path, input_path)
    return "standard input" if path == "-" else _name(path)


def file_of(path: Paths) -> str:
    """The name of the file whose lines are read, for messages about these; "" if it is none."""
    return "" if actual_input(path) == "-" else input_name(path)


def output_name(path: Path) -> str:
    """An output's name; its suffix shows the compression."""
    path = _in_place_of(path, output_path)
    return "standard output" if path == "-" else _name(path)


def _name(path: Any) -> str:
    if isinstance(path, int):
        return f"descriptor {path}"
    if is_several(path) and not isinstance(path, str) and path and all(map(is_path, path)):
        return listed(path)
    if not is_path(path):
        raise BuildError(
            f'{path!r} is not the path of a file: give a str or a Path, "-", or an open descriptor'
        )
    return os.fspath(path)


def is_path(path: Any) -> TypeGuard[str | os.PathLike[str]]:
    """Whether this can be the path of a file, by its type, and is not empty."""
    return isinstance(path, str | os.PathLike) and os.fspath(path) not in ("", b"")


@contextmanager
def opening(
    path: Path, name: str, flags: int, use: Literal["read", "write"]
) -> Generator[tuple[int, ExitStack]]:
    """Open `path`: its descriptor, and what closes it.

    A descriptor that is the user's stays open; any other is closed if the block raises. A standard
    stream belongs to the pipeline alone until then. Raises CannotOpen.
    """
    own = ExitStack()
    access, standard, wrong = _USES[use]
    number = standard if path == "-" else path
    if isinstance(number, int) and number in (0, 1):
        stream = Taken(number)
        own.callback(stream.close)
        if stream.is_read_ahead:
            own.close()
            raise CannotOpen(
                f"Cannot {use} {name} without a gap: this program has begun to read it by input() "
                "or sys.stdin, which read ahead. Use os.read(0, ...), or read only in the pipeline."
            )
        descriptor = stream.descriptor
    elif isinstance(number, int):
        descriptor = number
    else:
        try:
            descriptor = os.open(name, access | OPEN_FLAGS | flags, 0o666)
        except OSError as error:
            reason = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
            raise CannotOpen(f"Cannot {use} {name}: {reason}.") from error
        own.callback(os.close, descriptor)
    try:
        try:
            _check_access(descriptor, access)
        except OSError as error:
            raise CannotOpen(
                f"Cannot {use} {name}: it is closed, or only open to be {wrong}."
            ) from error
        yield descriptor, own
    except BaseException:
        own.close()
        raise


def _check_access(descriptor: int, access: int) -> None:
    os.fstat(descriptor)
    # Windows does not report how a descriptor is open; there the first use of a wrong one fails.
    if sys.platform != "win32":
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if flags not in (access, os.O_RDWR):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def standard_streams_of(stages: Iterable[StageInfo]) -> set[int]:
    """The numbers of the standard streams that these stages read and write."""
    used: set[object] = set()
    for stage in stages:
        if stage.files.path is not None:
            if stage.is_source:
                read = actual_input(stage.files.path)
                paths: list[Any] = files_of(read) if is_several(read) else [read]
                used.update(0 if path == "-" else path for path in paths)
            else:
                path = actual_output(stage.files.path)
                used.add(1 if path == "-" else path)
        for sink in stage.routed:
            if sink.files.path is not None:
                path = actual_output(sink.files.path)
                used.add(1 if path == "-" else path)
    return {number for number in (0, 1) if number in used}


# What is read of these is gone, also when they are opened again.
_READ_ONCE = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    getattr(stat, "S_IFSOCK", 0): "a socket",
}


def read_once(path: Paths) -> str:
    """Why this input does not begin again when it is opened again; empty if it does, and for one
    that does not exist (yet)."""
    # Any: narrowing would take a list for a path.
    actual: Any = actual_input(path)
    if is_several(actual):
        whys = [why for one in files_of(actual) if (why := read_once(one))]
        return whys[0] if whys else ""
    if actual == "-" or isinstance(actual, int):
        return f"{input_name(actual)} is read once"
    try:
        kind = _READ_ONCE.get(stat.S_IFMT(os.stat(actual).st_mode))
    except (OSError, ValueError):
        return ""
    return "" if kind is None else f"{os.fspath(actual)} is {kind}, which is read once"


def refuse_same_file(read: Paths | None, written: Path | None) -> None:
    """BuildError if the output would destroy the input: they are one regular file."""
    if read is None or written is None:
        return
    if is_several(actual_input(read)):
        for one in files_of(actual_input(read)):
            refuse_same_file(one, written)
        return
    source = _regular_file(actual_input(read), 0)
    if source is not None and source == _regular_file(actual_output(written), 1):
        raise BuildError(
            f"{input_name(read)} and {output_name(written)} are the same file: writing would "
            "destroy it before it is read, or its output would be read as input. Write to another "
            "one."
        )


class Written(NamedTuple):
    """An output: the stage that writes it, and whether it only appends."""

    stage: str
    path: Path
    appends: bool


def refuse_overwriting(outputs: Iterable[Written]) -> None:
    """BuildError if two outputs would write over each other: they are one regular file."""
    files = [(output, _regular_file(actual_output(output.path), 1)) for output in outputs]
    for (one, first), (other, second) in combinations(files, 2):
        if first is not None and first == second and not _can_share(one, other):
            raise BuildError(
                f"{one.stage} and {other.stage} would write over each other: "
                f"{_both(one.path, other.path)}. Give each a file of its own, or, unless "
                "it is compressed or rotated, let both append, as write_jsonl(path, append=True) "
                "does."
            )


def _both(one: Path, other: Path) -> str:
    first, second = output_name(one), output_name(other)
    return f"both write {first}" if first == second else f"{first} and {second} are the same file"


def _can_share(*outputs: Written) -> bool:
    paths = [actual_output(output.path) for output in outputs]
    if all(path == "-" or isinstance(path, int) for path in paths):
        # The code that opened them decides how they share their position in the file.
        return True
    if any(compression_by_name(output_name(path)) for path in paths):
        return False
    return all(map(_appends, paths, (output.appends for output in outputs)))


def _appends(path: Path, by_itself: bool) -> bool:
    descriptor = 1 if path == "-" else path
    if not isinstance(descriptor, int):
        return by_itself
    if sys.platform == "win32":
        return False
    return bool(fcntl.fcntl(standing_for(descriptor), fcntl.F_GETFL) & os.O_APPEND)


def _regular_file(path: Path, standard: int) -> object:
    """An identity that all paths of one regular file share, existing or not; None for others."""
    try:
        number = standard if path == "-" else path
        status = os.stat(standing_for(number) if isinstance(number, int) else path)
    except FileNotFoundError:
        return None if isinstance(path, int) else os.path.realpath(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def is_same_file(path: str, other: Any, *, is_input: bool) -> bool:
    """Whether `path` names the regular file that `other`, an input or an output, does."""
    if is_input and is_several(actual_input(other)):
        return any(is_same_file(path, one, is_input=True) for one in files_of(actual_input(other)))
    taken = _regular_file(actual_input(other) if is_input else actual_output(other), 1 - is_input)
    return taken is not None and taken == _regular_file(os.path.abspath(path), 1)


def check_rotation(sink: str, path: Path, given: Any) -> None:
    """BuildError unless this is how `sink` can rotate the file with this path."""
    if given is None:
        return
    # Imported here: a plain run does not.
    from penstock.streams.io.rotation import rotation_of

    rotation_of(f"{sink}(rotate=", given, ")")
    if isinstance(path, int):
        raise BuildError(f"{sink}(rotate={given!r}): {output_name(path)} has no name to be changed")


def rotation_for(path: Path, given: str | None) -> Rotation | None:
    """How the file with this path is rotated, if at all. Raises BuildError."""
    text = given or (output_rotation.get() if path == "-" else None)
    if text is None:
        return None
    # Imported here: a plain run does not.
    from penstock.streams.io.rotation import rotation_of

    return rotation_of("--rotate ", text)


def refuse_to_empty(written: Path | None) -> None:
    """BuildError if this names a file: the results of an earlier run would be lost."""
    if written is None or (written == "-" and output_rotation.get() is not None):
        return
    path = actual_output(written)
    if path != "-" and not isinstance(path, int) and _regular_file(path, 1) is not None:
        raise BuildError(
            f"This pipeline continues where the last run ended, but {output_name(path)} is emptied "
            "first, which would destroy the results of earlier runs: use write_jsonl(path, "
            "append=True), or rotate=, or append standard output by `>>`."
        )
