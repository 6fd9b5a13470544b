"""What sinks that write lines have in common: their description, and their stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.streams.failures.policy import OnError, routed_by
from penstock.streams.io.line_writer import WINDOW, LineWriting
from penstock.streams.io.paths import Path, output_name
from penstock.streams.protocol.stage_info import Files, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Closed

if TYPE_CHECKING:
    from penstock.streams.io.rotation import Rotation

__all__ = ["described", "writing"]


def described(
    name: str, path: Path, append: bool, rotate: str | None, on_error: OnError
) -> StageInfo:
    """The description of a sink of this name that writes lines."""
    keeps = append or rotate is not None
    return StageInfo(
        name,
        output_name(path) if rotate is None else f"{output_name(path)}, rotated by {rotate}",
        WINDOW,
        "batches of 64 KiB",
        routed=routed_by(on_error),
        # No other stage may append to a file that is rotated.
        files=Files(path=path, empties=not keeps, appends=append and rotate is None),
    )


def writing(
    run: Run,
    closed: Closed,
    path: Path,
    encode: Callable[[Iterable[Any]], bytes],
    on_error: OnError,
    rotation: Rotation | None,
    *,
    append: bool,
    encoded: bool = False,
    delimiter: str = "",
    header: Callable[[], bytes] = bytes,
) -> LineWriting:
    """The stage that writes lines to a file, or with a `rotation` to one after another, each with
    this header. Raises CannotOpen, and BuildError for an output that cannot be rotated."""
    output = run, closed, path, encode, on_error
    if rotation is None:
        return LineWriting(*output, append=append, encoded=encoded, delimiter=delimiter)
    # Imported here: a plain run does not.
    from penstock.streams.io.rotating_writer import RotatingWriting

    return RotatingWriting(*output, rotation, encoded=encoded, delimiter=delimiter, header=header)
