from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.temporal import (
    IntervalError,
    Overlap,
    RowTypeError,
    sequenced,
    sequenced_join,
)

relation = st.lists(
    st.tuples(st.integers(0, 10), st.integers(0, 6) | st.none(), st.sampled_from("ab")).map(
        lambda row: (row[0], None if row[1] is None else row[0] + row[1], row[2])
    ),
    max_size=8,
).map(lambda rows: [(*row, place) for place, row in enumerate(rows)])


def holds(begin: Any, end: Any, instant: float) -> bool:
    return bool(begin <= instant and (end is None or instant < end))


@given(relation, relation, st.booleans())
def test_at_every_instant_it_is_the_plain_join_of_the_rows_valid_then(
    left: list[Any], right: list[Any], keyed: bool
) -> None:
    found = sequenced_join(left, right, begin=0, end=1, by=2 if keyed else None)
    for instant in [n / 2 for n in range(-2, 40)]:
        expected = [
            (one[3], other[3])
            for one in left
            for other in right
            if holds(*one[:2], instant) and holds(*other[:2], instant)
            if not keyed or one[2] == other[2]
        ]
        seen = [(o.left[3], o.right[3]) for o in found if holds(o.begin, o.end, instant)]
        assert Counter(seen) == Counter(expected)
    pairs = Counter((one.left[3], one.right[3]) for one in found)
    assert set(pairs.values()) <= {1}
    assert found.empty == sum(row[0] == row[1] for row in left + right)


@given(relation, relation)
def test_overlaps_come_by_key_in_order_of_their_beginnings(
    left: list[Any], right: list[Any]
) -> None:
    found = sequenced_join(left, right, begin=0, end=1, by=2)
    keys = list(dict.fromkeys(row[2] for row in left if row[0] != row[1]))
    order = [(keys.index(one.key), one.begin) for one in found]
    assert order == sorted(order)


@given(relation, relation)
def test_the_count_of_a_join_is_the_product_of_the_counts(
    left: list[Any], right: list[Any]
) -> None:
    joined = sequenced_join(left, right, begin=0, end=1)
    counted = sequenced(joined, begin="begin", end="end")
    for instant in range(20):
        values = [
            sum(p.value for p in sequenced(rows, begin=0, end=1) if holds(p.begin, p.end, instant))
            for rows in (left, right)
        ]
        seen = sum(p.value for p in counted if holds(p.begin, p.end, instant))
        assert seen == values[0] * values[1]


def test_fields_of_the_right_rows_may_have_other_names() -> None:
    left = [{"client": 1, "from": "2024-01-01"}]
    right = [
        {"who": 1, "since": date(2024, 2, 1), "until": "2024-03-01"},
        {"who": 2, "since": "2024-01-01"},
    ]
    found = sequenced_join(
        left, right, by="client", right_by="who", right_begin="since", right_end="until"
    )
    assert found == [Overlap(1, date(2024, 2, 1), date(2024, 3, 1), left[0], right[0])]


def test_datetimes_of_different_zones_overlap_as_instants() -> None:
    east = timezone(timedelta(hours=2))
    left = [(datetime(2024, 1, 1, 12, tzinfo=UTC), None)]
    right = [(datetime(2024, 1, 1, 13, tzinfo=east), datetime(2024, 1, 1, 15, tzinfo=east))]
    (found,) = sequenced_join(left, right, begin=0, end=1)
    assert (found.begin, found.end) == (left[0][0], datetime(2024, 1, 1, 13, tzinfo=UTC))


@pytest.mark.parametrize(
    ("bad", "kind", "said"),
    [
        ((5, 3, "a"), IntervalError, "row 0: from 5 comes after to 3"),
        ((date(2024, 1, 1), None, "a"), RowTypeError, "row 0: .* is a date, but the points before"),
        ((5, 6, ["a"]), RowTypeError, "row 0: .* cannot be a key"),
    ],
)
def test_a_bad_row_is_named_with_its_relation(bad: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said) as raised:
        sequenced_join([(1, 2, "a")], [bad], begin=0, end=1, by=2)
    assert raised.value.row == 0
    assert raised.value.__notes__ == ["in the right relation"]
