"""Import guard: the file of a pipeline must not run it while another program imports it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.streams.base.errors import BuildError

__all__ = ["check_not_loading", "loading"]

_loading = ContextVar("loading", default=False)


@contextmanager
def loading() -> Generator[None]:
    """Inside, the file of a pipeline is being imported: running one is a BuildError."""
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


def check_not_loading() -> None:
    """Raise BuildError inside `loading`."""
    if _loading.get():
        raise BuildError(
            "the file runs a pipeline while it is loaded, which is for the command or the worker "
            'process that loads it. Put code for scripts only under `if __name__ == "__main__":`'
        )
