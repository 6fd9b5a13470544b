"""A store in PostgreSQL: one run at a time writes it, and a lost connection loses nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock import Store
from penstock.streams.base.errors import (
    BuildError,
    CannotOpen,
    DatabaseUnavailable,
    MissingExtra,
    RightsMissing,
)
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.postgresql.backend import PostgreSQL
from tests.helpers.servers.pooler import Pooler

STAGE = KeptStage("one", "key", 1)
OTHER_SCHEMA = "?options=-csearch_path%3Dother"


def opened(url: str) -> PostgreSQL:
    backend = PostgreSQL(url)
    backend.open()
    backend.declare([STAGE])
    return backend


def state(n: int) -> Unit:
    return Unit(rows={"one": [Row(b"1", str(n).encode(), 1, b"", None)]}, marks={"p": b"m"})


@pytest.fixture
def admin(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def end_sessions(admin: psycopg.Connection[Any]) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'penstock' AND pid <> pg_backend_pid()"
    )


# One run at a time.


def test_a_second_run_is_refused_while_one_uses_the_store(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.state.postgresql.backend._LAST_RUN", 0.1)
    first = opened(postgres)
    second = PostgreSQL(postgres)
    with pytest.raises(CannotOpen, match=r"Another run .*: process \d+ of the server \(penstock"):
        second.open()
    second.close()
    first.close()
    opened(postgres).close()


def test_another_schema_has_another_store(postgres: str, admin: psycopg.Connection[Any]) -> None:
    admin.execute("CREATE SCHEMA IF NOT EXISTS other")
    one, other = opened(postgres), opened(postgres + OTHER_SCHEMA)
    one.commit(state(1))
    assert other.mark("p") is None
    one.close()
    other.close()
    admin.execute("DROP SCHEMA other CASCADE")


def test_a_run_that_another_has_followed_commits_nothing_more(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    old = opened(postgres)
    # Its session is gone, and its machine does not know yet.
    end_sessions(admin)
    new = opened(postgres)
    with pytest.raises(CannotOpen, match="Another run has opened the store"):
        old.commit(state(1))
    new.commit(state(2))
    assert [row.state for row in new.scan("one")] == [b"2"]
    old.close()
    new.close()


# Lost connections.


def test_a_commit_goes_on_with_a_new_connection(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    backend = opened(postgres)
    backend.commit(state(1))
    end_sessions(admin)
    backend.commit(state(2))
    assert [row.state for row in backend.read("one", [b"1"])] == [b"2"]
    backend.close()


def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    class Losing(PostgreSQL):
        lost = 0

        def _try(self, work: Any) -> None:
            super()._try(work)
            if self.lost:
                self.lost -= 1
                end_sessions(admin)
                raise psycopg.OperationalError("server closed the connection unexpectedly")

    backend = Losing(postgres)
    backend.open()
    backend.declare([STAGE])
    admin.execute("CREATE TABLE written (mark bytea)")
    admin.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO written VALUES (new.mark); RETURN new; END'"
    )
    admin.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON penstock_mark FOR EACH ROW "
        "EXECUTE FUNCTION note()"
    )
    backend.lost = 2
    backend.commit(Unit(marks={"p": b"a"}))
    backend.commit(Unit(marks={"p": b"b"}))
    assert admin.execute("SELECT mark FROM written").fetchall() == [(b"a",), (b"b",)]
    backend.close()


def test_a_database_that_stays_away_ends_the_run_with_what_to_do(
    postgres: str, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(postgres)

    def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr("penstock.streams.state.postgresql.backend._PATIENCE", 0.1)
    monkeypatch.setattr("psycopg.connect", refuse)
    end_sessions(admin)
    with pytest.raises(DatabaseUnavailable, match="Start the pipeline again"):
        backend.commit(state(1))
    backend.close()


# What is no store.


def test_what_is_no_store_is_refused(postgres: str, admin: psycopg.Connection[Any]) -> None:
    reader = PostgreSQL(postgres)
    with pytest.raises(CannotOpen, match="is not a store yet"):
        reader.open_to_read()
    reader.close()
    opened(postgres).close()
    admin.execute("UPDATE penstock_store SET format = 99")
    with pytest.raises(CannotOpen, match="has the format 99"):
        reader.open_to_read()
    reader.close()


def test_rights_that_are_missing_are_named(postgres: str, admin: psycopg.Connection[Any]) -> None:
    admin.execute("DROP ROLE IF EXISTS guest")
    admin.execute("CREATE ROLE guest LOGIN")
    backend = PostgreSQL(postgres.replace("postgres@", "guest@"))
    with pytest.raises(RightsMissing, match="needs CREATE on the schema"):
        backend.open()
    backend.close()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pool_is_refused_before_anything_is_set_there(postgres: str, mode: str) -> None:
    def setting(url: str) -> Any:
        with psycopg.connect(url) as db:
            return db.execute("SHOW enable_seqscan").fetchone()

    async def story() -> None:
        async with Pooler(postgres, mode) as pooler:
            backend = PostgreSQL(pooler.url)
            for use in (backend.open, backend.open_to_read):
                with pytest.raises(CannotOpen, match="needs a session of its own"):
                    await asyncio.to_thread(use)
            assert await asyncio.to_thread(setting, pooler.url) == setting(postgres)

    asyncio.run(story())


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.streams.state.postgresql.backend")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"store in PostgreSQL needs psycopg .*postgres"):
        Store("postgresql://host/name")


def test_a_wrong_url_is_refused_when_the_store_is_made() -> None:
    with pytest.raises(BuildError, match="not a valid PostgreSQL URL"):
        Store("postgresql://localhost/x?no=1")
    with pytest.raises(BuildError, match=r"at 'mysql://me:\*\*\*@host/name': give the path of a"):
        Store("mysql://me:word@host/name")


def test_a_password_is_not_shown() -> None:
    assert repr(Store("postgresql://ann:secret@host/name")) == (
        "Store('postgresql://ann:***@host/name')"
    )
