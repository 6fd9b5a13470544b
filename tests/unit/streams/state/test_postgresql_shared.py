"""A store in PostgreSQL that several runs share: what happens to their commits and partitions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock import Store
from penstock.__main__ import main
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.state.backend import KeptStage, Moved, Row, Unit
from penstock.streams.state.postgresql.backend import PostgreSQL
from penstock.streams.state.postgresql.shared import SharedPostgreSQL

STAGE = KeptStage("one", "key", 1)


OPENED: list[PostgreSQL] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for backend in OPENED:
        backend.close()
    OPENED.clear()


def opened(url: str, *partitions: int, kind: type[SharedPostgreSQL] = SharedPostgreSQL) -> Any:
    backend = kind(url)
    OPENED.append(backend)
    backend.open()
    backend.declare([STAGE])
    for partition in partitions:
        backend.adopt(partition, 4)
    return backend


def unit(n: int, *partitions: int) -> Unit:
    """The state `n` of one key in each partition."""
    return Unit(
        partitions={
            number: Unit(
                {"one": [Row(b'"k%d"' % number, b"%d" % n, 1, b"", None)]},
                marks={f"p{number}": b"%d" % n},
            )
            for number in partitions
        }
    )


@pytest.fixture
def admin(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def end_sessions(admin: psycopg.Connection[Any]) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'penstock' AND pid <> pg_backend_pid()"
    )


class Losing(SharedPostgreSQL):
    """Loses the answers to its next commits, and the connections."""

    admin: psycopg.Connection[Any]
    lost = 0

    def meanwhile(self) -> None:
        """What happens between a commit and the next attempt at it."""

    def _try(self, work: Any) -> None:
        super()._try(work)
        if self.lost:
            self.lost -= 1
            end_sessions(self.admin)
            self.meanwhile()
            raise psycopg.OperationalError("server closed the connection unexpectedly")


def notes(admin: psycopg.Connection[Any]) -> None:
    """Have each mark that is written noted."""
    admin.execute("CREATE TABLE written (id serial, mark bytea)")
    admin.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO written (mark) VALUES (new.mark); RETURN new; END'"
    )
    admin.execute(
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON penstock_mark FOR EACH ROW "
        "EXECUTE FUNCTION note()"
    )


def written(admin: psycopg.Connection[Any]) -> list[bytes]:
    return [bytes(mark) for (mark,) in admin.execute("SELECT mark FROM written ORDER BY id")]


def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    backend = opened(postgres, 0, 1, kind=Losing)
    backend.admin = admin
    notes(admin)
    backend.lost = 2
    backend.commit(unit(1, 0))
    backend.commit(unit(2, 0))
    backend.commit(unit(3, 0))
    assert written(admin) == [b"1", b"2", b"3"]


def test_a_commit_whose_answer_was_lost_is_known_if_one_of_its_partitions_has_moved_since(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    backend = opened(postgres, 0, 1, kind=Losing)
    other = opened(postgres)
    backend.admin, backend.lost = admin, 1
    backend.meanwhile = lambda: other.adopt(1, 4)
    notes(admin)
    backend.commit(unit(1, 0, 1))
    assert written(admin) == [b"1", b"1"]
    with pytest.raises(Moved) as moved:
        backend.commit(unit(2, 0, 1))
    assert moved.value.partitions == {1}
    backend.commit(unit(2, 0))
    assert written(admin) == [b"1", b"1", b"2"]


def test_a_run_that_adopts_a_partition_has_what_the_commit_under_way_writes(
    postgres: str, admin: psycopg.Connection[Any]
) -> None:
    class Slow(SharedPostgreSQL):
        def _put_parts(self, unit: Unit, db: Any) -> None:
            adopting.start()
            # It waits for this transaction.
            adopting.join(0.3)
            assert adopting.is_alive()

    old, new = opened(postgres, 0, kind=Slow), opened(postgres)
    adopting = threading.Thread(target=new.adopt, args=(0, 4))
    old.commit(unit(7, 0))
    adopting.join(30)
    assert [(row.state, row.partition) for row in new.read("one", [b'"k0"'])] == [(b"7", 0)]
    assert new.marks_of(0) == [("p0", b"7")]


def test_the_server_ends_the_transaction_of_a_run_that_stands_still(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "penstock.streams.state.postgresql.shared._SESSION",
        "SET idle_in_transaction_session_timeout = '200ms'",
    )
    new = opened(postgres)

    class Frozen(SharedPostgreSQL):
        def _put_parts(self, unit: Unit, db: Any) -> None:
            if not new.marks_of(0) and 0 not in new._adopted:
                new.adopt(0, 4)

    old = opened(postgres, 0, kind=Frozen)
    with pytest.raises(Moved):
        old.commit(unit(7, 0))
    assert list(new.scan("one")) == []


def test_a_partition_that_is_released_while_it_is_adopted_is_not_there(
    postgres: str,
) -> None:
    class Hasty(SharedPostgreSQL):
        def _try_adopt(self, partition: int, count: int) -> tuple[int, int]:
            self.release(partition)
            return super()._try_adopt(partition, count)

    backend = opened(postgres, kind=Hasty)
    with pytest.raises(Moved):
        backend.adopt(0, 4)
    assert backend.marks() == []


def test_another_number_of_partitions_is_refused_with_both(postgres: str) -> None:
    backend = opened(postgres, 0)
    with pytest.raises(CannotOpen, match="written with 4 partitions of the source, and now it has"):
        backend.adopt(1, 6)


def test_a_store_is_shared_from_the_beginning_or_never(postgres: str) -> None:
    opened(postgres).close()
    refused = PostgreSQL(postgres)
    OPENED.append(refused)
    with pytest.raises(CannotOpen, match="was made with shared=True, which cannot be changed"):
        refused.open()
    single = f"{postgres}?options=-csearch_path%3Dsingle"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("DROP SCHEMA IF EXISTS single CASCADE")
        admin.execute("CREATE SCHEMA single")
    backend = PostgreSQL(single)
    backend.open()
    backend.close()
    with pytest.raises(CannotOpen, match="was made with shared=False"):
        opened(single)


def test_many_runs_may_make_it_at_once(postgres: str) -> None:
    errors: list[BaseException] = []

    def use(number: int) -> None:
        try:
            backend = opened(postgres, number)
            backend.commit(unit(number, number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    backend = opened(postgres, *range(4))
    assert backend.size("one")[0] == 4


def test_only_postgresql_is_shared(postgres: str) -> None:
    for path in ("some.state", "sqlite:///some.db"):
        with pytest.raises(BuildError, match="only a store in PostgreSQL is shared"):
            Store(path, shared=True)
    assert Store(postgres, shared=True).moves
    assert not Store(postgres).moves


def test_the_command_shows_and_deletes_the_states_of_all_partitions(
    postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = opened(postgres, 0, 1)
    backend.commit(unit(5, 0, 1))
    assert main(["state", "show", postgres]) == 0
    assert "one" in capsys.readouterr().out
    assert main(["state", "export", postgres]) == 0
    assert capsys.readouterr().out.count('"one"') == 2
    backend.close()
    assert main(["state", "set", postgres, "--stage", "one", "--key", "1", "--state", "2"]) == 2
    said = capsys.readouterr().err
    assert "are those of many processes, and each changes those of its partitions" in said
    assert "and drop deletes those of a stage when no process runs" in said
    assert main(["state", "drop", postgres, "--stage", "one"]) == 0
    assert opened(postgres, 0, 1).size("one") == (0, 0)
