"""The command `penstock`: `penstock.command`, ended cleanly by a signal while it is imported."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from penstock.command.interrupt import Interrupted, raising

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `sys.argv[1:]` or `arguments`; returns the exit status.

    0 all finished; 1 stopped by an error, or a workflow's rule is broken; 2 usage, or a pipeline
    that cannot be built; 3 completed, but some lines or events were bad, skipped or routed; 4
    drained on a signal; 5 cancelled with unfinished events; 128 plus the signal's number if one
    came before anything had begun. Raises SystemExit(2) for a wrong command line.
    """
    if arguments is not None:
        from penstock.command.dispatch import run_command

        return run_command(list(arguments))
    # Kept, because `sys.argv` is the file's while a pipeline file is loaded.
    words = sys.argv[1:]
    report = _options("--report", words) or [os.environ.get("PENSTOCK_REPORT", "")]
    # Imported modules stay. Collecting garbage among them meanwhile takes a tenth of the start.
    gc.disable()
    try:
        with raising():
            from penstock.command.dispatch import run_command

            return run_command(words, alone=True)
    except Interrupted as interrupted:
        # A caller without a report, such as the parent of workers, reads the exit status.
        if "none" not in report:
            from penstock.command.output import mention

            mention(f"{interrupted} before anything was begun")
        return interrupted.exit_status
    finally:
        gc.enable()


def _options(name: str, arguments: Sequence[str]) -> list[str]:
    """The values of an option on a command line that is not parsed yet."""
    return [value for word, value in pairwise(arguments) if word == name]


if __name__ == "__main__":
    sys.exit(main())
