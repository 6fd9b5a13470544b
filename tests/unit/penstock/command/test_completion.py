"""`penstock completion SHELL`, in a real shell."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.command.dispatch import whole_parser

Penstock = Callable[..., Any]


@pytest.fixture
def complete(penstock: Penstock, tmp_path: Path) -> Callable[..., list[str]]:
    """What bash completes after these words, the last of which is begun."""
    script = tmp_path / "complete.sh"
    script.write_text(penstock("completion", "bash").out, encoding="utf-8")

    def completed(*words: str) -> list[str]:
        asked = " ".join(f"'{word}'" for word in ("penstock", *words))
        lines = f"""
            source {script}
            COMP_WORDS=({asked}); COMP_CWORD={len(words)}
            COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
            function=$(complete -p penstock | sed -E 's/.*-F ([^ ]+) .*/\\1/')
            "$function" penstock '{words[-1]}' '{("penstock", *words)[-2]}'
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        shell = subprocess.run(
            ["bash", "-c", lines], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert shell.stderr == ""
        return [line.strip() for line in shell.stdout.splitlines() if line.strip()]

    return completed


def test_bash_completes_sub_commands_options_and_choices(
    complete: Callable[..., list[str]],
) -> None:
    assert complete("turn") == ["turning-point"]
    assert set(complete("run", "job.py", "--report")) == {"--report", "--report-page"}
    assert complete("run", "job.py", "--log-format", "") == ["json", "text"]
    assert "--variant" in complete("kata", "--")


def test_bash_completes_files_where_files_are_wanted(
    complete: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "pipeline.py").touch()
    assert "pipeline.py" in complete("run", "pipe")
    assert "pipeline.py" in complete("run", "job.py", "--report-page", "pipe")
    for words in (["mine"], ["mine", "--graph"], ["mine", "--rules"], ["learn"], ["counts"]):
        assert "pipeline.py" in complete(*words, "pipe")


def test_each_shell_gets_a_script_of_its_own(penstock: Penstock) -> None:
    assert penstock("completion", "zsh").out.startswith("#compdef penstock")
    assert penstock("completion", "fish").out.count("complete -c penstock ") > 100
    assert penstock("completion", "powershell").status == 2


def test_without_shtab_the_extra_is_named(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    ended = penstock("completion", "bash")
    assert ended.status == 2
    assert "completion" in ended.err
    assert "pip install" in ended.err


def test_the_script_for_zsh_has_all_sub_commands_with_their_options_and_choices(
    penstock: Penstock, tmp_path: Path
) -> None:
    out = penstock("completion", "zsh").out
    functions = dict(re.findall(r"^(_\w+_options)=\(\n(.*?)^\)$", out, re.M | re.S))
    # Each is a list of specifications, quoted for the shell, of which `_arguments` reads one each.
    options = {name: shlex.split(body, comments=False) for name, body in functions.items()}
    (listed,) = re.findall(r"^_shtab_penstock_commands\(\) \{\n(.*?)^\}", out, re.M | re.S)
    commands = re.findall(r"^ *([a-z-]+):'", listed, re.M)
    parser = whole_parser()
    (named,) = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    assert set(named) == set(commands)
    run = next(specs for name, specs in options.items() if name.endswith("_run_options"))
    said = {option for spec in run for option in re.findall(r"--[a-z-]+", spec.split("[")[0])}
    known = {
        option
        for action in named["run"]._actions
        for option in action.option_strings
        if option.startswith("--") and action.help is not argparse.SUPPRESS
    }
    assert said == known
    assert any(spec.startswith("--log-format[") and "(json text)" in spec for spec in run)
    assert any(spec.startswith("--report-page[") and spec.endswith(":_files") for spec in run)
    if shutil.which("zsh") is not None:
        script = tmp_path / "_penstock"
        script.write_text(out, encoding="utf-8")
        subprocess.run(["zsh", "-n", script], check=True)


def test_the_script_for_fish_has_the_options_of_a_sub_command_with_their_choices_and_files(
    penstock: Penstock, tmp_path: Path
) -> None:
    out = penstock("completion", "fish").out
    completed = [shlex.split(line) for line in out.splitlines() if line.startswith("complete ")]
    # Each has a condition that names the words before.
    run = [words for words in completed if "_shtab_penstock_using run" in words]
    said = {f"--{words[words.index('-l') + 1]}": words for words in run if "-l" in words}
    parser = whole_parser()
    (named,) = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    assert said.keys() == {
        option
        for action in named["run"]._actions
        for option in action.option_strings
        if option.startswith("--") and action.help is not argparse.SUPPRESS
    }
    assert "json text" in said["--log-format"]
    assert any("complete_path" in word for word in said["--report-page"])
    if shutil.which("fish") is not None:
        script = tmp_path / "penstock.fish"
        script.write_text(out, encoding="utf-8")
        subprocess.run(["fish", "-n", script], check=True)
