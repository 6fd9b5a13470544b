"""Calls of a client that block."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from penstock.streams.state.kafka import calls
from penstock.streams.state.kafka.calls import Calls


def test_an_answer_that_comes_when_the_time_is_over_is_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            found = super().result()
            if timeout is not None:
                raise TimeoutError
            return found

    monkeypatch.setattr(calls, "Future", Late)
    made = Calls("test")
    try:
        assert made.wait(lambda: 7, 1.0) == 7
    finally:
        made.close()
