"""All error classes of penstock.

The user's own exceptions keep their type; the stage and the event are added as a note.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, cast

from penstock.streams.base.duration import in_seconds, is_duration

if TYPE_CHECKING:
    from datetime import timedelta
    from traceback import StackSummary

# Errors in a group that its message names.
_SHOWN_OF_GROUP = 3

__all__ = [
    "CALL_ERRORS",
    "AnswerTimeout",
    "BadArgument",
    "BadDefinition",
    "BadLimit",
    "BadLine",
    "BadOverload",
    "BadRow",
    "BadWait",
    "BatchContractError",
    "BufferFull",
    "BuildError",
    "CannotConnect",
    "CannotOpen",
    "ColumnMissing",
    "CostTooHigh",
    "DatabaseUnavailable",
    "DeliveriesExceeded",
    "DrainTimeout",
    "Dropped",
    "Duplicate",
    "EventOmitted",
    "FolderInUse",
    "HandlerCancelled",
    "HandlerTimeout",
    "HoldExceeded",
    "InboxClosed",
    "InputCorrupt",
    "JobFailed",
    "KeyOverShare",
    "LeaseLost",
    "LineTooLong",
    "MissingExtra",
    "NoLoop",
    "NotAllFinished",
    "NotNamed",
    "NotPicklable",
    "OutputClosed",
    "PayloadTooLarge",
    "PenstockError",
    "PoolBusy",
    "ProducerFailed",
    "ProducerFenced",
    "PublishFailed",
    "RaisedInWorker",
    "Returned",
    "RightsMissing",
    "ServerTooOld",
    "Snooze",
    "SpillBroken",
    "StreamDiffers",
    "StreamMissing",
    "TableMissing",
    "TimeAhead",
    "TooManyStages",
    "UnfinishedResult",
    "WorkerLost",
    "WrongType",
    "add_note",
    "as_raised",
    "cancelled_inside",
    "cancelled_outside",
    "check_plain",
    "counted",
    "describe",
    "message_of",
    "not_awaited",
    "notes_of",
    "own_error",
    "place_in",
    "printable",
    "refuse_async",
    "refuse_async_methods",
]


class PenstockError(Exception):
    """The root of all errors of this package."""


class BuildError(PenstockError):
    """A pipeline cannot work; raised before anything runs."""


class BadArgument(BuildError, ValueError):
    """An argument has an invalid value, such as a limit of 0."""


class WrongType(BuildError, TypeError):
    """An argument is of an invalid type, such as a number for an operator."""


class BadDefinition(BuildError):
    """A definition, or a file of one, says what is not possible; `path` is where it says so."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{place_in(self.path)}: {self.message}" if self.path else self.message


def place_in(path: tuple[str | int, ...]) -> str:
    """A place in a definition, in words: `operator 2, on_error`."""
    words: list[str] = []
    for part in path:
        if isinstance(part, str):
            words.append(part)
        elif words[-1] in ("operators", "sinks"):
            words[-1] = f"{words[-1][:-1]} {part + 1}"
        else:
            words[-1] += f" {part + 1}"
    return ", ".join(words)


class NotNamed(BuildError):
    """A pipeline has what a file cannot name, such as a lambda."""


class TooManyStages(BuildError, RecursionError):
    """A pipeline has more stages in a row than Python's recursion limit allows."""


class CannotOpen(BuildError):
    """An input or output cannot be opened; raised before anything is read or written."""


class FolderInUse(CannotOpen):
    """The servers of another process use this data folder."""


class TableMissing(CannotOpen):
    """A table that the user named is not in the database."""


class ColumnMissing(CannotOpen):
    """A table lacks columns that are needed."""


class RightsMissing(CannotOpen):
    """A database or NATS server does not grant the rights that are needed."""


class NoLoop(PenstockError):
    """Something that needs a running event loop was used without one."""


class MissingExtra(PenstockError):
    """A feature needs a package that is installed with an extra of penstock."""


class BufferFull(PenstockError):
    """An event arrived at a bounded buffer that was full and whose policy is `error`."""


class HoldExceeded(PenstockError):
    """A stage would have to hold more events than allowed."""


class KeyOverShare(PenstockError):
    """An event came for a key that has its share of the buffer of a `group_by`."""


class SpillBroken(PenstockError):
    """Values that were written to a temporary file cannot be read back."""


class CostTooHigh(PenstockError):
    """An event costs more than its rate limit ever lets pass at once."""


class UnfinishedResult(PenstockError):
    """A handler returned unfinished work: a coroutine not awaited, or a generator."""


class HandlerCancelled(PenstockError):
    """A handler was cancelled, and not by the pipeline: from inside, or with its task."""


class BatchContractError(PenstockError):
    """A batch handler did not return one result for each event."""


class HandlerTimeout(PenstockError, TimeoutError):
    """A handler did not end within its timeout."""


