"""A hint at the end of a script that makes a pipeline and does nothing with it."""

from __future__ import annotations

import atexit
import os
import sys
from inspect import currentframe
from types import FrameType

__all__ = ["hint_if_unused", "note_use"]

_is_used = False
_is_registered = False


def note_use() -> None:
    """A pipeline or a stream is run or described, so that the script has done something."""
    global _is_used
    _is_used = True


def hint_if_unused(kind: type) -> None:
    """Once this process ends, say on standard error which pipelines, of this class, its script has
    as global variables, if it has used none."""
    global _is_registered
    if not _is_registered:
        _is_registered = True
        # Read now, because Python removes it before it ends. A notebook has none.
        path: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
        if path is not None:
            atexit.register(_say, kind, os.path.basename(path), _body())


def _say(kind: type, file: str, body: FrameType | None) -> None:
    # Somebody who types, or has no standard error, needs no hint.
    is_silent = sys.flags.interactive or sys.stderr is None
    if _is_used or is_silent or _is_child() or not _has_returned(body):
        return
    main = vars(sys.modules["__main__"])
    made = [name for name, value in main.items() if isinstance(value, kind)]
    if made:
        print(
            f"penstock: nothing ran: {file} makes {', '.join(map(repr, made))}, and does not run "
            f"it. `penstock run {file}` does; or write `run({made[0]})` in the file, under "
            '`if __name__ == "__main__":`.',
            file=sys.stderr,
        )


def _body() -> FrameType | None:
    """The call of the script's own code, if this is called from there."""
    main, frame = vars(sys.modules["__main__"]), currentframe()
    while frame and not (frame.f_globals is main and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return frame


def _has_returned(body: FrameType | None) -> bool:
    """Whether the script ran to its end. One that has failed or exited has said what it had to."""
    # Imported here: a script that runs something does not need it.
    from dis import opname

    return body is not None and opname[body.f_code.co_code[body.f_lasti]].startswith("RETURN")


def _is_child() -> bool:
    """Whether this process is a worker of another one, which imports the script for itself."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None
