"""Inspects a thread's stack to find which stage, event and source line it is executing."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

from penstock.streams.diagnostics.loop_lag import Blocks
from penstock.streams.protocol.blame import event_name, is_ours
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage import StageInfo

__all__ = ["Standing", "standing"]

# The functions of a loop from which everything that runs on it is called.
_LOOP_BEGINS = {
    ("asyncio.events", "Handle._run"),
    ("asyncio.runners", "Runner.run"),
    ("asyncio.base_events", "BaseEventLoop.run_until_complete"),
    ("uvloop", "run"),
}
_SERVE_US_TOO = {"reactivex", *sys.stdlib_module_names}


class Standing(NamedTuple):
    """`who` is the innermost stage, None outside any; `blocks` if the stage knows its run."""

    who: str | None
    blocks: Blocks | None
    event: str
    """What to add about the event in progress, if it is in a local variable of the stage."""
    place: str
    """The line in the function that the stage called > the innermost line outside the library."""
    is_own: bool
    """Whether the library's own code is running, or code that it may have called itself."""


def standing(thread: int) -> Standing | None:
    """The position of a thread by its id; None if it has ended.

    The thread is not involved: the local variables of the stages suffice. Time: in proportion to
    the depth of the stack.
    """
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return None
    innermost: FrameType | None = None
    called: FrameType | None = None
    ours = False
    at: FrameType | None = frame
    while at is not None:
        module = at.f_globals.get("__name__", "")
        if (module, at.f_code.co_qualname) in _LOOP_BEGINS:
            break
        ours = ours or is_ours(module)
        if not is_ours(module):
            innermost = innermost or at
            # Of these, only the functions they call are the user's.
            if module.partition(".")[0] not in _SERVE_US_TOO:
                called = at
        elif (info := _info(stage := at.f_locals.get("self"))) is not None:
            event = at.f_locals.get("event")
            return Standing(
                _who(stage, info, called),
                _blocks(stage),
                _at_work(stage, event, called),
                _place(called, innermost or frame),
                called is None,
            )
        at = at.f_back
    is_own = ours and called is None
    return Standing(None, None, "", _place(None, innermost or frame), is_own)


def _at_work(stage: object, event: object, called: FrameType | None) -> str:
    if called is None:
        in_flight = _attribute(stage, int, "in_flight")
        return f", events in flight: {in_flight:,}" if in_flight else ""
    return f" on the event {event_name(event)}" if _is_event(event) else ""


def _is_event(thing: object) -> TypeGuard[Event[Any]]:
    return isinstance(thing, Event)


def _info(stage: object) -> StageInfo | None:
    info: StageInfo | None = _attribute(stage, StageInfo, "info", "_info")
    if info is None:
        info = _attribute(getattr(stage, "_faults", None), StageInfo, "_info")
    return info


def _blocks(stage: object) -> Blocks | None:
    runs = (getattr(stage, name, None) for name in ("run", "_run"))
    found = (getattr(run, "blocks", None) for run in runs)
    return next((blocks for blocks in found if isinstance(blocks, Blocks)), None)


def _attribute(thing: object, kind: type[Any], *names: str) -> Any:
    values = (getattr(thing, name, None) for name in names)
    return next((value for value in values if isinstance(value, kind)), None)


def _who(stage: object, info: StageInfo, called: FrameType | None) -> str:
    if called is None:
        return str(info)
    # A working stage has one name in all its warnings: that of its handler if it is a user's.
    who: str = getattr(stage, "_who", str(info))
    return f"'{called.f_code.co_name}' ({info})" if who == str(info) else who


def _place(called: FrameType | None, innermost: FrameType) -> str:
    frames = [innermost] if called is None or called is innermost else [called, innermost]
    return " > ".join(
        f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        for frame in frames
    )
