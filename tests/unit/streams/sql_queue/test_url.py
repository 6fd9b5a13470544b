from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.streams.base.database_url import file_of
from penstock.streams.base.errors import BuildError
from penstock.streams.sql_queue import database_of, open_store, redacted


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://me@localhost/shop", "postgresql://me@127.0.0.1:5432/shop"),
        ("postgresql://me@[::1]:5433/shop", "postgres://me@LOCALHOST:5433/shop"),
        (
            "postgresql://me@host/shop?sslmode=allow",
            "postgresql://me:word@host:5432/shop?sslmode=allow",
        ),
        ("postgresql://me@one:1,two:2/shop", "postgresql://me@one,two/shop?port=1,2"),
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


@pytest.mark.parametrize(
    "url", ["postgresql://[::1/shop", "postgresql://host/shop?none=1", "postgresql://a%zz/shop"]
)
def test_a_url_that_cannot_be_read_is_reported_when_the_store_is_made(url: str) -> None:
    with pytest.raises(BuildError, match="is not a valid PostgreSQL URL: "):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:a:b@host/shop", "postgresql://me:***@host/shop"),
        ("postgresql://:word@one:1,two:2/shop", "postgresql://:***@one:1,two:2/shop"),
        ("postgresql://me:p@ss@[::1", "postgresql://me:***@[::1"),
        ("postgresql://host:1/shop?user=a@b", "postgresql://host:1/shop?user=a@b"),
        (
            "postgresql://host/shop?password=word&user=me",
            "postgresql://host/shop?password=***&user=me",
        ),
        ("sqlite:///work:1@2.db", "sqlite:///work:1@2.db"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_nor_is_the_password_of_a_url_that_cannot_be_read() -> None:
    with pytest.raises(BuildError) as told:
        open_store("postgresql://me:wo%zzrd@host/shop")
    assert "zz" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///jobs%231.db", "jobs#1.db"),
        ("sqlite:///jobs%3F1.db", "jobs?1.db"),
        ("sqlite:///my jobs.db ", "my jobs.db "),
        ("sqlite:///a\tb.db", "a\tb.db"),
        ("sqlite:///100%.db", "100%.db"),
        ("sqlite:///file:a.db", "file:a.db"),
        ("sqlite:////var/Käse.db", "/var/Käse.db"),
        ("sqlite:///C:/work.db", "C:/work.db"),
    ],
)
def test_the_file_of_a_url_is_the_one_that_it_says(url: str, name: str) -> None:
    assert file_of(url) == name


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///a#1.db",
        "sqlite:///a?mode=ro",
        "sqlite:///?",
        "sqlite:///a.db#",
        "sqlite:///a.db?",
    ],
)
def test_what_would_be_cut_off_from_the_name_of_a_file_is_refused(url: str) -> None:
    with pytest.raises(BuildError, match=r"write %3F for a \? in the name"):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["sqlite:work.db", "sqlite:/var/work.db", "sqlite:///a%00.db", "sqlite:///%FF.db"]
)
def test_a_url_with_too_few_slashes_or_without_a_text_names_no_file(url: str) -> None:
    with pytest.raises(BuildError, match="does not name a file"):
        open_store(url)


def test_a_file_stays_the_same_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path)
        store = open_store("sqlite:///work.db")
        monkeypatch.chdir("there")
        await store.open()
        await store.put([b"{}"])
        await store.close()

    asyncio.run(story())
    assert (tmp_path / "work.db").exists()
    assert not list((tmp_path / "there").iterdir())
