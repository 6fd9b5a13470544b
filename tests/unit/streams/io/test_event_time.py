from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.streams.base import clock
from penstock.streams.io.creation import Creation

WALL = 1_700_000_000.0


@pytest.fixture
def creation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Creation]:
    """Creation times on a loop whose clock says 50 when the wall clock says WALL."""
    monkeypatch.setattr(clock, "wall", lambda: WALL)
    return lambda by="at", said=None: Creation(
        by, lambda: 50.0, ([] if said is None else said).append
    )


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


@pytest.mark.parametrize(
    ("parts", "unit"), [(1_000, "milli"), (1_000_000, "micro"), (1_000_000_000, "nano")]
)
def test_the_first_stamp_in_another_unit_is_said_once_with_what_to_write(
    creation: Callable[..., Creation], parts: int, unit: str
) -> None:
    said: list[str] = []
    stamps = creation("at", said)
    for ahead in (0.5, -20 * parts, -30 * parts):
        stamp = WALL + ahead if ahead > 0 else int(WALL * parts + ahead)
        assert stamps({"at": stamp}, 50.0) == 50.0
    assert stamps.in_future == 3
    (text,) = said
    assert f"It looks like {unit}seconds" in text
    assert f'lambda event: event["at"] / {parts}' in text.replace('"time"', '"at"')
    assert f"{{'at': {int(WALL - 20) * parts}}}" in text


def test_a_stamp_a_day_ahead_is_said_and_one_within_the_difference_of_clocks_is_only_counted(
    creation: Callable[..., Creation],
) -> None:
    said: list[str] = []
    stamps = creation("at", said)
    stamps({"at": WALL + 0.5}, 50.0)
    assert (said, stamps.in_future) == ([], 1)
    stamps({"at": "2023-11-15T22:13:20Z"}, 50.0)
    assert "is 86,400 s in the future. The event counts as created when it was read" in said[0]


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
