from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.streams.validation import seconds_of


@pytest.mark.parametrize(
    "stamp",
    [
        1_700_000_000,
        1_700_000_000.0,
        Decimal(1_700_000_000),
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20",
        "2023-11-14 22:13:20.000",
        "20231114T221320",
        "2023-11-15T00:13:20+02:00",
        datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20),
        datetime(2023, 11, 15, 0, 13, 20, tzinfo=timezone(timedelta(hours=2))),
    ],
    ids=repr,
)
def test_a_number_a_text_and_a_datetime_are_seconds_since_1970_and_in_utc(stamp: Any) -> None:
    assert seconds_of(stamp) == 1_700_000_000.0


@pytest.mark.parametrize(
    "stamp", ["soon", "1e99", "", None, True, [], float("nan"), float("inf"), 10**400], ids=repr
)
def test_an_invalid_point_in_time_is_shown_with_a_valid_one(stamp: Any) -> None:
    with pytest.raises(
        ValueError, match="is not a time: a number of seconds, ISO 8601 or a datetime"
    ):
        seconds_of(stamp)
