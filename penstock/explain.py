"""Tell a user what went wrong, on standard error, without a word about our own insides."""

from __future__ import annotations

import os
from functools import cache
from traceback import TracebackException

from penstock.shadow import PACKAGES
from streams.errors import PenstockError

__all__ = ["explain", "users_line"]

_HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def explain(error: BaseException, *, whole: bool = False) -> str:
    """The error as Python shows it, with its notes, but only the user's own frames.

    An error of penstock's own is only its message and notes. `whole` keeps everything.
    """
    if isinstance(error, PenstockError) and not whole:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    trace = TracebackException.from_exception(error)
    if not whole:
        _keep_users_frames(trace)
    return "".join(trace.format()).rstrip("\n")


def _keep_users_frames(trace: TracebackException | None) -> None:
    if trace is None:
        return
    trace.stack[:] = [frame for frame in trace.stack if not frame.filename.startswith(_insides())]
    if not trace.stack:
        # None, or the heading "Traceback" would introduce nothing in some versions of Python.
        trace.stack = None  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        _keep_users_frames(other)


@cache
def _insides() -> tuple[str, ...]:
    # Imported here: slow to import, and needed only when something goes wrong.
    import sysconfig

    paths = sysconfig.get_paths()
    folders = [
        *(os.path.join(_HOME, name) for name in ("penstock", *PACKAGES)),
        *(os.path.join(paths["purelib"], name) for name in ("reactivex", "uvloop")),
        *(os.path.join(paths["stdlib"], name) for name in ("asyncio", "concurrent")),
    ]
    # The last one is what dataclasses generate.
    return (*(folder + os.sep for folder in folders), "uvloop/", "<frozen ", "<string>")


def users_line(error: BaseException) -> str | None:
    """`file:line` of the innermost frame that is the user's, if there is one."""
    import sysconfig

    trace = TracebackException.from_exception(error)
    not_theirs = (*_insides(), sysconfig.get_paths()["stdlib"] + os.sep)
    for frame in reversed(trace.stack):
        if not frame.filename.startswith(not_theirs):
            return f"{frame.filename}:{frame.lineno}"
    return None
