"""Fixtures of real servers, each started once for all tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.helpers.servers.postgres import Postgres

__all__ = ["database", "postgres", "postgres_server"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL for the whole session; a test that kills one starts its own."""
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres(postgres_server: Postgres) -> str:
    """The URL of an empty database."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        # Also those that other tests have made.
        schemas = connection.execute(
            "SELECT quote_ident(nspname) FROM pg_namespace "
            "WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        ).fetchall()
        for (name,) in schemas:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres_server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/work.db"
    url: str = request.getfixturevalue("postgres")
    return url
