"""What is installed with penstock, and the messages when something is not."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import latency_histogram
from penstock.streams.base.errors import MissingExtra
from penstock.streams.base.extras import install_command

HOME = Path(__file__).parents[4]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PACKAGES = ("streams", "operators", "sources", "sinks", "penstock/command")

Process = Callable[..., "subprocess.CompletedProcess[str]"]


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=;~! ]", requirement)[0]


def imported() -> Iterator[str]:
    for package in PACKAGES:
        for file in (HOME / package).glob("**/*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from (f"{node.module}.{name.name}" for name in node.names)
                elif isinstance(node, ast.Import):
                    yield from (name.name for name in node.names)


def test_a_plain_install_brings_four_packages() -> None:
    names = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    assert names == {"reactivex", "uvloop", "orjson", "cachetools"}


def test_the_kata_and_its_histograms_need_no_hdrhistogram(process: Process) -> None:
    code = (
        "import sys; sys.modules['hdrh'] = None\n"
        "from penstock.__main__ import main\n"
        "sys.exit(main(['kata', '--seconds', '0.2', '--rate', '100']))"
    )
    result = process([sys.executable, "-c", code])
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert "penstock" in result.stdout


def test_an_interval_log_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where another test has imported this module, its package is not looked up again.
    monkeypatch.setitem(sys.modules, "hdrh.log", None)
    with pytest.raises(MissingExtra, match=r"\[hdr\]"):
        latency_histogram(log="latency.hlog")


def test_a_package_whose_private_parts_are_used_is_bounded_above() -> None:
    (nats,) = [each for each in EXTRAS["cluster"] if name_of(each) == "nats-py"]
    assert "<" in nats


def test_no_private_module_of_reactivex_is_imported() -> None:
    private = [
        name
        for name in imported()
        if name.startswith("reactivex.") and ("internal" in name or "._" in name)
    ]
    assert private == []


def test_zstd_is_the_standard_librarys() -> None:
    assert [name_of(requirement) for requirement in EXTRAS["zstd"]] == ["backports.zstd"]
    assert "python_version < '3.14'" in EXTRAS["zstd"][0]


def test_what_the_benchmarks_need_can_be_installed_on_every_python() -> None:
    (bytewax,) = [each for each in EXTRAS["bench"] if name_of(each) == "bytewax"]
    assert "python_version < '3.13'" in bytewax


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'penstock[postgres]'"),
        (
            {"url": "file:///home/me/a%20checkout", "dir_info": {"editable": True}},
            "pip install -e '/home/me/a checkout[postgres]'",
        ),
        ({"url": "file:///home/me/it", "dir_info": {}}, "pip install '/home/me/it[postgres]'"),
        (
            {"url": "https://example.org/it.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'penstock[postgres] @ git+https://example.org/it.git'",
        ),
        (
            {"url": "file:///tmp/it.whl", "archive_info": {}},
            "pip install 'penstock[postgres] @ file:///tmp/it.whl'",
        ),
    ],
)
def test_the_advice_of_a_missing_extra_fits_how_penstock_was_installed(
    monkeypatch: pytest.MonkeyPatch, origin: object, command: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert install_command("postgres") == command


@pytest.mark.parametrize(
    ("receipt", "begins"),
    [("pipx_metadata.json", "pipx install --force "), ("uv-receipt.toml", "uv tool install ")],
)
def test_an_installer_of_tools_is_named_where_it_made_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, receipt: str, begins: str
) -> None:
    (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("postgres").startswith(begins)


def test_in_a_checkout_that_is_not_installed_the_advice_names_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_found(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", not_found)
    assert install_command("zstd") == f"pip install '{HOME}[zstd]'"
