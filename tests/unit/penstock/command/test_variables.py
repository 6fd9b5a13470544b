"""Options of `penstock run` that are given by the environment."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.command.arguments import add_arguments
from penstock.command.arguments.parsers import Parser

Penstock = Callable[..., Any]
Environment = Callable[..., None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set variables, by their names behind PENSTOCK_."""

    def set_variables(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"PENSTOCK_{name}", value)

    return set_variables


def parser() -> Parser:
    commands = argparse.ArgumentParser().add_subparsers(parser_class=Parser)
    add_arguments("run", commands.add_parser)
    return commands.choices["run"]


def options() -> Iterator[argparse.Action]:
    for action in parser()._actions:
        if action.option_strings and action.help != argparse.SUPPRESS and action.dest != "help":
            yield action


def a_value_of(action: argparse.Action) -> str:
    """Something that the option takes and that is not its default."""
    if action.choices is not None:
        return next(str(one) for one in action.choices if one != action.default)
    return "0.5" if action.metavar == "SHARE" else "7"


def parsed(*words: str) -> dict[str, Any]:
    return vars(parser().parse_args(["job.py", *words]))


@pytest.mark.parametrize("option", list(options()), ids=lambda option: option.dest)
def test_every_option_of_run_has_a_variable(
    environment: Environment, option: argparse.Action
) -> None:
    name = option.option_strings[0]
    value = a_value_of(option)
    on_the_command_line = parsed(name) if option.nargs == 0 else parsed(name, value)
    assert on_the_command_line != parsed()
    variable = name.removeprefix("--").replace("-", "_").upper()
    environment(**{variable: "1" if option.nargs == 0 else value})
    assert parsed() == on_the_command_line
    # Kubernetes sets PENSTOCK_PORT and others for a service that is called penstock.
    assert not variable.startswith(("PORT", "SERVICE"))


def test_the_command_line_wins(environment: Environment) -> None:
    environment(LIMIT="no limit")
    assert parsed("--limit", "3")["limit"] == (3, 3)


def test_a_flag_that_is_0_and_a_variable_that_is_empty_change_nothing(
    environment: Environment,
) -> None:
    environment(TRACEBACK="0")
    environment(LIMIT="")
    assert parsed() == {**parsed(), "traceback": False, "limit": None}


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LIMIT", "many", ": 'many' is not a valid N or FLOOR:CEILING"),
        ("DRAIN_DEADLINE", "-1", ": '-1' is not a number of seconds"),
        ("REPORT", "xml", ": invalid choice: 'xml' (choose from"),
        ("PARTITIONS", "some", ": invalid int value: 'some'"),
        ("TRACEBACK", "yes", "='yes': give 1 or 0"),
    ],
)
def test_a_wrong_value_is_a_line_that_names_the_variable(
    environment: Environment,
    penstock: Penstock,
    pipeline_file: Path,
    variable: str,
    value: str,
    said: str,
) -> None:
    environment(**{variable: value})
    result = penstock("run", pipeline_file)
    assert result.status == 2
    assert result.err.startswith(f"penstock: PENSTOCK_{variable}{said}")
    assert result.err.count("\n") == 1


def test_a_run_takes_its_options_from_the_environment(
    environment: Environment, penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('{"uuid": 1, "client_id": 2}\n')
    environment(INPUT=str(tmp_path / "in.jsonl"))
    environment(OUTPUT=str(tmp_path / "out.jsonl"))
    environment(REPORT="json")
    result = penstock("run", pipeline_file)
    assert json.loads(result.err)["statistics"]["finished"] == 1
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"uuid": 1, "client_id": 2}


def test_the_processes_that_a_run_starts_have_options_of_their_own(
    environment: Environment,
) -> None:
    environment(WORKERS="2")
    assert parsed()["workers"] == 2
    assert "PENSTOCK_WORKERS" not in os.environ


def test_other_commands_have_no_variables(
    environment: Environment, penstock: Penstock, pipeline_file: Path
) -> None:
    environment(FORMAT="svg")
    assert not penstock("draw", pipeline_file).out.startswith("<svg")


def test_the_help_of_run_works_whatever_is_set_and_names_the_variables(
    environment: Environment, penstock: Penstock
) -> None:
    environment(LIMIT="many")
    result = penstock("run", "--help")
    assert result.status == 0
    assert "PENSTOCK_DRAIN_DEADLINE=5" in result.out
