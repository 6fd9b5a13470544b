"""`penstock run --log-format` and `--log-level`, and what an application finds set up."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import adaptive_flat_map, for_each, from_iterable
from penstock.streams.testing.plugin import Run
from tests.helpers.copies import run_command

Penstock = Callable[..., Any]

JOB = """
import logging
from penstock import adaptive_flat_map, group_by, read_jsonl, spread, write_jsonl
{set_up}
log = logging.getLogger("app")

async def work(event):
    log.info("at %s", event["n"])
    if event["n"] == 1:
        raise ValueError("100 % wrong")
    return event

pipeline = read_jsonl("events.jsonl").pipe(
    group_by("n"), spread(), adaptive_flat_map(work, on_error="skip")
).to(write_jsonl("done.jsonl"))
"""


CANNOT_START = """
from penstock.streams.base.errors import PenstockError
from penstock.streams.pipelines.pipeline import Pipeline

def start(self, **options):
    raise PenstockError("no server answers")

Pipeline.start = start
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "events.jsonl").write_text('{"n": 0}\n{"n": 1}\nbad\n', encoding="utf-8")
    (tmp_path / "job.py").write_text(JOB.format(set_up=""), encoding="utf-8")
    own = JOB.format(set_up="logging.basicConfig()")
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    return tmp_path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def run_with(files: Path) -> Penstock:
    def run(*words: object, file: str = "job.py") -> Any:
        return run_command(("run", file, *map(str, words)), files)

    return run


def test_every_line_on_standard_error_is_json_with_the_facts_of_the_failure(
    run_with: Penstock,
) -> None:
    ended = run_with("--log-format", "json")
    assert ended.returncode == 3
    *said, report = lines(ended.stderr)
    by_error = {line["error"]: line for line in said if "error" in line}
    failed = by_error["ValueError"]
    assert (failed["stage"], failed["stage_name"], failed["token"]) == (4, "adaptive_flat_map", 2)
    assert (failed["level"], failed["logger"]) == ("warning", "penstock")
    assert "100 % wrong" in failed["message"]
    assert failed["time"].endswith("+00:00")
    assert by_error["BadLine"]["place"] == "events.jsonl, line 3"
    assert [line["message"] for line in said if line["logger"] == "app"] == ["at 0", "at 1"]
    assert report["statistics"]["finished"] == 1
    assert report["outcome"] == "completed"


def test_a_line_about_an_event_that_failed_in_a_worker_process_has_the_same_facts(
    run_with: Penstock,
) -> None:
    ended = run_with("--log-format", "json", "--workers", "2")
    assert ended.returncode == 3
    by_error = {line["error"]: line for line in lines(ended.stderr) if "error" in line}
    failed = by_error["ValueError"]
    assert (failed["stage"], failed["stage_name"], failed["token"]) == (4, "adaptive_flat_map", 2)
    assert (failed["level"], failed["logger"]) == ("warning", "penstock")
    assert "100 % wrong" in failed["message"]


def test_an_exit_inside_a_worker_process_is_json_too(run_with: Penstock, files: Path) -> None:
    job = JOB.format(set_up="").replace("ValueError", "SystemExit")
    (files / "job.py").write_text(job, encoding="utf-8")
    ended = run_with("--log-format", "json", "--workers", "2")
    assert ended.returncode == 1
    error = lines(ended.stderr)[-1]["error"]
    assert (error["type"], error["message"]) == ("SystemExit", "100 % wrong")


