"""Keys as tokens of subjects, and names that servers take."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, from_iterable
from penstock.streams.base.errors import BuildError
from penstock.streams.nats.cluster.layout import layout_of, token

KEYS = (
    st.none()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
)


def test_a_short_key_can_be_read_from_its_token() -> None:
    assert token("customer 7") == "ImN1c3RvbWVyIDci"


@pytest.mark.parametrize("size", [93, 94, 95, 3_000, 1_000_000])
def test_a_token_is_short_however_long_its_key(size: int) -> None:
    tokens = {token("k" * size), token("k" * (size - 1) + "l"), token("k" * (size + 1))}
    assert len(tokens) == 3
    assert all(len(one) <= 128 for one in tokens)


@given(KEYS, KEYS)
def test_different_keys_have_different_tokens_that_fit_into_subjects(one: Any, other: Any) -> None:
    assert (token(one) == token(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token(one))


@pytest.mark.parametrize("size", [201, 300, 5_000])
def test_a_name_that_is_too_long_for_servers_is_refused_before_they_are_asked(size: int) -> None:
    values: list[int] = []
    with pytest.raises(BuildError, match="at most 200"):
        layout_of(from_iterable([1]).to(collect(values)), "n" * size)
