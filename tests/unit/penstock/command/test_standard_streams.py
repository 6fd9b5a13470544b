"""What handlers and their children have as standard input and output while a pipeline runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Process = Callable[..., "subprocess.CompletedProcess[str]"]
Write = Callable[[str, str], Path]

LINES = "".join(f'{{"n":{number}}}\n' for number in range(1, 4))

# Every way to read standard input and to write standard output.
GREEDY = """
import ctypes, multiprocessing, os, subprocess, sys

print("while it is loaded")
c = ctypes.CDLL(None)

def child():
    print("by a process", sys.stdin.read())

def handler(event):
    print("by print")
    sys.__stdout__.write("by write\\n")
    os.write(1, b"by the descriptor\\n")
    c.printf(b"by C\\n")
    subprocess.run(["sh", "-c", "read line; echo by a program $line"], check=True)
    os.system("cat; echo by a shell")
    if event["n"] == 1:
        for method in METHODS:
            process = multiprocessing.get_context(method).Process(target=child)
            process.start()
            process.join()
    try:
        input()
    except EOFError:
        return event
"""
ALL, FEW = (
    f"METHODS = {methods}\n{GREEDY}" for methods in (["fork", "spawn", "forkserver"], ["fork"])
)
PIPELINE = "pipeline = read_jsonl().pipe(adaptive_flat_map(handler)).to({sink})\n"
SCRIPT = """
from penstock import run

if __name__ == "__main__":
    print("before", flush=True)
    run(pipeline, workers={workers})
    print("after")
"""
SAID = ["write", "the descriptor", "C", "a program", "a shell"]


def check(out: str, err: str, processes: int) -> None:
    assert sorted(out.splitlines(keepends=True)) == LINES.splitlines(keepends=True)
    for said in SAID:
        assert err.count(f"by {said}\n") == 3
    assert err.count("by print\n") == 3
    assert err.count("by a process \n") == processes


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_handlers_and_their_children_neither_read_the_events_nor_print_between_the_results(
    process: Process, module: list[str], write_file: Write, workers: list[str]
) -> None:
    path = write_file("job.py", ALL + PIPELINE.format(sink="write_jsonl()"))
    result = process(module, "run", path, *workers, input=LINES)
    assert result.returncode == 0
    check(result.stdout, result.stderr, 3)
    assert result.stderr.startswith("while it is loaded\n")


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_what_a_library_in_c_prints_while_the_file_is_loaded_is_not_among_the_results(
    process: Process,
    module: list[str],
    write_file: Write,
    monkeypatch: pytest.MonkeyPatch,
    workers: list[str],
) -> None:
    # With it nothing waits to be written out, in C neither.
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    text = "import ctypes\nc = ctypes.CDLL(None)\nc.printf(b'loaded\\n')\n"
    text += "def handler(event):\n    c.printf(b'called\\n')\n    return event\n"
    path = write_file("job.py", text + PIPELINE.format(sink="write_jsonl()"))
    result = process(module, "run", path, *workers, input=LINES)
    assert sorted(result.stdout.splitlines()) == LINES.splitlines()
    assert result.stderr.count("loaded\n") == 1
    assert result.stderr.count("called\n") == 3


@pytest.mark.parametrize("workers", [None, 2])
def test_a_script_has_its_standard_output_before_and_after_the_run(
    process: Process, write_file: Write, workers: int | None
) -> None:
    text = FEW + PIPELINE.format(sink="write_jsonl()") + SCRIPT.format(workers=workers)
    path = write_file("job.py", text)
    result = process([sys.executable], path, input=LINES)
    assert result.returncode == 0
    before, _, rest = result.stdout.partition("before\n")
    assert before == "while it is loaded\n"
    results, _, rest = rest.partition("after\n")
    assert rest == ""
    check(results, result.stderr, 1)


def test_a_pipeline_that_does_not_write_standard_output_leaves_it_to_the_handlers(
    process: Process, module: list[str], write_file: Write
) -> None:
    path = write_file("job.py", FEW + PIPELINE.format(sink="write_jsonl('out.jsonl')"))
    result = process(module, "run", path, input=LINES, cwd=path.parent)
    assert result.returncode == 0
    assert (path.parent / "out.jsonl").read_text() == LINES
    assert result.stdout.startswith("while it is loaded\n")
    for said in SAID:
        assert result.stdout.count(f"by {said}\n") == 3
    assert "by" not in result.stderr


def test_an_output_that_is_redirected_leaves_standard_output_to_the_handlers(
    process: Process, module: list[str], write_file: Write, tmp_path: Path
) -> None:
    text = "def handler(event):\n    print('said')\n    return event\n"
    path = write_file("job.py", text + PIPELINE.format(sink="write_jsonl()"))
    output = tmp_path / "out.jsonl"
    result = process(module, "run", path, "--output", output, input=LINES)
    assert (result.stdout, output.read_text()) == ("said\n" * 3, LINES)


def test_what_a_file_prints_before_it_fails_is_not_lost(
    process: Process, module: list[str], write_file: Write
) -> None:
    path = write_file("job.py", "print('so far')\nraise ValueError\n")
    result = process(module, "run", path, input="")
    assert (result.returncode, result.stdout) == (2, "so far\n")


def test_input_that_the_file_has_read_ahead_is_not_left_out_in_silence(
    process: Process, module: list[str], write_file: Write
) -> None:
    path = write_file("job.py", "input()\npipeline = read_jsonl().to(write_jsonl())\n")
    result = process(module, "run", path, input=LINES)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Cannot read standard input without a gap" in result.stderr
    # Nothing is missing if that was all.
    assert process(module, "run", path, input='{"n":1}\n').returncode == 0


def test_the_turning_point_has_its_table_for_itself(
    process: Process, module: list[str], write_file: Write, tmp_path: Path
) -> None:
    text = "def handler(event):\n    print('said')\n    os.system('cat; echo child')\nimport os\n"
    sink = "write_jsonl('out.jsonl')"
    path = write_file("job.py", "print('loaded')\n" + text + PIPELINE.format(sink=sink))
    events = tmp_path / "in.jsonl"
    events.write_text(LINES)
    words = ["turning-point", path, "--input", events, "--seconds", "0.1", "--yes"]
    result = process(module, *words, input=LINES, cwd=tmp_path)
    assert "said" not in result.stdout
    assert "child" not in result.stdout
    assert "loaded" not in result.stdout
    assert result.stderr.count("said\n") == result.stderr.count("child\n") == 3
