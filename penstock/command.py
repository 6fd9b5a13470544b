"""The command line. A sub-command's code is imported only when it is called."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from penstock.output import flush, put, say
from penstock.shadow import shadowing

__all__ = ["run_command"]

AddParser = Callable[..., argparse.ArgumentParser]

_USAGE = 2
_WIDTH = 88


def run_command(words: list[str], *, alone: bool = False) -> int:
    """Run the command with these words; returns the exit status.

    `alone`: the process is for this and ends after it. SystemExit(2) for a wrong command line.
    """
    for_the_file: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, for_the_file = words[:cut], words[cut + 1 :]
    _open_standard_streams()
    unwritten = 0
    try:
        options = _parser(words).parse_args(words)
        stranger = shadowing()
        if stranger is not None:
            return _usage_error(stranger)
        status = _dispatch(options, for_the_file, alone=alone)
    finally:
        unwritten = flush()
    return status or unwritten


def _dispatch(options: argparse.Namespace, for_the_file: list[str], *, alone: bool) -> int:
    from streams.errors import BuildError, MissingExtra

    try:
        if options.command == "run":
            from penstock.run import Options, run

            return run(
                options.file,
                Options(
                    options.input,
                    options.output,
                    options.limit,
                    options.drain_deadline,
                    options.report,
                    options.traceback,
                    tuple(for_the_file),
                ),
                alone=alone,
            )
        if options.command in ("draw", "check"):
            return _look_at(options, for_the_file)
        from penstock.kata.command import run_kata

        return run_kata(options)
    except (BuildError, MissingExtra) as error:
        return _usage_error(str(error))


def _look_at(options: argparse.Namespace, for_the_file: list[str]) -> int:
    from penstock.load import load

    pipeline = load(options.file, for_the_file, whole=options.traceback)
    if options.command == "check":
        from penstock.check import check

        return check(options.file, pipeline)
    from penstock.draw import draw

    return draw(pipeline, options.format, options.output)


def _usage_error(message: str) -> int:
    say(f"penstock: {message}")
    return _USAGE


def _open_standard_streams() -> None:
    """Give each closed standard stream a descriptor that fails when it is used.

    Else the next file or socket that is opened gets its number, and is read or written by
    whoever means the standard stream; uvloop even aborts the process.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)


def _parser(words: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "penstock",
        description="Run event pipelines that never take in more than they can finish.",
        epilog="`penstock COMMAND --help` tells more.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    # Without `prog` argparse would format a usage to find it out.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="penstock"
    )
    # The parsers of the other commands are made only to tell that they exist.
    wanted = words[:1] if words[:1] and words[0] in _COMMANDS else _COMMANDS
    for name in wanted:
        _COMMANDS[name](commands.add_parser)
    return parser


def _add_run(add_parser: AddParser) -> None:
    run = _with_file(add_parser, "run", "run a pipeline until its input ends or a signal comes")
    run.add_argument("--input", metavar="PATH", help="read this instead of standard input")
    run.add_argument("--output", metavar="PATH", help="write this instead of standard output")
    run.add_argument(
        "--limit",
        type=_limit,
        metavar="N|FLOOR:CEILING",
        help="work on N events at once, or on as many between two bounds as is best",
    )
    run.add_argument(
        "--drain-deadline",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="what work in flight gets after a signal or an error (default: 20)",
    )
    run.add_argument(
        "--report",
        choices=("text", "json"),
        default="text",
        help="the form of the report on standard error",
    )


def _add_draw(add_parser: AddParser) -> None:
    draw = _with_file(add_parser, "draw", "show the stages of a pipeline with their bounds")
    draw.add_argument("--format", choices=("text", "mermaid", "svg"), default="text")
    draw.add_argument("--output", metavar="PATH", help="write this instead of standard output")


def _add_check(add_parser: AddParser) -> None:
    _with_file(add_parser, "check", "build a pipeline and tell what is wrong with it")


def _add_kata(add_parser: AddParser) -> None:
    kata = add_parser(
        "kata",
        help="run the stream kata at full load and measure it",
        description="Run the stream kata on a load of events, and print one table: throughput, "
        "queue, latency from creation to start in milliseconds, and what went wrong.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    for name, kind, default, what in (
        ("rate", float, 1000, "events a second"),
        ("clients", int, 100, "number of clients"),
        ("duplicates", float, 0.01, "share of duplicates, from 0 to 1"),
        ("seconds", float, 10, "how long the load lasts"),
        ("handler-ms", float, 10, "mean time of work on one event"),
        ("sigma-ms", float, 1, "its standard deviation"),
        ("seed", int, 1, "of the load"),
    ):
        kata.add_argument(
            f"--{name}", type=kind, default=default, help=f"{what} (default: {default})"
        )
    kata.add_argument(
        "--variant",
        action="append",
        metavar="NAME",
        help="run this step of the article as well, or all of them; may be repeated: "
        "sequential, naive-pool, fail-on-concurrent, wait-on-concurrent, smart-pool, all",
    )


_COMMANDS: dict[str, Callable[[AddParser], None]] = {
    "run": _add_run,
    "draw": _add_draw,
    "check": _add_check,
    "kata": _add_kata,
}


class _Formatter(argparse.HelpFormatter):
    """As wide everywhere: argparse makes one for every option, and imports much to be wider."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def _with_file(add_parser: AddParser, name: str, what: str) -> argparse.ArgumentParser:
    parser = add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        usage=f"penstock {name} FILE[:NAME] [options] [-- ARGUMENTS OF THE FILE]",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument(
        "file",
        metavar="FILE[:NAME]",
        help="a Python file with a pipeline; NAME says which, where there are several",
    )
    parser.add_argument(
        "--traceback", action="store_true", help="show penstock's own frames in tracebacks too"
    )
    return parser


def _limit(text: str) -> tuple[int, int]:
    floor, colon, ceiling = text.partition(":")
    try:
        bounds = (int(floor), int(ceiling if colon else floor))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no N or FLOOR:CEILING") from None
    if not 1 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 <= FLOOR <= CEILING is needed")
    return bounds


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: importlib.metadata is slow to import."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        put(f"penstock {version('penstock')}\n")
        parser.exit()