class NotAllFinished(PenstockError):
    """A run has ended with some events bad, failed or unfinished, or has not ended yet."""


class NotPicklable(PenstockError):
    """A value or a result cannot be pickled for another process."""


class DrainTimeout(PenstockError):
    """The deadline of a drain passed while events were still unfinished."""


class BadLimit(PenstockError):
    """A limiter proposed something that is not a limit."""


class BadOverload(PenstockError):
    """A function given as `overload=` returned neither a bool nor seconds to hold back for."""


class BadWait(PenstockError):
    """A function given as `retry(wait=)` returned neither seconds to wait nor None."""


class BadLine(PenstockError):
    """No event can be made from a line of the input, such as one that is not a JSON object."""

    place = ""
    """Where the line is: the input and the number of the line, without anything of its text."""


class LineTooLong(BadLine):
    """A line of the input is longer than the limit."""


class BadRow(BadLine):
    """No event can be made from the payload of a queue's row."""


class Snooze(PenstockError):
    """Raised by a handler to have its event again in `seconds`, or a timedelta: it has not failed.

    `read_table` counts no attempt, whatever `on_error` says. Any other source that can give an
    event again does so as with `"revert"`; with one that cannot, it is an error like any other.
    """

    def __init__(self, seconds: float | timedelta) -> None:
        if not is_duration(seconds):
            raise BadArgument(
                f"Snooze({seconds!r}): seconds, or a timedelta, of 0 or more are needed"
            )
        super().__init__(seconds)
        self.seconds = in_seconds(seconds)

    def __str__(self) -> str:
        return f"again in {self.seconds:g} s"


class DeliveriesExceeded(PenstockError):
    """A message was not finished, and its consumer has delivered it as often as it ever does."""


class LeaseLost(PenstockError):
    """A row went to another reader before it was done, and its outcome is void; or its readers
    crashed or hung until it had no attempt left."""


class DatabaseUnavailable(PenstockError):
    """A database was unavailable for longer than the reader's patience, or its file was taken
    away; or the servers of a store took no commit while the run ended."""


class InboxClosed(PenstockError):
    """An event was refused by an inbox whose pipeline drains or has ended."""


class Returned(PenstockError):
    """An event was returned to its source before it was finished."""


class Dropped(PenstockError):
    """An event that a caller has asked about ended without a result: it was dropped on purpose, or
    is kept in a state."""

    cause = ""
    """Why, as in the statistics: "filter", "duplicate", "no results", the name of an operator; and
    "in a state" if a state, a window, a join or a look-up keeps it: its results come with other
    events."""


class Duplicate(Dropped):
    """An event that a caller has asked about was a duplicate, and the answer about the first one
    is not kept."""


class AnswerTimeout(PenstockError, TimeoutError):
    """An event that a caller has asked about did not end in time; it goes on."""


class InputCorrupt(PenstockError):
    """A compressed input is damaged or ends too early."""


class OutputClosed(PenstockError):
    """The reader of the output has closed it."""


class CannotConnect(BuildError):
    """No server answers, or none accepts the connection."""


class ServerTooOld(BuildError):
    """A server lacks a required feature."""


class StreamDiffers(BuildError):
    """A stream exists on the server with other settings than required."""


class StreamMissing(CannotOpen):
    """A stream, or a consumer of it, does not exist on the server."""


class JobFailed(PenstockError):
    """A job failed for good on a worker, or crashed its workers."""


class RaisedInWorker(PenstockError):
    """The traceback of an error in a worker process: the cause of the error that is raised here.

    `stack` has its frames.
    """

    def __init__(self, text: str, stack: StackSummary) -> None:
        super().__init__(text, stack)
        self.stack = stack

    def __str__(self) -> str:
        return f"in a worker process\n{self.args[0]}"


class WorkerLost(PenstockError):
    """An event crashed its workers, or blocked them for longer than a lease."""


class PoolBusy(PenstockError):
    """A second epic was offered to a work pool while one is in progress."""


class PayloadTooLarge(PenstockError):
    """An event is larger than the server accepts."""


class PublishFailed(PenstockError):
    """No server confirmed that it stored an event."""


class ProducerFailed(PublishFailed):
    """A producer can send nothing more, whatever the event."""


class ProducerFenced(ProducerFailed):
    """Another producer has taken over the transactions of this one."""


class TimeAhead(PenstockError, ValueError):
    """The time of an event is further ahead of the wall clock than `max_ahead` allows."""


class EventOmitted(PenstockError):
    """The event of a dead letter was too large to be stored with it."""


def as_raised(error: BaseException) -> BaseException:
    """`error`, or what a coroutine or an iterator raises in its place, with the same notes.

    Python would turn a StopIteration into a RuntimeError without notes, or the end of an iterator.
    """
    if not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    raised = RuntimeError(f"{describe(error)} was raised, and not by an iterator at its end")
    raised.__cause__ = error
    for note in notes_of(error):
        raised.add_note(note)
    return raised


