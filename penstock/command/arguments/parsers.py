"""The building blocks of the sub-commands' parsers: layout and types of options."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from penstock.command.output import is_json, mention

__all__ = [
    "AddParser",
    "Formatter",
    "Options",
    "Parser",
    "add_drain_deadline",
    "add_input",
    "add_limit",
    "add_output",
    "add_report",
    "add_rotate",
    "add_traceback",
    "address",
    "evidence",
    "limit",
    "names",
    "number",
    "plain",
    "positive",
    "seconds",
    "seconds_or_none",
    "share",
    "wants_json",
    "with_file",
    "workers",
]

_WIDTH = 88


class Formatter(argparse.HelpFormatter):
    """A fixed width: argparse makes a formatter for every option, and imports much to determine the
    width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def wants_json(words: list[str]) -> bool:
    """Whether a command line that is not parsed yet, or the environment, asks for a log in JSON."""
    option = "--log-format"
    given = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    given += [value for word, value in pairwise(words) if word == option]
    return (given or [os.environ.get("PENSTOCK_LOG_FORMAT", "")])[-1] == "json"


class _Unread(NamedTuple):
    """A variable of the environment, its text, and the default of its option."""

    variable: str
    text: str
    default: Any


class Parser(argparse.ArgumentParser):
    """The parser of a sub-command: it reports unknown arguments itself, with its own usage.

    With `reads_variables`, each option that is not on the command line is taken from the variable
    of the environment with its name, if that is set. It is removed from the environment: the
    processes that this one starts have options of their own. With `gathers`, its `paths` may stand
    between its options. One of `one_of` has to be given.
    """

    reads_variables = False
    gathers = False
    one_of: tuple[str, ...] = ()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # What begins as a negative number is a value, also with a unit behind it, as in `--at -5m`;
        # its own type then says what is wrong.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def parse_known_args(self, *args: Any, **named: Any) -> tuple[Any, list[str]]:
        given = self._variables() if self.reads_variables else {}
        for action, variable in given.items():
            action.default = _Unread(variable, os.environ.pop(variable), action.default)
        parsed, strangers = super().parse_known_args(*args, **named)
        if self.gathers and strangers:
            # argparse takes those before the first option only.
            parsed.paths += [word for word in strangers if not word.startswith("-")]
            strangers = [word for word in strangers if word.startswith("-")]
        if strangers:
            self.error(f"unrecognized arguments: {' '.join(strangers)}{self._guess(strangers[0])}")
        for action in given:
            if isinstance(unread := getattr(parsed, action.dest), _Unread):
                setattr(parsed, action.dest, self._read(action, unread))
        if self.one_of and all(getattr(parsed, name) is None for name in self.one_of):
            self.error("the following arguments are required: FILE[:NAME], - or -c CODE")
        return parsed, strangers

    def _variables(self) -> dict[argparse.Action, str]:
        """The options whose variables are set, and not to nothing."""
        options = {
            action: f"PENSTOCK_{action.dest.upper()}"
            for action in self._actions
            if action.option_strings and action.dest != "help"
        }
        return {action: name for action, name in options.items() if os.environ.get(name)}

    def _read(self, action: argparse.Action, unread: _Unread) -> Any:
        """The value that the option would have; ends with a line of text if there is none."""
        text = unread.text
        try:
            if action.nargs != 0:
                return self._get_values(action, [text])
            if text in ("0", "1"):
                return action.const if text == "1" else unread.default
        except argparse.ArgumentError as error:
            self._refuse(f"{unread.variable}: {error.message}")
        self._refuse(f"{unread.variable}={text!r}: give 1 or 0")

    def error(self, message: str) -> NoReturn:
        if is_json():
            self._refuse(f"{message}; see `{self.prog} --help`")
        super().error(message)

    def _refuse(self, text: str) -> NoReturn:
        mention(text, "error")
        self.exit(2)

    def _guess(self, word: str) -> str:
        from difflib import get_close_matches

        options = re.findall(r"--[a-z-]+", self.format_help())
        near = get_close_matches(word.partition("=")[0], options, n=1)
        return f" (did you mean {near[0]}?)" if near else ""


AddParser = Callable[..., Parser]


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **about: Any) -> argparse.Action: ...


def with_file(add_parser: AddParser, name: str, what: str, *, needed: bool = True) -> Parser:
    parser = add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        usage=f"penstock {name} FILE[:NAME] [options] [-- ARGUMENTS OF THE FILE]",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    parser.add_argument(
        "file",
        metavar="FILE[:NAME]",
        nargs=None if needed else "?",
        help="a Python file with a pipeline, of which NAME selects one of several; or a definition "
        "in TOML, YAML or JSON",
    )
    add_traceback(parser)
    return parser


def plain(add_parser: AddParser, name: str, what: str) -> Parser:
    return add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        allow_abbrev=False,
        formatter_class=Formatter,
    )


class _Several(argparse.Action):
    """Makes a list of the values of an option that is repeated; one alone stays as it is."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        if before is not self.default:
            values = [*(before if isinstance(before, list) else [before]), values]
        setattr(namespace, self.dest, values)


def add_input(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    what = "read this instead of standard input"
    if several:
        parser.add_argument(
            "--input",
            metavar="PATH",
            action=_Several,
            help=f"{what}: a file, a pattern or a URL; may be repeated",
        )
    else:
        parser.add_argument("--input", metavar="PATH", help=what)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="PATH", help="write this instead of standard output")


def add_rotate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rotate",
        metavar="SIZE|TIME",
        help="append to the output, and rename it before it has more than a size such as 100MB, or "
        "when a time such as 1h is over",
    )


def add_drain_deadline(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--drain-deadline",
        type=seconds,
        default=20.0,
        metavar="SECONDS",
        help=f"{what} (default: 20)",
    )


def add_limit(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--limit", type=limit, metavar="N|FLOOR:CEILING", help=what)


def add_report(parser: argparse.ArgumentParser, default: str = "text") -> None:
    parser.add_argument(
        "--report",
        choices=("text", "json", "none"),
        default=default,
        help=f"the form of the report on standard error (default: {default})",
    )


def add_traceback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--traceback", action="store_true", help="show penstock's own frames in tracebacks too"
    )


def limit(text: str) -> tuple[int, int]:
    floor, colon, ceiling = text.partition(":")
    try:
        bounds = (int(floor), int(ceiling if colon else floor))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid N or FLOOR:CEILING") from None
    if not 1 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 <= FLOOR <= CEILING is needed")
    return bounds


def number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return number


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, or a port of the loopback interface."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT, such as 9464")
    return host.strip("[]") or "127.0.0.1", int(port)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def workers(text: str) -> int | Literal["auto"]:
    """A number of processes, or "auto"."""
    if text == "auto":
        return "auto"
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number of at least 1 nor auto")


def evidence(text: str) -> int | str:
    if text in ("full", "letters"):
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, nor full or letters")
    return int(text)


def seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def seconds_or_none(text: str) -> float | None:
    """A number of seconds, or None for "none"."""
    return None if text == "none" else seconds(text)


def share(text: str) -> float:
    """A part of all, from 0 to 1."""
    found = seconds(text)
    if found > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return found


def positive(text: str) -> float:
    found = seconds(text)
    if not found:
        raise argparse.ArgumentTypeError("more than 0 is needed")
    return found
