"""The arguments of `penstock state`, one function per action."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.command.arguments.parsers import AddParser, number, plain

__all__ = ["add_state"]


def add_state(add_parser: AddParser) -> None:
    """The sub-command with its actions."""
    state = plain(add_parser, "state", "look at the states in a store, and change them")
    actions = state.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, add in _ACTIONS.items():
        add(actions.add_parser, name)


def _add_show(add_parser: AddParser, name: str) -> None:
    show = _action(add_parser, name, "show the stages, and how far each source is done")
    show.add_argument("--json", action="store_true", help="print one line of JSON")


def _add_peek(add_parser: AddParser, name: str) -> None:
    peek = _action(add_parser, name, "print the first keys of a stage as JSON lines")
    _add_stage(peek)
    shown = peek.add_mutually_exclusive_group()
    shown.add_argument(
        "--count", type=number, default=10, metavar="N", help="at most N keys (default: 10)"
    )
    _add_key(shown.add_argument, "only this key")


def _add_export(add_parser: AddParser, name: str) -> None:
    _add_stage(
        _action(add_parser, name, "print all keys as JSON lines, each with its stage"),
        "only this stage (default: all)",
    )


def _add_set(add_parser: AddParser, name: str) -> None:
    set_ = _action(add_parser, name, "give a key another state, while no run uses the store")
    _add_stage(set_)
    _add_key(set_.add_argument, "the key", required=True)
    set_.add_argument(
        "--state",
        required=True,
        metavar="JSON",
        help="its new state; null deletes the key. Timers of a key that has some stay as they are",
    )
    set_.add_argument("--create", action="store_true", help="add the key if it has no state")


def _add_drop(add_parser: AddParser, name: str) -> None:
    drop = _action(
        add_parser, name, "delete a stage with all its states, while no run uses the store"
    )
    drop.add_argument("--stage", required=True, metavar="NAME", help="the stage")


def _add_backup(add_parser: AddParser, name: str) -> None:
    backup = _action(add_parser, name, "copy the store, as of its last commit")
    backup.add_argument("path", metavar="PATH", help="the copy, which does not exist yet")


def _action(add_parser: AddParser, name: str, what: str) -> argparse.ArgumentParser:
    parser = plain(add_parser, name, what)
    parser.add_argument("store", metavar="STORE", help="a file or a URL, as in Store(...)")
    parser.add_argument(
        "--kafka-config",
        metavar="PATH",
        help="with a store at kafka://: a file with settings of the client, such as sasl.username, "
        "one name=value per line",
    )
    return parser


def _add_stage(
    parser: argparse.ArgumentParser, what: str = "the stage; not needed if there is only one"
) -> None:
    parser.add_argument("--stage", metavar="NAME", help=what)


def _add_key(
    add_argument: Callable[..., argparse.Action], what: str, *, required: bool = False
) -> None:
    add_argument(
        "--key",
        metavar="KEY",
        help=f"{what}: as JSON, such as 7, '\"7\"' or '[\"ann\", 7]', or a text without quotes",
        **({"required": True} if required else {}),
    )


_ACTIONS: dict[str, Callable[[AddParser, str], None]] = {
    "show": _add_show,
    "peek": _add_peek,
    "export": _add_export,
    "set": _add_set,
    "drop": _add_drop,
    "backup": _add_backup,
}
