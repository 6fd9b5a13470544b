"""Whose code failed, in which stage, on which event: the notes on a user's exception."""

from __future__ import annotations

from typing import Any

from penstock.streams.errors import describe
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo

__all__ = ["blame", "event_name", "is_ours"]


def blame(error: BaseException, info: StageInfo, event: Event[Any]) -> None:
    """Note the stage and the event on the user's exception, which keeps its type."""
    note = f"in {info}, on the event {event_name(event)}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def event_name(event: Event[Any]) -> str:
    """The name of an event in messages: its value, and its source's identifier if it has one."""
    token = event.token
    if token is None:
        return describe(event.value)
    # A bare number, as of read_jsonl, is that of a line; other sources name theirs.
    mark = f"line {token}" if isinstance(token, int) else token
    return f"{describe(event.value)} ({mark})"


def is_ours(module: str) -> bool:
    """Whether a module belongs to this library."""
    return module.partition(".")[0] == "penstock"
