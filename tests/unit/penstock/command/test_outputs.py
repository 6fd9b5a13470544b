from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import termios
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.command.output import Lines

Process = Callable[..., "subprocess.CompletedProcess[str]"]


def _lines(count: int) -> str:
    return "".join(f'{{"uuid": "u{i}", "client_id": {1000 + i % 10}}}\n' for i in range(count))


def test_lines_are_put_out_together_and_none_is_kept_at_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def some(count: int) -> None:
        with Lines() as lines:
            for number in range(count):
                lines.put(str(number))
                seen.append(capsys.readouterr().out)
            raise RuntimeError

    seen: list[str] = []
    with pytest.raises(RuntimeError):
        some(1001)
    assert seen[999].splitlines() == [str(number) for number in range(1000)]
    assert [said for said in seen if said] == [seen[999]]
    assert capsys.readouterr().out == "1000\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_that_is_stopped_while_it_writes_writes_the_rest(
    script: list[str], tmp_path: Path, unbuffered: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"case": {n}, "step": "s{n}"}}\n' for n in range(3_000)))
    words = ["mine", str(path), "--by", "case", "--all", "--format", "json"]
    whole = subprocess.run([*script, *words], capture_output=True, check=True).stdout
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([*script, *words], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        pipe, filled = child.stdout.fileno(), array("i", [0])
        while filled[0] < fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ):
            fcntl.ioctl(pipe, termios.FIONREAD, filled)
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)
        child.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        assert child.stdout.read() == whole
    assert len(whole) > 2 * filled[0]


def test_a_reader_that_goes_away_is_not_an_error(
    process: Process, script: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(20_000))
    result = process(
        ["sh", "-c", '"$0" run "$1" --input "$2" | head -n 2'],
        script[0], pipeline_file, tmp_path / "in.jsonl",
    )  # fmt: skip
    assert len(result.stdout.splitlines()) == 2
    assert "ended when the output was closed" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Broken" not in result.stderr


def test_the_status_is_zero_when_the_reader_goes_away(
    script: list[str], pipeline_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(20_000))
    command = [*script, "run", str(pipeline_file), "--input", str(tmp_path / "in.jsonl")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        errors = running.stderr.read()
        assert running.wait(30) == 0
    assert "went away" in errors


def test_a_full_disk_stops_the_run_and_is_named(
    process: Process, script: list[str], pipeline_file: Path
) -> None:
    with open("/dev/full", "w") as full:
        result = process(
            script, "run", pipeline_file, input=_lines(10), stdout=full, stderr=subprocess.PIPE
        )
    assert result.returncode == 1
    assert result.stderr.count("No space left on device") == 1
    assert "standard output" in result.stderr
    assert "10 returned" in result.stderr


@pytest.mark.parametrize("words", [["draw"], ["check"]])
def test_what_the_command_prints_is_not_lost_in_silence(
    process: Process, script: list[str], pipeline_file: Path, words: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        result = process(script, *words, pipeline_file, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 1
    assert result.stderr == ("penstock: cannot write standard output: No space left on device\n")


@pytest.mark.parametrize("words", [["draw"], ["check"]])
def test_without_a_standard_output_there_is_nothing_to_print_to(
    process: Process, script: list[str], pipeline_file: Path, words: list[str]
) -> None:
    result = process(["sh", "-c", '"$0" "$@" >&-'], script[0], *words, pipeline_file)
    assert result.returncode == 2
    assert result.stderr == "penstock: cannot write standard output: it is closed\n"


@pytest.mark.parametrize(
    ("closed", "status"), [("<&-", 2), (">&-", 2), ("2>&-", 0), ("2>/dev/full", 0)]
)
def test_a_closed_standard_stream_is_never_mixed_up_with_another(
    process: Process,
    script: list[str],
    pipeline_file: Path,
    tmp_path: Path,
    closed: str,
    status: int,
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(3))
    redirect = closed if closed == "<&-" else f'< "$2" {closed}'
    result = process(
        ["sh", "-c", f'"$0" run "$1" {redirect}'], script[0], pipeline_file, tmp_path / "in.jsonl"
    )
    assert result.returncode == status
    assert "Traceback" not in result.stderr
    if status == 0:
        assert len(result.stdout.splitlines()) == 3
        assert all(json.loads(line) for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("<&-", "Cannot read standard input: it is closed"),
        (">&-", "Cannot write standard output: it is closed"),
        ("0>&1", "Cannot read standard input: it is closed"),
        ("1<&0", "Cannot write standard output: it is closed"),
    ],
)
def test_a_standard_stream_that_is_not_open_for_its_use_is_a_usage_error(
    process: Process, script: list[str], pipeline_file: Path, closed: str, said: str
) -> None:
    result = process(
        ["sh", "-c", f'"$0" run "$1" < /dev/null > /dev/full {closed}'], script[0], pipeline_file
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"penstock: {said}")
    assert "in, 0 finished" in result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8:strict"])
def test_a_result_is_utf_8_where_standard_output_cannot_encode_it(
    process: Process, script: list[str], encoding: str
) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    for name in ("\N{GREEK SMALL LETTER ALPHA}", "\xe4"):
        result = process(script, "formula", f'G "{name}"', "--unicode", env=env, encoding="utf-8")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == f'\N{WHITE SQUARE}"{name}"\n'


def test_a_byte_that_is_not_utf_8_is_escaped_in_a_result(
    process: Process, script: list[str], tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = process(script, "formula", '"\udcff"', env=env)
    assert (result.returncode, result.stdout) == (0, '"\\udcff"\n')
    path = tmp_path / "formula.txt"
    assert process(script, "formula", '"\udcff"', "--output", path, env=env).returncode == 0
    assert path.read_text(encoding="utf-8") == '"\\udcff"\n'
