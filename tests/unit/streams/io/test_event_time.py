from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.streams import clock
from penstock.streams.io.line_source import Creation

WALL = 1_700_000_000.0


@pytest.fixture
def creation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Creation]:
    """Creation times on a loop whose clock says 50 when the wall clock says WALL."""
    monkeypatch.setattr(clock, "wall", lambda: WALL)
    return lambda by="at": Creation(by, lambda: 50.0)


@pytest.mark.parametrize(
    "stamp",
    [
        WALL - 20,
        "2023-11-14T22:13:00",
        datetime(2023, 11, 15, 0, 13, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_stamp_lies_as_far_in_the_past_on_the_loops_clock(
    creation: Callable[..., Creation], stamp: Any
) -> None:
    stamps = creation()
    assert stamps({"at": stamp}, 60.0) == 30.0
    assert (stamps.in_future, stamps.unknown) == (0, 0)


def test_a_stamp_may_be_an_attribute(creation: Callable[..., Creation]) -> None:
    stamps = creation()
    assert stamps(SimpleNamespace(at=WALL - 20), 60.0) == 30.0
    assert stamps(SimpleNamespace(to=WALL - 20), 60.0) == 60.0
    assert stamps({"at": WALL - 20}, 60.0) == 30.0
    assert stamps.unknown == 1


def test_a_stamp_in_the_future_counts_as_the_receipt(creation: Callable[..., Creation]) -> None:
    stamps = creation()
    assert stamps({"at": WALL + 20}, 60.0) == 60.0
    assert stamps.in_future == 1


@pytest.mark.parametrize("value", [{}, {"at": None}, {"at": "soon"}, {"at": True}, {"at": "1e99"}])
def test_a_stamp_that_is_missing_or_unreadable_counts_as_the_receipt(
    creation: Callable[..., Creation], value: dict[str, Any]
) -> None:
    stamps = creation()
    assert stamps(value, 60.0) == 60.0
    assert stamps.unknown == 1


def test_a_function_may_find_the_stamp_and_not_a_number_is_unknown(
    creation: Callable[..., Creation],
) -> None:
    stamps = creation(lambda value: value["inner"]["ms"] / 1000)
    assert stamps({"inner": {"ms": (WALL - 20) * 1000}}, 60.0) == 30.0
    assert stamps({"inner": {"ms": float("nan")}}, 60.0) == 60.0
    assert stamps.unknown == 1
