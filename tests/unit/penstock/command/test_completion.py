"""`penstock completion SHELL`, in a real shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_each_shell_gets_a_script_of_its_own(penstock: Penstock) -> None:
    assert penstock("completion", "zsh").out.startswith("#compdef penstock")
    assert penstock("completion", "fish").status == 2


def test_without_shtab_the_extra_is_named(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    ended = penstock("completion", "bash")
    assert ended.status == 2
    assert "completion" in ended.err
    assert "pip install" in ended.err


def test_zsh_reads_its_script_where_it_is_installed(penstock: Penstock, tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("there is no zsh")
    script = tmp_path / "_penstock"
    script.write_text(penstock("completion", "zsh").out, encoding="utf-8")
    subprocess.run(["zsh", "-n", script], check=True)
