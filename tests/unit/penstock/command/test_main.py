from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

from penstock.streams.base.compiled import form, library

Penstock = Callable[..., Any]
Process = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_version_is_the_packages_and_says_how_it_runs(penstock: Penstock) -> None:
    assert penstock("--version").out == f"{library()}\n"
    assert library() == f"penstock {version('penstock')} ({form()})"


def test_help_imports_no_library(process: Process) -> None:
    code = (
        "import sys; from penstock.__main__ import main; US = 'penstock.operators', 'reactivex'\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([m for m in sys.modules if m in US])"
    )
    result = process([sys.executable, "-c", code])
    assert result.stdout.splitlines()[-1] == "[]"
    assert result.stdout.startswith("usage: penstock")


@pytest.mark.parametrize("command", ["run", "draw", "check", "kata", "queue", "state"])
def test_every_sub_command_has_help(penstock: Penstock, command: str) -> None:
    result = penstock(command, "--help")
    assert result.status == 0
    assert result.out.startswith(f"usage: penstock {command}")


@pytest.mark.parametrize(
    "words",
    [
        ["completion", "bash"],
        ["counts"],
        ["dead-letters", "list", "--on", "nats://none", "--name", "a"],
        ["distinct", "--by=a", "--within=1"],
        ["formula", "a"],
        ["learn", "a.jsonl", "b.jsonl"],
        ["monitor", "a"],
        ["queue", "stats", "sqlite:///a.db"],
        ["santa"],
        ["state", "peek", "a.state"],
        ["status", "--on", "nats://none", "--name", "a"],
    ],
)
def test_a_command_that_loads_no_file_refuses_words_for_one(
    penstock: Penstock, words: list[str]
) -> None:
    result = penstock(*words, "--", "more", "words")
    assert (result.status, result.out) == (2, "")
    assert result.err == f"penstock: {words[0]} takes nothing after `--`: more words\n"


def test_the_help_of_run_groups_options_by_where_they_apply(penstock: Penstock) -> None:
    titles = "\nlogs and live page:\n", "\nprocesses of this machine:\n", "\nservers, with --on:\n"
    groups, rest = [], penstock("run", "--help").out
    for title in titles:
        group, found, rest = rest.partition(title)
        assert found
        groups.append(group)
    for text, options in zip(
        [*groups, rest],
        [
            ["--input", "--limit", "--drain-deadline", "--report"],
            ["--log-format", "--trace", "--serve", "--report-page", "--host"],
            ["--workers"],
            ["--on", "--name", "--partitions", "--lease", "--attempts"],
        ],
        strict=True,
    ):
        assert [option for option in options if f"\n  {option} " not in f"\n{text}"] == []


@pytest.mark.parametrize("command", ["run", "publish", "draw"])
def test_the_help_names_the_form_that_is_the_default(penstock: Penstock, command: str) -> None:
    assert "(default: text)" in penstock(command, "--help").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["run", "kata.py", "--limt", "3"],
            "penstock run: error: unrecognized arguments: --limt 3",
        ),
        (["run", "kata.py", "--limt", "3"], "did you mean --limit?"),
        (["kata", "--rates=3"], "did you mean --rate?"),
        (["queue", "stats", "--windw", "3", "url"], "penstock queue stats: error: "),
    ],
)
def test_a_mistyped_option_is_reported_with_the_usage_of_its_command_and_the_option_meant(
    penstock: Penstock, words: list[str], told: str
) -> None:
    result = penstock(*words)
    assert result.status == 2
    assert result.err.startswith(f"usage: penstock {words[0]} ")
    assert told in " ".join(result.err.split())


def test_an_option_that_is_like_no_other_is_reported_without_a_guess(penstock: Penstock) -> None:
    result = penstock("check", "kata.py", "--zzz")
    assert result.status == 2
    assert result.err.endswith("penstock check: error: unrecognized arguments: --zzz\n")
