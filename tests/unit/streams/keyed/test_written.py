"""Keys as JSON: what is equal in a process is equal for a server and another process."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.command.cluster.kafka import record_of
from penstock.streams.base.errors import WrongType
from penstock.streams.kafka.writing import _key_bytes as kafka_key
from penstock.streams.keyed.written import identity_json, key_json
from penstock.streams.nats.cluster.publisher import _plain as nats_identity

Pair = namedtuple("Pair", "one other")


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    ONE = "one"


class Plain(Enum):
    ONE = 1


@dataclass(frozen=True)
class Place:
    name: str
    seen: int = field(default=0, compare=False)


class Alike:
    """Equal to all of its kind, which its text does not show."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


NUMBERS = st.one_of(
    st.integers(-2, 2),
    st.booleans(),
    st.sampled_from([-0.0, 0.0, 0.5, 1e300, 2.0**53, 2.0**63, 2.0**64, inf, -inf, nan]),
    st.sampled_from([10**300, int(1e300), 2**53, 2**53 + 1, 2**63, 2**64, 2**64 + 1, -(2**63) - 1]),
    st.decimals(-2, 2, places=1),
    st.sampled_from(
        [Decimal("1E+300"), Decimal("0.1"), Decimal.from_float(0.1), Decimal("Infinity")]
    ),
    st.fractions(-2, 2, max_denominator=3),
    st.sampled_from([0.1, complex(1, 0), complex(0, 1), complex(0, -0.0), Number.ONE]),
)


class Unknown(tzinfo):
    """A zone that does not say how far it is from UTC."""

    def utcoffset(self, dt: datetime | None) -> None:
        return None


_HOURS = st.integers(-12, 12).map(lambda hours: timezone(timedelta(hours=hours)))
_TIMES = _HOURS.map(lambda zone: datetime(2026, 1, 1, tzinfo=UTC).astimezone(zone))
LEAVES = st.one_of(
    NUMBERS,
    st.sampled_from(["", "1", "one", "null", "true", "b'a'", "\ud800", "\0a", Word.ONE]),
    st.sampled_from([None, b"a", b"", Plain.ONE, UUID(int=1), str(UUID(int=1)), Place("a")]),
    st.sampled_from([Place("a", 1), datetime(2026, 1, 1), "2026-01-01T00:00:00"]),
    st.sampled_from([datetime.max.replace(tzinfo=timezone(-timedelta(hours=h))) for h in (1, 2)]),
    _TIMES,
    st.times(timezones=st.none() | st.just(Unknown()) | _HOURS),
    _HOURS.map(
        lambda zone: time(12 + zone.utcoffset(None) // timedelta(hours=1) % 12, tzinfo=zone)
    ),
)
KEYS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2).map(tuple)
        | st.tuples(inner, inner).map(lambda two: Pair(*two))
        | st.frozensets(inner, max_size=2)
    ),
    max_leaves=3,
)


@given(KEYS, KEYS)
def test_keys_that_are_equal_here_are_in_one_partition_there(one: Any, other: Any) -> None:
    if one == other:
        assert key_json(one) == key_json(other)
        assert identity_json(one) == identity_json(other) or not _is_itself(one)


@given(KEYS, KEYS)
def test_keys_that_differ_here_are_no_duplicates_there(one: Any, other: Any) -> None:
    if one != other:
        assert identity_json(one) != identity_json(other)
        assert nats_identity(one) != nats_identity(other)


def _is_itself(key: Any) -> bool:
    """Whether it is equal to a copy: a NaN in it is not."""
    return "nan" not in repr(key).lower()


@pytest.mark.parametrize(
    "equal",
    [
        (1, True, 1.0, Decimal("1.0"), Fraction(1), complex(1), Number.ONE),
        (0, False, 0.0, -0.0, Decimal("-0")),
        (0.1, Decimal.from_float(0.1), Fraction(0.1)),
        (int(1e300), 1e300),
        (2**64 + 1, Decimal(2**64 + 1), Fraction(2**64 + 1)),
        ("one", Word.ONE),
        ((1, "a"), Pair(True, "a")),
        (frozenset("ab"), frozenset("ba")),
        (Place("a", 1), Place("a", 2)),
        (time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))),
        (time(12), time(12, tzinfo=Unknown()), time(12, fold=1)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Unknown())),
    ],
)
def test_equal_keys_have_one_text(equal: tuple[object, ...]) -> None:
    assert len(set(equal)) == 1
    assert len({key_json(key) for key in equal}) == 1
    assert len({kafka_key(key) for key in equal}) == 1
    assert len({identity_json(key) for key in equal}) == 1
    assert len({nats_identity(key) for key in equal}) == 1


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (7, b"7"),
        (-(2**63), b"-9223372036854775808"),
        (2**64 - 1, b"18446744073709551615"),
        (0.5, b"0.5"),
        ("ann", b'"ann"'),
        (None, b"null"),
        (("ann", 2, 0.5), b'["ann",2,0.5]'),
    ],
)
def test_the_text_of_a_key_is_its_json(key: object, text: bytes) -> None:
    assert key_json(key) == text == identity_json(key)


def test_events_whose_key_is_none_are_published_to_one_partition_of_kafka() -> None:
    assert record_of("to")({"to": None}).key == b"null"
    assert record_of("to")({"to": 1.0}).key == 1.0
    assert record_of(None)({"to": None}).key is None


def test_a_set_has_one_text_in_every_process() -> None:
    code = (
        "from penstock.streams.keyed.written import key_json\n"
        "print(key_json(frozenset('abcdef')).decode())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("key", [nan, (nan, 1), object(), int])
def test_what_is_equal_to_nothing_but_itself_is_never_a_duplicate(key: object) -> None:
    assert identity_json(key) != identity_json(key)


def test_keys_that_are_equal_without_a_text_in_common_are_refused() -> None:
    with pytest.raises(WrongType, match="give its class __repr__"):
        key_json(Alike())


def test_a_number_whose_digits_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="4,300 digits"):
        key_json(Decimal("1E+999999999"))
