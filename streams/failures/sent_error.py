"""Errors that go to another process, with their type, text and traceback."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NamedTuple, Self, cast

from penstock.streams.base.errors import JobFailed, RaisedInWorker, describe, message_of, notes_of

__all__ = ["SentError", "sendable"]


class SentError(NamedTuple):
    """An error, and its traceback, which no error keeps on its way to another process."""

    error: BaseException
    origin: RaisedInWorker | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """For an error of this process."""
        sent = sendable(error)
        is_told = isinstance(sent, JobFailed) and sent is not error
        if is_told or error.__traceback__ is None or not isinstance(error, Exception):
            return cls(sent)
        text = "".join(traceback.format_exception(error))
        return cls(sent, RaisedInWorker(text, traceback.extract_tb(error.__traceback__)))

    def raised(self) -> BaseException:
        """The error in the other process, with its traceback as its cause."""
        if self.origin is not None:
            self.error.__cause__ = self.origin
        return self.error


def sendable(error: BaseException) -> BaseException:
    """What becomes the error in a process that reads it; where none can, one that says the same."""
    copy = _copy(error)
    is_same = type(copy) is type(error) and message_of(copy) == message_of(error)
    if is_same and (not _slots(error) or _pickles_itself(error)):
        return error
    rebuilt = _Rebuilt(error)
    if type(_copy(rebuilt)) is type(error):
        return rebuilt
    told = JobFailed(f"{type(error).__name__}: {describe(message_of(error))}")
    for note in [*notes_of(error), "".join(traceback.format_exception(error))]:
        told.add_note(note)
    return told


class _Rebuilt(Exception):
    """Is unpickled as the error, whose class is not called for it.

    Python pickles an error as a call of its class with what was given to `Exception.__init__`, such
    as the text. A class with other arguments does not take that, or makes another text of it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        kind, built_in = type(self.error), _built_in(self.error)
        # With what it keeps elsewhere than in the arguments, such as the name of a file.
        _, args, *state = built_in.__reduce__(self.error)
        return _rebuild, (kind, built_in, args, _slots(self.error), *state)


def _rebuild(
    kind: type[BaseException],
    built_in: Any,
    args: tuple[Any, ...],
    slots: dict[str, Any],
    state: Any = None,
) -> BaseException:
    error: BaseException = built_in.__new__(kind, *args)
    # Sets what a built-in class keeps outside the attributes, such as the code of a SystemExit.
    built_in.__init__(error, *args)
    if state is not None:
        built_in.__setstate__(error, state)
    for name, value in slots.items():
        object.__setattr__(error, name, value)
    return error


def _built_in(error: BaseException) -> Any:
    """The class of Python that the class of the error derives from."""
    return next(base for base in type(error).__mro__ if base.__module__ == "builtins")


def _slots(error: BaseException) -> dict[str, Any]:
    """What it keeps in `__slots__`, which the pickle of an error leaves out."""
    state: Any = object.__getstate__(error)
    return cast(dict[str, Any], state[1]) if type(state) is tuple else {}


def _pickles_itself(error: BaseException) -> bool:
    return type(error).__reduce__ is not _built_in(error).__reduce__


def _copy(error: BaseException) -> Any:
    """The error as another process reads it; None if it cannot."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return None
