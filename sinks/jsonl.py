r"""Write each value as a line of JSON.

Items:   one line for each event, in order, ended by `\n`, as orjson encodes it (dataclasses,
         datetimes and UUIDs too; no NaN or infinity, no integer beyond 64 bits). A msgspec Struct
         and a pydantic model are encoded by their own library.
Time:    a batch is written when it has 64 KiB or 512 events, or at the end of the loop iteration.
         No timers. A full pipe or socket never blocks the loop; a regular file is written on the
         loop, for as long as its disk takes, and for ever if a network file system hangs.
Memory:  at most 1,024 events and their lines.
Demand:  1,024 at first, then one for each event whose line is written; so a slow reader slows the
         pipeline.
Ends:    an event is finished when the system has taken its line. At the end of the stream, also by
         an error, accepted events are still written. On cancel the rest of a partly written line is
         written if there is room for it within a second; events not written are returned. A file is
         closed, standard output and descriptors stay open.
Errors:  a value that cannot be encoded fails its event: the pipeline stops, or `on_error="skip"` or
         `route(sink)` go on. An output that cannot be opened is CannotOpen, and so is a compressed
         file to append to that ends inside a member, because what follows could not be read: it is
         read to its end at the start. A full disk is the system's OSError with the
         output's name, and the line that it cut off is removed again, or when the next run appends
         to the file, with a warning; a reader that has closed the pipe (`| head`) ends the pipeline
         as OutputClosed, which is not a failure.

    source        --a--b----------(cd)----|
    write_jsonl   --a\n-b\n-------c\nd\n--|
"""

from __future__ import annotations

from typing import Any

from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import OnError, check_policy
from penstock.streams.io.compression import check_suffix
from penstock.streams.io.encoding import json_line, json_lines
from penstock.streams.io.line_sinks import described, writing
from penstock.streams.io.paths import Path, check_rotation, output_name, rotation_for
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["write_jsonl"]


@recorded
def write_jsonl(
    path: Path = "-",
    *,
    append: bool = False,
    rotate: str | None = None,
    on_error: OnError = "stop",
) -> Sink[Any]:
    """Write JSON lines to a file, a pipe or standard output.

    `path` is a file's name (`.gz`, `.zst`, `.bz2` and `.xz` are compressed; with `append` each
    batch by itself, so that a run that is killed can be continued), "-" for standard output, or an
    open descriptor, which stays open. The file is opened when a run starts, and truncated unless
    `append`; a pipeline that continues an earlier one (`position=`) is refused without `append`.

    With `rotate`, a size such as "100MB" or a time such as "1h", or both with a comma, the file is
    appended to, and renamed before it is larger, or when the time is over: `out.jsonl` to
    `out-2026-11-30T21-00-00.000.jsonl`, with the UTC time of that, which never goes back. Times are
    whole periods since 1970 in UTC, so "1h" ends at each full hour. Only one run may write the
    file.

    Raises BuildError for wrong options, MissingExtra for `.zst` without the extra `zstd`.

    >>> from penstock import from_iterable, write_jsonl
    >>> print(from_iterable([{"id": 1}]).to(write_jsonl("orders.jsonl")))
    <Pipeline from_iterable > write_jsonl>
    """
    check_policy(on_error, "write_jsonl")
    check_suffix(output_name(path))
    check_rotation("write_jsonl", path, rotate)
    return _JsonLines(path, append, rotate, on_error)


class _JsonLines(Sink[Any]):
    def __init__(self, path: Path, append: bool, rotate: str | None, on_error: OnError) -> None:
        self.info = described("write_jsonl", path, append, rotate, on_error)
        self._path = path
        self._append = append
        self._rotate = rotate
        self._on_error: OnError = on_error
        self.encode = json_line

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        return writing(
            run,
            closed,
            self._path,
            json_lines,
            self._on_error,
            rotation_for(self._path, self._rotate),
            append=self._append,
            encoded=self in run.overrides.encoded,
        )
