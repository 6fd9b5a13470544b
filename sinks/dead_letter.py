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
         by a full disk or a kill is terminated first, unless the file is compressed.
Errors:  none for a letter, since every one can be encoded. A file that cannot be opened is
         CannotOpen; an output that breaks, such as a full disk, stops the pipeline: a failed event
         must not vanish.

    events that failed   --a-----b----|
    dead_letters         --A\n---B\n--|
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from orjson import OPT_APPEND_NEWLINE, OPT_NON_STR_KEYS, dumps

from penstock.streams import clock
from penstock.streams.errors import describe, message_of, printable
from penstock.streams.failures.policy import DeadLetter, LettersOnly
from penstock.streams.io.compression import check_suffix
from penstock.streams.io.encoding import as_json
from penstock.streams.io.line_writer import WINDOW, LineWriting
from penstock.streams.io.paths import Path, output_name
from penstock.streams.protocol.blame import notes_about
from penstock.streams.protocol.sink_stage import Closed, Sink, SinkStage
from penstock.streams.protocol.stage import StageInfo
from penstock.streams.runtime.context import Run

__all__ = ["dead_letters"]

_LONGEST_REPR = 65_536


def dead_letters(path: Path) -> Sink[DeadLetter]:
    """A sink for `route(...)`, `retry(..., then=route(...))` and `on_bad_line=route(...)`.

    `path` is a file's name, which is appended to (`.gz` and `.zst` are compressed), "-" for
    standard output, or an open descriptor. Raises MissingExtra for `.zst` without the extra zstd.
    In `to(...)` it is a BuildError, because events there have not failed.
    """
    check_suffix(output_name(path))
    return _DeadLetters(path)


class _DeadLetters(Sink[DeadLetter], LettersOnly):
    def __init__(self, path: Path) -> None:
        self.info = StageInfo(
            "dead_letters", output_name(path), WINDOW, "appends", path=path, appends=True
        )
        self._path = path

    def open(self, run: Run, closed: Closed) -> SinkStage[DeadLetter]:
        return LineWriting(run, closed, self._path, _encoder(run.now), "stop", append=True)


def _encoder(now: Callable[[], float]) -> Callable[[DeadLetter], bytes]:
    offset = clock.wall() - now()

    def moment(seconds: float) -> str:
        return datetime.fromtimestamp(seconds + offset, UTC).isoformat(timespec="microseconds")

    def line(letter: DeadLetter) -> bytes:
        error = letter.error
        notes = notes_about(error, letter.stage, letter.value, letter.token)
        fields: dict[str, Any] = {
            "value": letter.value,
            "error": type(error).__name__,
            "message": message_of(error),
            "notes": [printable(str(note)) for note in notes],
            "stage": letter.stage,
            "attempts": letter.attempts,
            "created": moment(letter.created),
            "failed": moment(letter.failed),
            "token": letter.token,
        }
        try:
            return _dumps(fields)
        except TypeError:
            fields["value"] = _repr(letter.value)
            fields["token"] = _repr(letter.token)
            return _dumps(fields)

    return line


def _dumps(fields: dict[str, Any]) -> bytes:
    return dumps(fields, default=_shown, option=OPT_APPEND_NEWLINE | OPT_NON_STR_KEYS)


def _shown(value: object) -> Any:
    try:
        return as_json(value)
    except Exception:
        return _repr(value)


def _repr(value: object) -> str:
    return printable(describe(value, _LONGEST_REPR))
