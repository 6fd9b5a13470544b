r"""Write dead letters to a file, one JSON object per line.

Items:   one line for each letter, in order: `value`, `error` (its type), `message`, `notes`,
         `stage`, `attempts`, `created` and `failed` (ISO 8601, UTC), `token` (the source's own
         identifier, such as a line's number). Values are written as by `write_jsonl`, and others as
         their `repr`.
Time:    a batch is written when it has 64 KiB or 512 letters, or at the end of the loop iteration,
         without timers; see `write_jsonl` for what a slow output does.
Memory:  at most 1,024 letters and their lines.
Demand:  1,024 at first, then one for each letter whose line is written.
Ends:    a letter is accepted, and its event acknowledged, when the system has taken its line. The
         file is opened for appending: the letters of an earlier run stay. A line that was cut off
         by a full disk or a kill is removed first, with a warning.
Errors:  none for a letter, since every one can be encoded. A file that cannot be opened is
         CannotOpen, and so is a compressed one that ends inside a member. An output that breaks,
         such as a full disk, stops the pipeline: a failed event must not vanish.

    events that failed   --a-----b----|
    dead_letters         --A\n---B\n--|
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.streams.base.recorded import recorded
from penstock.streams.failures.policy import DeadLetter, LettersOnly
from penstock.streams.io.compression import check_suffix
from penstock.streams.io.letter_line import letter_line
from penstock.streams.io.line_writer import WINDOW, LineWriting
from penstock.streams.io.paths import Path, output_name
from penstock.streams.protocol.stage_info import Files, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["dead_letters"]


@recorded
def dead_letters(path: Path) -> Sink[DeadLetter]:
    """A sink for `route(...)`, `retry(..., then=route(...))` and `on_bad_line=route(...)`.

    `path` is a file's name, which is appended to (`.gz`, `.zst`, `.bz2` and `.xz` are compressed,
    each batch by itself), "-" for standard output, or an open descriptor. Raises MissingExtra for
    `.zst` without the extra zstd. In `to(...)` it is a BuildError, because events there have not
    failed.

    >>> from penstock import adaptive_flat_map, collect, dead_letters, from_iterable, route
    >>> stage = adaptive_flat_map(int, on_error=route(dead_letters("refused.jsonl")))
    >>> print(from_iterable(["1", "x"]).pipe(stage).to(collect([])))
    <Pipeline from_iterable > adaptive_flat_map > collect>
    """
    check_suffix(output_name(path))
    return _DeadLetters(path)


class _DeadLetters(Sink[DeadLetter], LettersOnly):
    def __init__(self, path: Path) -> None:
        self.info = StageInfo(
            "dead_letters",
            output_name(path),
            WINDOW,
            "appends",
            files=Files(path=path, appends=True),
        )
        self._path = path

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        line = letter_line(run.now)

        def lines(letters: Iterable[DeadLetter]) -> bytes:
            return b"".join(map(line, letters))

        return LineWriting(run, closed, self._path, lines, "stop", append=True)