def notes_of(error: BaseException) -> list[str]:
    """The notes of an error; none if its class has made anything else of them."""
    notes: object = error.__dict__.get("__notes__")
    if not isinstance(notes, list):
        return []
    return [note for note in cast("list[object]", notes) if isinstance(note, str)]


def counted(number: int, one: str, many: str = "") -> str:
    """`1 worker`, `2 workers`; `many` is what is not made by an s, as in `1 event has`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def add_note(error: BaseException, note: str) -> None:
    """`error.add_note(note)`, also if its class refuses that, as a frozen dataclass does."""
    error.__dict__["__notes__"] = [*notes_of(error), note]


CALL_ERRORS = (Exception, CancelledError)
"""What a plain function may raise as an error of its event.

The pipeline cannot cancel it, so a CancelledError is its own, such as that of a future it reads.
"""


def own_error(raised: BaseException, what: str = "a function of the stream") -> Exception:
    """The error of a plain function, `what`, that has raised one of `CALL_ERRORS`."""
    if isinstance(raised, CancelledError):
        return cancelled_inside(what, raised)
    assert isinstance(raised, Exception)
    return raised


def cancelled_inside(what: str, cause: BaseException) -> HandlerCancelled:
    """The error of a call of `what` that was cancelled, but not by the pipeline."""
    inside = HandlerCancelled(f"{what} was cancelled from inside")
    inside.__cause__ = cause
    return inside


def cancelled_outside(task: str, cause: BaseException) -> HandlerCancelled:
    """The error of a task that was cancelled, but not by the pipeline."""
    outside = HandlerCancelled(
        f"{task} was cancelled, and not by the pipeline: asyncio.run() cancels all tasks when its "
        "coroutine has returned, so await the end there: await running.wait()"
    )
    outside.__cause__ = cause
    return outside


def describe(value: object, limit: int = 200) -> str:
    """`value` as one short line for a message; a `__repr__` that raises is named, not fatal."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"


def message_of(error: BaseException, limit: int | None = None) -> str:
    """The message of `error`, printable; a `__str__` that raises is named, not fatal.

    That of a group, as an `asyncio.TaskGroup` raises, has the first errors in it.
    """
    try:
        text = printable(str(error)) + _errors_in(error)
    except Exception as second:
        return f"<{type(error).__name__} whose str raised {type(second).__name__}>"
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text):,} characters)"


def _errors_in(error: BaseException) -> str:
    """The first errors in a group of errors, as the end of its message; nothing for any other."""
    if not isinstance(error, BaseExceptionGroup):
        return ""
    errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
    shown = [
        ": ".join(filter(None, (type(inner).__name__, message_of(inner))))
        for inner in errors[:_SHOWN_OF_GROUP]
    ]
    if len(errors) > _SHOWN_OF_GROUP:
        shown.append(f"and {len(errors) - _SHOWN_OF_GROUP:,} more")
    return f": {'; '.join(shown)}"


def printable(text: str) -> str:
    """`text` without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def not_awaited(call: object) -> None:
    """Let go of what a handler returned: a coroutine would warn that nobody awaited it."""
    close: Callable[[], None] | None = getattr(call, "close", None)
    if close is not None:
        close()


def refuse_async(function: object, name: str) -> None:
    """Raise WrongType for an async function in place of a method that nothing awaits."""
    if iscoroutinefunction(function) or isasyncgenfunction(function):
        raise WrongType(
            f"{name} is async, and nothing awaits it: make it plain, and let it start a task by "
            "run.spawn(coroutine, name)"
        )


def refuse_async_methods(kind: type) -> None:
    """Raise WrongType if a class of the user's has an async method in place of a plain one."""
    for name, made in vars(kind).items():
        if isfunction(made) and any(_is_plain(vars(base).get(name)) for base in kind.__mro__[1:]):
            refuse_async(made, f"{kind.__name__}.{name}")


def _is_plain(method: object) -> bool:
    return callable(method) and not iscoroutinefunction(method)


# A result with one of these methods is worked out later.
_UNREAD = ("__await__", "__anext__", "__next__")


def check_plain(
    result: object,
    name: str,
    stage: str,
    instead: str = "give the function to adaptive_flat_map, which does",
    *,
    answers: bool = False,
) -> None:
    """Raise UnfinishedResult for a coroutine that a function returned which `stage` only calls.

    `answers`: the result is a key or a truth, which nothing that is awaited or iterated over is; as
    a value a future or a stream has its uses.
    """
    later: tuple[str, ...] = _UNREAD if answers else ()
    if issubclass(type(result), Coroutine) or any(hasattr(type(result), name) for name in later):
        not_awaited(result)
        raise UnfinishedResult(
            f"'{name}' returned {describe(result, 80)}, which {stage} does not await: {instead}"
        )
