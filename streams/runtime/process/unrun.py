"""A hint at the end of a script that makes a pipeline and does nothing with it."""

from __future__ import annotations

import atexit
import os
import sys

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
            atexit.register(_say, kind, os.path.basename(path))


def _say(kind: type, file: str) -> None:
    # A script that has failed has said so, and somebody who types, or has no standard error, needs
    # no hint.
    is_silent = hasattr(sys, "last_type") or sys.flags.interactive or sys.stderr is None
    if _is_used or is_silent or _is_child():
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


def _is_child() -> bool:
    """Whether this process is a worker of another one, which imports the script for itself."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None
