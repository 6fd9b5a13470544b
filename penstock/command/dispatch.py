"""The command line. A sub-command's code is imported only when it is called."""

from __future__ import annotations

import argparse
import gc
import os
from importlib import import_module

from penstock.command.arguments import COMMANDS, add_arguments
from penstock.command.arguments.parsers import Formatter, Parser, wants_json
from penstock.command.output import flush, mention, put, use

__all__ = ["run_command", "whole_parser"]

_USAGE = 2

# The module of each sub-command, which has `call(options, words for the file)`.
_MODULES = {
    "check": "pipelines.check",
    "check-workflow": "temporal.check_workflow",
    "completion": "completion",
    "counts": "counts.command",
    "dead-letters": "cluster.dead_letters",
    "diff": "pipelines.diff",
    "distinct": "shell.distinct",
    "draw": "pipelines.draw",
    "formula": "temporal.formula",
    "kata": "kata.command",
    "learn": "temporal.learn",
    "map": "shell.map",
    "mine": "temporal.mine",
    "monitor": "temporal.monitor",
    "publish": "cluster.publish",
    "queue": "queue.command",
    "run": "pipelines.run",
    "santa": "santa.command",
    "schema": "pipelines.schema",
    "state": "state.command",
    "status": "cluster.status",
    "turning-point": "turning_point.command",
}


def run_command(words: list[str], *, alone: bool = False) -> int:
    """Run the command with these words; returns the exit status.

    `alone`: the process serves only this call and ends after it. Raises SystemExit(2) for a wrong
    command line.
    """
    for_the_file: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, for_the_file = words[:cut], words[cut + 1 :]
    _open_standard_streams()
    use(as_json=words[:1] == ["run"] and wants_json(words), least=0)
    unwritten = 0
    try:
        options = _parser(words).parse_args(words)
        status = _dispatch(options, for_the_file, alone=alone)
    finally:
        unwritten = flush()
    return status or unwritten


# The commands that take words for a Python file load one.
_TAKE_WORDS = frozenset(
    {"check", "check-workflow", "diff", "draw", "kata", "map", "mine", "publish", "run"}
    | {"turning-point"}
)

# Objects made and not freed before the garbage collector looks for cycles among them.
_GARBAGE = 20_000


def _dispatch(options: argparse.Namespace, for_the_file: list[str], *, alone: bool) -> int:
    from penstock.streams.base.errors import BuildError, MissingExtra, PenstockError

    if for_the_file and options.command not in _TAKE_WORDS:
        words = " ".join(for_the_file)
        return _usage_error(f"{options.command} takes nothing after `--`: {words}")
    options.alone = alone
    module = _MODULES[options.command]
    if options.command == "run" and options.on is not None:
        module = "cluster.run"
    try:
        form, level = (getattr(options, name, None) for name in ("log_format", "log_level"))
        if form is not None or level is not None:
            from penstock.command.pipelines.logs import set_up

            # First, so that all that follows is written in this form.
            set_up(form, level)
        call = import_module(f"penstock.command.{module}").call
        if alone:
            gc.freeze()
            # More than the events in flight, which are freed without it: searching them for cycles
            # after every 700 new objects takes a tenth of the time.
            gc.set_threshold(_GARBAGE)
            gc.enable()
        status: int = call(options, for_the_file)
    except (BuildError, MissingExtra) as error:
        return _usage_error(str(error))
    except PenstockError as error:
        mention(str(error), "error")
        return 1
    return status


def _usage_error(message: str) -> int:
    mention(message, "error")
    return _USAGE


def _open_standard_streams() -> None:
    """Give each closed standard stream a descriptor that fails when it is used.

    Otherwise the next file or socket gets its number, and is read or written in place of the
    standard stream; uvloop even aborts the process.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with all sub-commands."""
    return _parser([])


def _parser(words: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "penstock",
        description="Run event pipelines that never accept more than they can process.",
        epilog="See `penstock COMMAND --help`.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    parser.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help="print the version, and whether it is compiled or pure",
    )
    # Without `prog` argparse would format a usage to determine it.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="penstock", parser_class=Parser
    )
    # The parsers of the other commands are made only to list them.
    wanted = words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS
    for name in wanted:
        add_arguments(name, commands.add_parser)
    return parser


class _Version(argparse.Action):
    """Prints the version, and whether it is compiled, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        # Imported here: few commands ask for it.
        from penstock.streams.base.compiled import library

        put(f"{library()}\n")
        parser.exit()