def test_a_level_leaves_out_what_is_below_it(run_with: Penstock) -> None:
    ended = run_with("--log-level", "error", "--report", "none")
    assert ended.stderr == ""
    ended = run_with("--log-level", "warning", "--report", "none")
    assert "penstock: ValueError: 100 % wrong" in ended.stderr
    assert "app:" not in ended.stderr
    ended = run_with("--log-level", "info", "--report", "none")
    assert "app: at 0\n" in ended.stderr


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_run_that_cannot_begin_says_why_at_every_level(run_with: Penstock, level: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serve = ("--serve", taken.getsockname()[1])
        ended = run_with("--log-level", level, *serve)
        assert ended.returncode == 2
        assert ended.stderr.startswith("penstock: cannot listen on 127.0.0.1:")
        ended = run_with("--log-level", level, "--log-format", "json", *serve)
    (line,) = lines(ended.stderr)
    assert (line["level"], line["logger"]) == ("error", "penstock")
    assert line["message"].startswith("cannot listen on 127.0.0.1:")


def test_an_error_at_the_start_that_is_not_one_of_usage_is_shown_at_every_level(
    run_with: Penstock, files: Path
) -> None:
    failing = f"{JOB.format(set_up='')}\n{CANNOT_START}"
    (files / "failing.py").write_text(failing, encoding="utf-8")
    ended = run_with("--log-level", "error", file="failing.py")
    assert (ended.returncode, ended.stderr) == (1, "penstock: no server answers\n")


@pytest.mark.parametrize("level", ["info", "error"])
def test_the_address_of_the_page_is_printed_at_every_level(run_with: Penstock, level: str) -> None:
    ended = run_with("--log-level", level, "--serve", "0", "--report", "none")
    assert "penstock: live page: http://127.0.0.1:" in ended.stderr
    ended = run_with("--log-format", "json", "--log-level", level, "--serve", "0")
    said = [line for line in lines(ended.stderr) if "live page" in line.get("message", "")]
    assert [line["level"] for line in said] == ["info"]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_the_server_of_the_page_logs_nothing_while_it_works(run_with: Penstock, level: str) -> None:
    ended = run_with("--log-format", "json", "--log-level", level, "--serve", "0")
    loggers = {line["logger"] for line in lines(ended.stderr) if "logger" in line}
    assert loggers <= {"penstock", "app", "asyncio"}


def test_without_the_options_the_log_is_as_it_was(run_with: Penstock) -> None:
    ended = run_with()
    assert "penstock: events.jsonl, line 3 is not valid JSON" in ended.stderr
    assert "app" not in ended.stderr


def test_a_file_that_sets_up_logging_keeps_it(run_with: Penstock) -> None:
    ended = run_with("--log-format", "json", file="own.py")
    assert ended.returncode == 2
    assert "sets up logging itself" in ended.stderr


WHILE_LOADED = """
import logging, threading, warnings
from penstock import from_iterable, for_each

class Closed:
    def __del__(self):
        raise OSError("closing failed")

def late():
    raise RuntimeError("in a thread")

logging.getLogger("app").info("loading")
logging.warning("no settings")
warnings.warn("this is old")
thread = threading.Thread(target=late, name="reader")
thread.start()
thread.join()
Closed()
pipeline = from_iterable([1]).to(for_each(lambda event: warnings.warn("later")))
"""


def test_what_is_said_while_the_file_is_loaded_is_json_too(run_with: Penstock, files: Path) -> None:
    (files / "loud.py").write_text(WHILE_LOADED, encoding="utf-8")
    ended = run_with("--log-format", "json", file="loud.py")
    assert ended.returncode == 0, ended.stderr
    *said, report = lines(ended.stderr)
    found = [(line["level"], line["logger"], line["message"].splitlines()) for line in said]
    assert found[:2] == [("info", "app", ["loading"]), ("warning", "root", ["no settings"])]
    (old, thread, closed, later) = found[2:]
    assert old[:2] == later[:2] == ("warning", "py.warnings")
    assert "UserWarning: this is old" in old[2][0]
    assert "UserWarning: later" in later[2][0]
    assert thread[:2] == closed[:2] == ("error", "penstock")
    assert thread[2][0] == "the thread reader ended by an error"
    assert thread[2][-1] == "RuntimeError: in a thread"
    assert closed[2][-1] == "OSError: closing failed"
    assert report["outcome"] == "completed"


@pytest.mark.parametrize(
    "set_up",
    [
        "logging.basicConfig(level=logging.INFO)",
        "logging.basicConfig(force=True)",
        "logging.getLogger().addHandler(logging.StreamHandler())",
    ],
)
def test_a_file_that_sets_up_logging_in_any_way_is_refused(
    run_with: Penstock, files: Path, set_up: str
) -> None:
    (files / "own.py").write_text(JOB.format(set_up=set_up), encoding="utf-8")
    ended = run_with("--log-format", "json", file="own.py")
    assert ended.returncode == 2
    (line,) = lines(ended.stderr)
    assert line["level"] == "error"
    assert "sets up logging itself" in line["message"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "many"), "'many' is not a valid N or FLOOR:CEILING"),
        (("--nothing",), "unrecognized arguments: --nothing"),
        (("--attempts", "2"), "--attempts goes with --on; in one process"),
        (("--kafka-config", "a=b", "--on", "nats://h"), "--kafka-config does not go with"),
    ],
)
def test_a_wrong_command_line_is_json_where_that_is_asked_for(
    run_with: Penstock, words: tuple[str, ...], said: str
) -> None:
    for more in (("--log-format", "json"), ("--log-format=json",)):
        ended = run_with(*words, *more)
        assert (ended.returncode, ended.stdout) == (2, "")
        (line,) = lines(ended.stderr)
        assert (line["level"], line["logger"]) == ("error", "penstock")
        assert said in line["message"]
    ended = run_with(*words, "--log-format", "json", "--log-format", "text")
    assert said in ended.stderr
    assert "{" not in ended.stderr


@pytest.mark.parametrize("name", ["LIMIT", "TRACEBACK"])
def test_a_wrong_variable_is_json_where_that_is_asked_for(
    run_with: Penstock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    monkeypatch.setenv(f"PENSTOCK_{name}", "many")
    ended = run_with()
    assert ended.returncode == 2
    (line,) = lines(ended.stderr)
    assert line["level"] == "error"
    assert line["message"].startswith(f"PENSTOCK_{name}")


@pytest.mark.parametrize("rest", ["1 / 0", "raise SystemExit(3)", "def"])
def test_an_error_of_the_file_is_json(run_with: Penstock, files: Path, rest: str) -> None:
    (files / "wrong.py").write_text(f"{rest}\n", encoding="utf-8")
    ended = run_with("--log-format", "json", file="wrong.py")
    assert ended.returncode == 2
    (line,) = lines(ended.stderr)
    assert (line["level"], line["logger"]) == ("error", "penstock")
    assert "wrong.py" in line["message"]


async def fails(value: int) -> int:
    raise ValueError("no")


FAILING = from_iterable([1]).pipe(adaptive_flat_map(fails, on_error="skip")).to(for_each(bool))


def test_an_application_finds_nothing_set_up(run: Run) -> None:
    loggers = (logging.getLogger(), logging.getLogger("penstock"))
    before = [(list(log.handlers), log.level, log.propagate) for log in loggers]
    run(FAILING.run())
    assert [(log.handlers, log.level, log.propagate) for log in loggers] == before


def test_a_record_of_an_application_has_the_fields(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run(FAILING.run())
    (record,) = caplog.records
    fields = record.__dict__["penstock"]
    assert (fields["error"], fields["stage"]) == ("ValueError", 2)
