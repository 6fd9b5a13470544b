from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.streams.base.validation import moment_of, seconds_of


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


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2016-12-31T15:59:60-08:00", "2017-01-01T00:00:00Z"),
        ("2016-12-31T23:59:60.25Z", "2017-01-01T00:00:00.25Z"),
        ("2016-12-31T24:00:00Z", "2017-01-01T00:00:00Z"),
        ("2016-12-31T24:00", "2017-01-01T00:00:00"),
        ("20161231T2400Z", "2017-01-01T00:00:00Z"),
        ("2016-12-31t23:59:59z", "2016-12-31T23:59:59Z"),
        ("2016-12-31 23:59:59.5z", "2016-12-31T23:59:59.5Z"),
        ("2016-12-31t23:59:59,5+01", "2016-12-31T23:59:59.5+01:00"),
        ("2016-W52-6t23:59:59-00:00", "2016-12-31T23:59:59Z"),
        ("2016-12-31T23:59:59.123456789z", "2016-12-31T23:59:59.123456Z"),
    ],
)
def test_every_text_of_rfc_3339_is_a_time(text: str, same: str) -> None:
    assert moment_of(text) == datetime.fromisoformat(same)
    assert seconds_of(text) == seconds_of(same)


@pytest.mark.parametrize(
    "text",
    [
        "2016-12-31T24:00:01Z",
        "2016-12-31T24:30Z",
        "2016-12-31T23:59:61Z",
        "2016-12-31T25:00Z",
        "2016-12-31T23:60:60Z",
        "2016-13-31t00:00z",
        "9999-12-31T24:00Z",
        "2016-12-31t",
        "noon",
    ],
)
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        seconds_of(text)
