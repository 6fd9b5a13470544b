from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import adaptive_flat_map, collect, from_iterable
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.pipeline import Pipeline
from penstock.streams.workers.processes.finding import place_of

MODULE = """
from penstock import adaptive_flat_map, collect, from_iterable
pipeline = from_iterable([1]).pipe(adaptive_flat_map(str)).to(collect([]))
"""


def make() -> Pipeline:
    return from_iterable([1]).pipe(adaptive_flat_map(str)).to(collect([]))


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules, which are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def imported(folder: Path, name: str, text: str = MODULE) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    return __import__(name)


def as_program(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    program = ModuleType("__main__")
    vars(program).update(names)
    monkeypatch.setitem(sys.modules, "__main__", program)


def test_a_pipeline_is_found_by_its_name_in_a_module(modules: Path) -> None:
    pipeline = imported(modules, "jobs").pipeline
    place = place_of(pipeline, "here")
    assert (place.module, place.name) == ("jobs", "pipeline")
    assert place.find() is pipeline


def test_another_module_is_imported_rather_than_the_program(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = imported(modules, "jobs").pipeline
    as_program(monkeypatch, job=pipeline, __file__=str(modules / "jobs.py"))
    assert place_of(pipeline, "here").module == "jobs"


def test_a_pipeline_of_the_program_is_found_in_its_file(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make()
    as_program(monkeypatch, job=pipeline, __file__=str(modules / "app.py"))
    (modules / "app.py").write_text("")
    place = place_of(pipeline, "here")
    assert (place.module, place.name) == ("__main__", "job")
    assert place.program == {"init_main_from_path": str(modules / "app.py")}


def test_a_pipeline_without_a_name_is_refused_with_what_to_do() -> None:
    with pytest.raises(BuildError) as error:
        place_of(make(), "in a running loop")
    text = str(error.value)
    assert text.startswith("workers= in a running loop starts processes that import the pipeline")
    assert "<Pipeline from_iterable > adaptive_flat_map > collect> has no name" in text
    assert "at the top level of a module that can be imported" in text


def test_a_pipeline_that_was_typed_into_a_session_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = make()
    as_program(monkeypatch, job=pipeline)
    with pytest.raises(BuildError, match=r"the pipeline 'job', and they cannot import the program"):
        place_of(pipeline, "here")


def test_the_main_module_of_a_package_is_refused(tmp_path: Path) -> None:
    # multiprocessing imports no such module either.
    (tmp_path / "app").mkdir()
    text = (
        "\nfrom penstock.streams.workers.processes.finding import place_of\n"
        "place_of(pipeline, 'here')\n"
    )
    (tmp_path / "app" / "__main__.py").write_text(MODULE + text)
    command = [sys.executable, "-m", "app"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "or is the __main__.py of a package" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no pipeline 'pipeline' in it"),
        ("pipeline = 3", "found no pipeline 'pipeline' in it"),
        (MODULE + "raise KeyError('x')", "KeyError: 'x'"),
        ("import sys; sys.exit('no')", "cannot import module 'jobs'.*SystemExit: no"),
        (
            MODULE.replace("adaptive", "distinct_within, adaptive").replace(
                "pipe(distinct_within, ", "pipe(distinct_within(1, by=str), "
            ),
            "has other stages there: .*distinct_within.* instead of .*Build it alike",
        ),
        (MODULE + "\nfrom penstock import run\nrun(pipeline)", "only under `if __name__ =="),
    ],
)
def test_a_module_without_the_same_pipeline_is_an_error(
    modules: Path, text: str, said: str
) -> None:
    place = place_of(imported(modules, "jobs").pipeline, "here")
    del sys.modules["jobs"]
    (modules / "jobs.py").write_text(text + "  # longer, so that it is compiled again")
    with pytest.raises(BuildError, match=said):
        place.find()


def test_an_error_in_the_module_is_shown_with_its_line(modules: Path) -> None:
    place = place_of(imported(modules, "jobs").pipeline, "here")
    del sys.modules["jobs"]
    (modules / "jobs.py").write_text("x = 1\nx.nothing\n")
    with pytest.raises(BuildError) as error:
        place.find()
    assert 'jobs.py", line 2' in error.value.__notes__[0]
