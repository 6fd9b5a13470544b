"""The comparison of `make test-rx`, on a suite of a few tests in place of RxPY's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.rxpy.judge import DIFFER, SAME, Judged, judge

HOME = Path(__file__).parents[2]

SUITE = """
import reactivex
from reactivex import operators as ops
from reactivex.testing import ReactiveTest, TestScheduler

on_next, on_completed = ReactiveTest.on_next, ReactiveTest.on_completed
MESSAGES = [on_next(210, 1), on_next(220, 2), on_completed(230)]


def test_same():
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(MESSAGES)
    result = scheduler.start(lambda: source.pipe(ops.map(lambda value: value + 1)))
    assert result.messages[0] == on_next(210, 2)


def test_refused():
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(MESSAGES)
    result = scheduler.start(lambda: source.pipe(ops.expand(lambda _: reactivex.empty())))
    assert result.messages == MESSAGES


def test_without_a_pipe():
    assert True


def test_that_fails_anyway():
    assert reactivex.just(1).pipe(ops.map(str)) is None
"""

ASKS_FOR_ITS_SCHEDULER = """
import reactivex
from reactivex import operators as ops
from reactivex.scheduler import ImmediateScheduler


def test_scheduler():
    given, seen = ImmediateScheduler(), []

    def subscribe(observer, scheduler=None):
        seen.append(scheduler)

    reactivex.create(subscribe).pipe(ops.pairwise()).subscribe(scheduler=given)
    assert seen[0] is given
"""


def compared(folder: Path, suite: str) -> subprocess.CompletedProcess[str]:
    tests = folder / "tests" / "test_observable"
    tests.mkdir(parents=True)
    for package in (tests.parent, tests):
        (package / "__init__.py").touch()
    (tests / "test_few.py").write_text(suite)
    few = ["--only", "tests/test_observable/test_few.py", "--show"]
    return subprocess.run(
        [sys.executable, "-m", "tests.contract.rxpy", str(folder), *few],
        cwd=HOME,
        env=os.environ | {"PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
    )


def test_each_test_that_has_a_pipe_and_passes_is_compared(tmp_path: Path) -> None:
    run = compared(tmp_path, SUITE)
    lines = run.stdout.splitlines()
    assert lines[0].split() == ["file", "same", "records", "differ", "refused", "other"]
    assert [line.split() for line in lines[1:3]] == [["test_few.py", "1", "1"], ["all", "1", "1"]]
    assert lines[3].startswith("2 tests")
    assert lines[4].startswith("test_few.py::test_refused: refused: expand feeds")
    assert (run.returncode, run.stderr) == (0, "")


def test_a_test_that_fails_with_demand_is_shown(tmp_path: Path) -> None:
    run = compared(tmp_path, ASKS_FOR_ITS_SCHEDULER)
    assert "test_scheduler is 'other', and expected.py does not list it" in run.stdout
    assert run.returncode == 1


@pytest.mark.parametrize("what", ["messages", "subscriptions"])
def test_a_test_that_passes_with_other_records_is_not_the_same(what: str) -> None:
    stock: dict[str, Any] = {"outcome": "passed", "piped": 0, "messages": [["OnNext(1)@210"]]}
    stock["subscriptions"] = [["Subscribe(200, 230)"]]
    ours = stock | {"piped": 1}
    assert judge({"a": stock}, {"a": ours}) == [Judged("a", SAME)]
    assert judge({"a": stock}, {"a": ours | {what: [["later"]]}}) == [Judged("a", DIFFER)]


def test_a_test_that_did_not_run_or_had_no_pipe_is_not_judged() -> None:
    stock: dict[str, Any] = {"outcome": "passed", "piped": 0}
    assert judge({"a": stock, "b": stock}, {"a": {"outcome": "passed", "piped": 0}}) == []
