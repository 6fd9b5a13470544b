"""A plugin for pytest that runs RxPY's tests, through the adapter or not, and records them.

RXPY_THROUGH is the name of the adapter's module, or empty; RXPY_RECORDS is the file to write.
Of each test it records whether it passed, how many of its pipes went through the adapter, what its
observers received, when its sources were subscribed to and disposed of, and what was refused.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest
from reactivex import Observable
from reactivex.testing.coldobservable import ColdObservable
from reactivex.testing.hotobservable import HotObservable
from reactivex.testing.mockobserver import MockObserver

from penstock.streams.base.errors import BuildError

_SECONDS = 20  # for one test
_ADAPTER = os.environ.get("RXPY_THROUGH", "")


class _Test:
    def __init__(self) -> None:
        self.piped = 0
        self.observers: list[Any] = []
        self.sources: list[Any] = []
        self.refused: list[str] = []
        self.outcome = "failed"
        self.error = self.kind = ""

    def record(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "error": self.error,
            "kind": self.kind,
            "piped": self.piped,
            "refused": self.refused,
            "messages": [list(map(_text, one.messages)) for one in self.observers],
            "subscriptions": [list(map(_text, one.subscriptions)) for one in self.sources],
        }


_tests: dict[str, _Test] = {}
_running: _Test | None = None


def _text(value: object) -> str:
    return re.sub("0x[0-9a-f]+", "0x", repr(value))


def pytest_configure() -> None:
    if _ADAPTER:
        _pipe_through(importlib.import_module(_ADAPTER).through)
    for kind in (HotObservable, ColdObservable):
        _note(kind, lambda test: test.sources)
    _note(MockObserver, lambda test: test.observers)


def _pipe_through(through: Callable[..., Any]) -> None:
    stock = Observable.pipe

    def pipe(self: Observable[Any], *operators: Any) -> Any:
        # A connectable has no place for a stream with demand above it.
        if _running is None or not operators or hasattr(self, "connect") or not _is_in_a_test():
            return stock(self, *operators)
        _running.piped += 1
        try:
            return through(self, operators)
        except BuildError as error:
            _running.refused.append(str(error))
            raise

    Observable.pipe = pipe  # type: ignore[method-assign]


def _is_in_a_test() -> bool:
    """Whether a test called `pipe`, by itself or by a fluent method."""
    frame = sys._getframe(2)
    while frame.f_globals["__name__"].startswith("reactivex.observable") and frame.f_back:
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).startswith("tests")


def _note(kind: type[Any], where: Callable[[_Test], list[Any]]) -> None:
    begin = kind.__init__

    def noted(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        if _running is not None:
            where(_running).append(self)

    kind.__init__ = noted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    global _running

    def late(*_: object) -> None:
        raise TimeoutError(f"the test took more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    _running = _tests[item.nodeid] = _Test()
    try:
        yield
    finally:
        _running = None
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# When the report is made, because a test of `unittest` keeps its failure until then.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and item.nodeid in _tests:
        test = _tests[item.nodeid]
        test.outcome = report.outcome
        if report.failed:
            test.kind = type(call.excinfo.value).__name__ if call.excinfo else ""
            test.error = str(call.excinfo.value if call.excinfo else report.longrepr)[:300]
    return report


def pytest_sessionfinish() -> None:
    records = {name: test.record() for name, test in _tests.items()}
    with open(os.environ["RXPY_RECORDS"], "w", encoding="utf-8") as file:
        json.dump(records, file)
