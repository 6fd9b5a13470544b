"""Notes on a user's exception: the stage in which it was raised, and the event."""

from __future__ import annotations

from typing import Any

from penstock.streams.base.errors import add_note, describe, notes_of, own_error
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.identity import identities, shown
from penstock.streams.protocol.stage_info import StageInfo

__all__ = [
    "blame",
    "ends_nothing",
    "error_in",
    "event_name",
    "fail_event",
    "has_blamed",
    "identify",
    "identify_in",
    "is_ours",
    "note_end",
    "note_stage",
    "notes_about",
]


def blame(error: BaseException, info: StageInfo, event: Event[Any]) -> None:
    """Note the stage and the event on the user's exception, which keeps its type."""
    # As `add_note` does: the exception may refuse it.
    mark = _mark(event)
    if identity := shown(identities(event)):
        mark = f"{f'line {mark}' if isinstance(mark, int) else mark}; {identity}"
    error.__dict__["__notes__"] = notes_about(error, str(info), event.value, mark)


def identify(error: BaseException, event: Event[Any]) -> None:
    """Add the identity of the event to the notes of an error from a process that has none."""
    if notes := notes_of(error):
        error.__dict__["__notes__"] = [identify_in(str(note), event) for note in notes]


def identify_in(text: str, event: Event[Any]) -> str:
    """A text in which the event is named, with its identity in addition."""
    mark = f"line {event.token})" if isinstance(event.token, int) else f"{event.token})"
    identity = shown(identities(event))
    before, found, after = text.rpartition(mark)
    return f"{before}{found[:-1]}; {identity}){after}" if found and identity else text


def fail_event(event: Event[Any], raised: BaseException, info: StageInfo) -> Exception:
    """Fail the event for which a function has raised one of `CALL_ERRORS`; returns its error."""
    error = own_error(raised)
    blame(error, info, event)
    event.fail(error)
    return error


def error_in(info: StageInfo, raised: BaseException) -> Exception:
    """The error of a function that has raised one of `CALL_ERRORS`, and no event is to blame."""
    error = own_error(raised)
    add_note(error, f"in {info}")
    return error


def has_blamed(error: BaseException) -> bool:
    """Whether a stage has noted on an error for which event it was raised."""
    return any(_ON_EVENT in note for note in notes_of(error))


def note_end(error: BaseException, *, ends: bool) -> None:
    """Note on the error of an event that it ends a stream, or that the stage goes on."""
    error.__dict__[_ENDS_NOTHING] = not ends


def ends_nothing(error: object) -> bool:
    """Whether the stage in which an event has failed with this error goes on."""
    return bool(getattr(error, _ENDS_NOTHING, False))


_ENDS_NOTHING = "__penstock_ends_nothing__"
_ON_EVENT = ", on the event "


def note_stage(error: BaseException, info: StageInfo) -> None:
    """Note the stage on an error, unless a note names it already, alone or with an event."""
    where = f"in {info}"
    # An exception object that is raised again and again would collect notes.
    if not any(note.startswith(where) for note in notes_of(error)):
        add_note(error, where)


def notes_about(error: BaseException, stage: str, value: Any, token: Any) -> list[str]:
    """The notes of an error, with a note about the stage in which this event has failed.

    Without those of other events there: several fail by one error if a handler keeps it, such as
    that of a look-up that they share.
    """
    where = f"in {stage}{_ON_EVENT}"
    note = where + _name(value, token)
    notes = notes_of(error)
    if note not in notes:
        notes.append(note)
    return [one for one in notes if one == note or not one.startswith(where)]


def event_name(event: Event[Any]) -> str:
    """The name of an event in messages: its value, and its source's identifier if it has one."""
    return _name(event.value, _mark(event))


def event_place(event: Event[Any]) -> str:
    """Where an event comes from, without its value: its source's identifier, "" if it has none."""
    mark = _mark(event)
    return "" if mark is None else f"line {mark}" if isinstance(mark, int) else str(mark)


def _mark(event: Event[Any]) -> Any:
    """The token of an event; for a line, its number and the name of its file."""
    if isinstance(event.token, int):
        for origin, token in roots(event):
            # Only a source of lines has one.
            file = getattr(origin, "file", "")
            if token == event.token and file:
                return f"{file}, line {token}"
    return event.token


def _name(value: Any, token: Any) -> str:
    if token is None:
        return describe(value)
    # A bare number, as of read_jsonl, is that of a line; other sources name theirs.
    mark = f"line {token}" if isinstance(token, int) else token
    return f"{describe(value)} ({mark})"


def is_ours(module: str) -> bool:
    """Whether a module belongs to this library."""
    return module.partition(".")[0] == "penstock"
