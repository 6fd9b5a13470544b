from __future__ import annotations

import pytest

from streams.table import database_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://me@localhost/shop", "postgresql://me@127.0.0.1:5432/shop"),
        ("postgresql://me@[::1]:5433/shop", "postgres://me@LOCALHOST:5433/shop"),
        ("postgresql://me@host/shop?a=1&b=2", "postgresql://me:word@host:5432/shop?b=2&a=1"),
        ("sqlite:///work.db", "sqlite:///./folder/../work.db"),
    ],
)
def test_urls_of_one_database_are_known_as_such(one: str, other: str) -> None:
    assert database_of(one) == database_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://me@localhost/shop", "postgresql://me@localhost:5433/shop"),
        ("postgresql://me@localhost/shop", "postgresql://me@elsewhere/shop"),
        ("postgresql://me@localhost/shop", "postgresql://you@localhost/shop"),
        ("postgresql://me@localhost/shop", "postgresql://me@localhost/work"),
        ("sqlite:///work.db", "sqlite:////work.db"),
    ],
)
def test_other_databases_ports_and_users_are_not(one: str, other: str) -> None:
    assert database_of(one) != database_of(other)
