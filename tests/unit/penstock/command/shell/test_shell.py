"""Pipelines of one command line: `run -c`, `run -`, `distinct` and `map`."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ORDERS = '{"id":1,"n":1}\n{"id":2,"n":2}\n{"id":1,"n":3}\n'

Command = Callable[..., Any]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_text(ORDERS)
    return path


def test_a_stream_on_the_command_line_is_written_as_json_lines(
    penstock: Command, orders: Path
) -> None:
    code = 'read_jsonl().pipe(distinct_within(10, by="id"),\nops.map(lambda one: one["n"]))'
    result = penstock("run", "-c", code, "--input", str(orders))
    assert (result.status, result.out) == (0, "1\n2\n")
    assert "3 in, 2 finished, 1 dropped (duplicate)" in result.err


def test_a_pipeline_on_the_command_line_may_have_statements_and_arguments(
    penstock: Command, orders: Path
) -> None:
    code = "import sys\npipeline = read_jsonl(sys.argv[1]).to(write_csv())"
    result = penstock("run", "-c", code, "--report", "none", "--", str(orders))
    assert (result.status, result.out) == (0, "id,n\n1,1\n2,2\n1,3\n")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("read_jsonl().pipe(", "-c:1: '(' was never closed"),
        ("read_jsonl", "'pipeline' is the function 'read_jsonl', which is not called"),
        ("read_jsonl().pipe(distinct_within(1, bye='n'))", "Did you mean 'by'?"),
        ("1", "-c is of type int, and a stream or a pipeline is needed, as in"),
        ("1/0", "ZeroDivisionError"),
    ],
)
def test_a_wrong_text_is_told_by_its_line_without_our_frames(
    penstock: Command, code: str, told: str
) -> None:
    result = penstock("run", "-c", code)
    assert result.status == 2
    assert told in result.err
    assert "streams/" not in result.err


def test_an_error_of_a_handler_shows_its_line_of_the_text(penstock: Command) -> None:
    result = penstock("run", "-c", "from_iterable([1]).pipe(ops.map(lambda n: n / 0))")
    assert result.status == 1
    assert "lambda n: n / 0" in result.err


def test_a_pipeline_of_standard_input_reads_its_events_elsewhere(
    process: Command, script: list[str], orders: Path
) -> None:
    text = "from penstock import *\npipeline = read_jsonl().to(write_jsonl())\n"
    words = [*script, "run", "-", "--report", "none"]
    result = process([*words, "--input", str(orders)], input=text)
    assert (result.returncode, result.stdout) == (0, ORDERS)
    for more in ([], ["--input", "-"], ["--input", "/dev/stdin"]):
        result = process([*words, *more], input=text)
        assert result.returncode == 2
        assert "its source reads standard input too: give the events by --input" in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "arguments are required: FILE[:NAME], - or -c CODE"),
        (["run", "a.py", "-c", "x"], "either -c or the file a.py"),
        (["run", "-c", "x", "--workers", "2"], "other processes need a file"),
        (["distinct", "--by", "id", "--within", "10x"], "is not a time such as"),
        (["distinct", "--by", "id", "--within", "0s"], "is not a time such as"),
        (["distinct", "--by", "id", "--within", "1", "--types", "a=int"], "goes with CSV"),
        (["distinct", "--by", "id", "--within", "1", "a.csv", "--types", "a=x"], "COLUMN=TYPE"),
        (["map", "some.py"], "say which function"),
    ],
)
def test_what_makes_no_sense_is_refused(penstock: Command, words: list[str], told: str) -> None:
    result = penstock(*words)
    assert result.status == 2
    assert told in result.err


def test_distinct_reads_the_formats_that_the_names_say(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(b"id,n\n1,x\n1,y\n"))
    (tmp_path / "2.csv").write_text("id,n\n1,z\n2,7\n")
    words = ["distinct", "--by", "id", "--within", "1h", "--report", "none"]
    result = penstock(*words, f"{tmp_path}/*.csv*")
    assert (result.status, result.out) == (0, "id,n\n1,x\n2,7\n")
    out = tmp_path / "out.tsv"
    assert penstock(*words, str(tmp_path / "2.csv"), "--output", str(out)).status == 0
    assert out.read_text() == "id\tn\n1\tz\n2\t7\n"
    result = penstock(*words, str(tmp_path / "2.csv"), "--to", "jsonl", "--types", "id=int")
    assert result.out == '{"id":1,"n":"z"}\n{"id":2,"n":"7"}\n'


def test_a_bad_row_makes_the_exit_status_3(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n1\n2,2\n")
    words = ["distinct", "--by", "id", "--within", "10", str(tmp_path / "a.csv")]
    result = penstock(*words)
    assert (result.status, result.out) == (3, "id,n\n2,2\n")


def test_map_calls_a_function_of_a_file_and_goes_on_where_it_ended(
    penstock: Command, tmp_path: Path, orders: Path
) -> None:
    file = tmp_path / "work.py"
    file.write_text("async def double(event):\n    return {'n': event['n'] * 2}\n")
    out = tmp_path / "out.jsonl"
    words = [
        *("map", f"{file}:double", str(orders), "--by", "id", "--limit", "1:4"),
        *("--position", str(tmp_path / "place"), "--output", str(out), "--append"),
    ]
    assert penstock(*words).status == 0
    with orders.open("a") as more:
        more.write('{"id":9,"n":9}\n')
    assert penstock(*words).status == 0
    assert sorted(out.read_text().splitlines()) == [f'{{"n":{number}}}' for number in (18, 2, 4, 6)]


def test_map_names_a_function_that_is_not_there_and_an_error_stops_it(
    penstock: Command, tmp_path: Path, orders: Path
) -> None:
    file = tmp_path / "other.py"
    file.write_text("def fails(event):\n    raise ValueError(event)\n")
    result = penstock("map", f"{file}:work", str(orders))
    assert (result.status, "has no function 'work'" in result.err) == (2, True)
    assert penstock("map", f"{file}:fails", str(orders)).status == 1
    assert penstock("map", f"{file}:fails", str(orders), "--on-error", "skip").status == 3


@pytest.mark.parametrize(
    "command",
    [
        ["distinct", "--by", "n", "--within", "1h"],
        ["map", "CODE:same"],
        ["run", "-c", "read_jsonl(position='orders.position').to(write_jsonl())", "--input"],
    ],
)
def test_the_output_of_each_command_can_be_rotated(
    penstock: Command, orders: Path, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "code.py").write_text("def same(order):\n    return order\n")
    out = tmp_path / "out.jsonl"
    words = [word.replace("CODE", str(tmp_path / "code.py")) for word in command]
    words = [word.replace("orders.position", str(tmp_path / "orders.position")) for word in words]
    result = penstock(*words, str(orders), "--output", str(out), "--rotate", "20B,1d")
    assert result.status == 0, result.err
    ended = sorted(tmp_path.glob("out-*.jsonl"))
    assert [path.read_text() for path in [*ended, out]] == [f"{line}\n" for line in ORDERS.split()]
    for wrong, told in (("20B", "--rotate goes with --output"), ("20", "give a size such as")):
        last = [] if "goes" in told else ["--output", str(out)]
        result = penstock(*words, str(orders), *last, "--rotate", wrong)
        assert (result.status, told in result.err) == (2, True), result.err


@pytest.mark.parametrize("command", [["distinct", "--within", "9s"], ["map", "CODE:same"]])
def test_a_key_that_cannot_be_one_is_named_with_the_option_of_the_command(
    penstock: Command, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "code.py").write_text("def same(order):\n    return order\n")
    words = [word.replace("CODE", str(tmp_path / "code.py")) for word in command]
    file = tmp_path / "keys.jsonl"
    file.write_text('{"id":[1]}\n{"id":2}\n')
    result = penstock(*words, "--by", "id", file)
    assert result.status == 1
    assert "field 'id' of the event, of type list, cannot be a key" in result.err
    assert "to go on without such events give --on-error skip" in result.err
    assert "on_error" not in result.err
    result = penstock(*words, "--by", "id", "--on-error", "skip", file)
    assert result.out == '{"id":2}\n'


def test_a_module_in_place_of_a_file_is_guessed(
    penstock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code.py").write_text("def same(order):\n    return order\n")
    monkeypatch.chdir(tmp_path)
    result = penstock("map", "code:same")
    assert result.status == 2
    assert "did you mean code.py:same?" in result.err


@pytest.mark.parametrize(("names", "form"), [("a,n", "csv"), ('a\tb c\t"d"', "tsv")])
def test_csv_on_standard_input_is_recognised_by_its_first_line(
    process: Command, module: list[str], names: str, form: str
) -> None:
    command = ["distinct", "--by", "a", "--within", "9s"]
    result = process(module, *command, input=f"{names}\n1,x\n2,y\n")
    assert result.returncode == 2
    assert f"give --input-format {form} if these are the names of its columns" in result.stderr
    assert result.stderr.count("JSON") == 1
    # What is no header is a bad line, as anywhere.
    result = process(module, *command, input=f'ent":1,"a":2}}\n{names}\n{{"a":3}}\n')
    assert (result.returncode, result.stdout) == (3, '{"a":3}\n')
    result = process(module, *command, "--input-format", "jsonl", input='a,n\n{"a":3}\n')
    assert (result.returncode, result.stdout) == (3, '{"a":3}\n')
