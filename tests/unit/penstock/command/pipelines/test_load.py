from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[[str, str], Path]
Penstock = Callable[..., Any]


def test_a_file_that_does_not_exist_is_named(penstock: Penstock, tmp_path: Path) -> None:
    result = penstock("run", tmp_path / "none.py")
    assert result.status == 2
    assert f"{tmp_path / 'none.py'} does not exist" in result.err


def test_a_folder_is_not_a_pipeline_file(penstock: Penstock, tmp_path: Path) -> None:
    result = penstock("run", tmp_path)
    assert result.status == 2
    assert "is a folder: name the file in it" in result.err


def test_a_syntax_error_is_shown_at_its_line_without_a_traceback(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "job.py"
    path.write_text("import json\n\ndef broken(:\n    pass\n")
    result = penstock("check", path)
    assert result.status == 2
    assert f"{path}:3: invalid syntax" in result.err
    assert "def broken(:" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("content", [b"x = 1\x00", b"x = '\xff'"])
def test_a_file_that_is_not_text_is_refused(
    penstock: Penstock, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(content)
    result = penstock("check", path)
    assert result.status == 2
    assert str(path) in result.err
    assert "penstock/command/pipelines/load.py" not in result.err


def test_an_error_while_importing_shows_the_users_frames_only(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file("job.py", "def divide():\n    return 1 / 0\n\ndivide()\n")
    result = penstock("run", path)
    assert result.status == 2
    assert "raised an error while it was loaded" in result.err
    assert "ZeroDivisionError: division by zero" in result.err
    assert "in divide" in result.err
    assert "penstock/command/pipelines/load.py" not in result.err
    assert "importlib" not in result.err


@pytest.mark.parametrize(
    ("code", "line", "error", "hint"),
    [
        ("from penstock import read_json", 2, "ImportError", "Did you mean 'read_jsonl'?"),
        ("import penstok", 2, "ModuleNotFoundError", "Did you mean 'penstock'?"),
        ("adaptive_flatmap(str)", 2, "NameError", "Did you mean 'adaptive_flat_map'?"),
        ("\nops.map(str)", 3, "NameError", "Write `from penstock import ops`."),
        ("from penstock import ops; ops.mapp", 2, "AttributeError", "Did you mean 'map'?"),
        ("read_jsonl().filtr", 2, "AttributeError", "Did you mean 'filter'?"),
        ("adaptive_flat_map(str, limt=8)", 2, "TypeError", "Did you mean limit=?"),
        ("adaptive_flat_map(str, concurrency=8)", 2, "TypeError", "Did you mean limit=?"),
        ("adaptive_flat_map(str, retries=2)", 2, "TypeError", "mean on_error=retry(attempts)?"),
        ("write_jsonl(paht='x')", 2, "TypeError", "Did you mean 'path'?"),
        (
            "from penstock import merge",
            2,
            "ImportError",
            "Did you mean `from penstock.ops import merge`?",
        ),
        ("adaptive_flat_map()", 2, "TypeError", "argument: 'handler'"),
        ("{}['a']", 2, "KeyError", "'a'"),
    ],
)
def test_a_mistake_in_the_file_itself_is_shown_at_its_line_without_a_traceback(
    penstock: Penstock, tmp_path: Path, code: str, line: int, error: str, hint: str
) -> None:
    path = tmp_path / "job.py"
    names = "read_jsonl, write_jsonl, adaptive_flat_map"
    path.write_text(f"from penstock import {names}\n{code}\n")
    result = penstock("run", path)
    assert result.status == 2
    assert result.err.startswith(f"penstock: {path}:{line}: ")
    assert f"\n    {code.strip()}" in result.err
    assert f"\n{error}: " in result.err
    # As later versions of Python say it.
    assert hint in result.err.replace("mean: ", "mean ")
    assert "Traceback" not in result.err


def test_all_frames_are_shown_on_request(penstock: Penstock, write_file: Write) -> None:
    path = write_file("job.py", "1 / 0\n")
    result = penstock("run", path, "--traceback")
    assert result.status == 2
    assert "load.py" in result.err


def test_a_module_that_is_missing_is_named(penstock: Penstock, write_file: Write) -> None:
    result = penstock("check", write_file("job.py", "import no_such_module\n"))
    assert result.status == 2
    assert "No module named 'no_such_module'" in result.err


@pytest.mark.parametrize("folder", ["operators", "sinks", "sources", "streams"])
def test_a_folder_of_the_repository_that_is_imported_by_its_name_there_gives_a_hint(
    penstock: Penstock, write_file: Write, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    # As where penstock is installed, and not in a checkout.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not in_a_checkout(path)])
    file = write_file("job.py", f"from {folder} import mine\n")
    result = penstock("check", file)
    assert result.status == 2
    assert f"'{folder}' of penstock is installed as 'penstock.{folder}'" in result.err


def in_a_checkout(path: str) -> bool:
    return (Path(path) / "streams/__init__.py").exists()


def test_a_file_that_ends_the_process_is_reported(penstock: Penstock, write_file: Write) -> None:
    result = penstock("run", write_file("job.py", "import sys\nsys.exit(0)\n"))
    assert result.status == 2
    assert "SystemExit: 0" in result.err


def test_the_error_for_a_file_without_a_pipeline_says_how_to_make_one(
    penstock: Penstock, write_file: Write
) -> None:
    result = penstock("run", write_file("job.py", "x = 1\n"))
    assert result.status == 2
    assert "has no pipeline" in result.err
    assert "pipeline = " in result.err


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("pipeline = 'read_jsonl'", "'pipeline' is of type str; it needs one"),
        ("def made(): ...\npipeline = made", "'pipeline' is the function 'made', which is not"),
        ("async def pipeline(): ...", "'pipeline' is the function 'pipeline', which is not called"),
    ],
)
def test_a_variable_that_is_no_pipeline_is_named(
    penstock: Penstock, write_file: Write, code: str, what: str
) -> None:
    result = penstock("run", write_file("job.py", code))
    assert result.status == 2
    assert what in result.err


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--nonsense", 2)])
def test_a_files_own_parser_of_arguments_may_end_the_process(
    penstock: Penstock, write_file: Write, argument: str, status: int
) -> None:
    parses = "import argparse\nargparse.ArgumentParser(prog='job.py').parse_args()\n"
    result = penstock("run", write_file("job.py", parses), "--", argument)
    assert result.status == status
    assert (result.out + result.err).startswith("usage: job.py [-h]")
    assert "penstock:" not in result.err


def test_a_stream_without_a_sink_is_named(penstock: Penstock, write_file: Write) -> None:
    result = penstock("run", write_file("job.py", "lines = read_jsonl()\n"))
    assert result.status == 2
    assert "the stream 'lines', which has no sink" in result.err


TWO = "first = read_jsonl('a').to(write_jsonl())\nsecond = read_jsonl('b').to(write_jsonl())\n"


def test_one_of_two_pipelines_must_be_named(penstock: Penstock, write_file: Write) -> None:
    path = write_file("job.py", TWO)
    result = penstock("check", path)
    assert result.status == 2
    assert "has 2 pipelines: first, second" in result.err
    assert f"{path}:first" in result.err
    assert penstock("check", f"{path}:second").status == 0


def test_two_names_of_one_pipeline_are_one_pipeline(penstock: Penstock, write_file: Write) -> None:
    path = write_file(
        "job.py", "one = read_jsonl().to(write_jsonl())\nother = one\n_hidden = one\n"
    )
    assert penstock("check", path).status == 0


def test_a_name_that_is_missing_is_answered_with_those_there_are(
    penstock: Penstock, write_file: Write
) -> None:
    result = penstock("check", f"{write_file('job.py', TWO)}:third")
    assert result.status == 2
    assert "has no 'third'. Its pipelines are: first, second." in result.err


def test_a_name_that_is_not_a_pipeline_is_answered_with_its_type(
    penstock: Penstock, write_file: Write
) -> None:
    result = penstock("check", f"{write_file('job.py', TWO + 'n = 3')}:n")
    assert result.status == 2
    assert "is not a pipeline, but of type int" in result.err


def test_what_follows_two_dashes_is_for_the_file(penstock: Penstock, write_file: Write) -> None:
    path = write_file("job.py", "import sys\nprint(sys.argv[1:])\n" + TWO.splitlines()[0])
    result = penstock("check", path, "--", "--input", "x", "--")
    assert result.out.splitlines()[0] == "['--input', 'x', '--']"
    assert result.status == 0


def test_a_file_may_import_its_neighbours(
    penstock: Penstock, write_file: Write, tmp_path: Path
) -> None:
    (tmp_path / "neighbour_of_job.py").write_text("WHERE = '-'\n")
    path = write_file(
        "job.py",
        "from neighbour_of_job import WHERE\npipeline = read_jsonl(WHERE).to(write_jsonl())\n",
    )
    assert penstock("check", path).status == 0


@pytest.mark.parametrize("name", ["json.py", "my-job.py", "job"])
def test_a_file_may_have_any_name(penstock: Penstock, write_file: Write, name: str) -> None:
    import json

    assert penstock("check", write_file(name, TWO.splitlines()[0])).status == 0
    assert json.loads("1") == 1


def test_what_is_for_scripts_only_is_not_run(penstock: Penstock, write_file: Write) -> None:
    path = write_file("job.py", TWO.splitlines()[0] + "\nif __name__ == '__main__':\n    1 / 0\n")
    assert penstock("check", path).status == 0


@pytest.mark.parametrize("command", ["run", "draw", "check"])
@pytest.mark.parametrize(
    "left",
    [
        "run(pipeline)",
        "pipeline.run()",
        "asyncio.run(pipeline.run())",
        "async def main():\n    async with pipeline.start():\n        pass\n\nasyncio.run(main())",
    ],
)
def test_a_pipeline_that_is_run_while_its_file_is_loaded_is_refused(
    penstock: Penstock, write_file: Write, tmp_path: Path, command: str, left: str
) -> None:
    path = write_file(
        "job.py",
        "from penstock import from_iterable, run\n"
        f"pipeline = from_iterable([{{}}]).to(write_jsonl({str(tmp_path / 'out.jsonl')!r}))\n"
        f"{left}\n",
    )
    result = penstock(command, path)
    assert result.status == 2
    assert 'if __name__ == "__main__":' in result.err
    assert f"{path}:" in result.err
    assert not (tmp_path / "out.jsonl").exists()
