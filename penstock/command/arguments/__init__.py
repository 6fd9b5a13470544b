"""The command-line arguments, one function per sub-command.

Nothing of the library is imported here, so that `--help` comes at once.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.command.arguments.parsers import AddParser
from penstock.command.arguments.pipelines import (
    add_check,
    add_completion,
    add_dead_letters,
    add_draw,
    add_publish,
    add_run,
    add_status,
    add_turning_point,
)
from penstock.command.arguments.queue import add_queue
from penstock.command.arguments.state import add_state
from penstock.command.arguments.stories import add_kata, add_santa
from penstock.command.arguments.temporal import (
    add_check_workflow,
    add_counts,
    add_formula,
    add_learn,
    add_mine,
    add_monitor,
)

__all__ = ["COMMANDS"]

COMMANDS: dict[str, Callable[[AddParser], None]] = {
    "run": add_run,
    "draw": add_draw,
    "check": add_check,
    "check-workflow": add_check_workflow,
    "mine": add_mine,
    "learn": add_learn,
    "monitor": add_monitor,
    "counts": add_counts,
    "formula": add_formula,
    "publish": add_publish,
    "status": add_status,
    "dead-letters": add_dead_letters,
    "queue": add_queue,
    "state": add_state,
    "turning-point": add_turning_point,
    "kata": add_kata,
    "santa": add_santa,
    "completion": add_completion,
}
"""The sub-commands, by name."""
