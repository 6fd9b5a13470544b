from __future__ import annotations

import asyncio
import io
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import orjson
import pytest

from penstock import collect, from_iterable, read_table, run, write_table
from penstock.command.interrupt import raising
from penstock.streams.sql_queue import ClaimTerms, Failure, Settlement, Store, open_store
from penstock.streams.sql_queue.sqlite import table as sqlite_table
from penstock.streams.sql_queue.store import Enqueued
from penstock.streams.sql_queue.upkeep import cancel
from tests.helpers.beside import make_own

Penstock = Callable[..., Any]
Process = Callable[..., "subprocess.CompletedProcess[str]"]

TERMS = ClaimTerms("host:1:abc", attempts=3)


def within(url: str, work: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = open_store(url)
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue: row 1 is finished, 2 is dead, 3 is in work, 4 and 5 are new."""
    place = f"sqlite:///{tmp_path}/work.db"
    fill(place)
    return place


def fill(url: str) -> None:
    async def work(store: Store) -> None:
        await store.put([f'{{"n": {n}}}' for n in range(5)])
        rows = (await store.claim(3, TERMS)).rows
        await store.settle(Settlement(rows[:1], [Failure(rows[1], "ValueError: Boom")]), TERMS)

    within(url, work)


def lines(text: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in text.splitlines()]


def test_stats_show_rows_by_state_rates_and_pollers(penstock: Penstock, url: str) -> None:
    result = penstock("queue", "stats", url)
    assert (result.status, result.err) == (0, "")
    shown = [" ".join(line.split()) for line in result.out.splitlines()]
    assert shown[0] == f"queue in {url}:"
    assert shown[1].startswith("waiting 2; row 4 is first, due for ")
    assert shown[2:6] == ["failed 0, to be tried again", "in work 1", "finished 1", "dead 1"]
    assert shown[6] == "rows/s over 60 s: 0.083 came, 0.017 finished, 0.017 failed for good"
    assert shown[7] == "seconds mean p50 p95 p99 max"
    assert [line.split()[0] for line in shown[8:10]] == ["waiting", "in"]
    assert shown[10] == "poller in work expired finished rows/s s a row"
    assert shown[11].startswith("host:1:abc 1 0 1 0.017 0.0")
    assert len(shown) == 12


def test_stats_are_a_line_of_json_if_that_is_wanted(penstock: Penstock, database: str) -> None:
    fill(database)
    result = penstock("queue", "stats", database, "--json", "--window", "10")
    (stats,) = lines(result.out)
    assert (stats["waiting"], stats["in_work"], stats["finished"], stats["dead"]) == (2, 1, 1, 1)
    assert (stats["window"], stats["arrival_rate"]) == (10, 0.5)
    assert stats["oldest_waiting"]["id"] == 4
    assert set(stats["time_in_work"]) == {"mean", "p50", "p95", "p99", "max"}
    assert stats["pollers"][0]["owner"] == "host:1:abc"


def test_stats_can_be_watched(process: Process, url: str) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "penstock", "queue", "stats", url, "--watch", "0.05"]
    with subprocess.Popen(command, stdout=follower) as watching:
        os.close(follower)
        seen = b""
        while seen.count(b"\x1b[H\x1b[J") < 2:
            seen += os.read(leader, 65536)
        watching.send_signal(2)
        # A terminal that nobody reads is full soon, and what is written to it then waits for ever.
        with suppress(OSError):
            while os.read(leader, 65536):
                pass
        assert watching.wait(20) == 0
    os.close(leader)
    assert seen.count(b"finished  1") >= 1


@contextmanager
def watched(url: str, *options: str) -> Generator[IO[bytes]]:
    """What is shown again and again, into a pipe: the command ends when nobody reads it."""
    command = [sys.executable, "-m", "penstock", "queue", "stats", url, *options, "--watch", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        try:
            yield watching.stdout
            watching.stdout.close()
            assert watching.wait(20) == 0
        finally:
            watching.kill()


def test_stats_that_are_watched_in_a_pipe_are_plain_text_with_empty_lines_between(
    url: str,
) -> None:
    with watched(url) as stats:
        shown = b"".join(stats.readline() for _ in range(30))
    assert shown.count(b"\n\nqueue in ") == 2
    assert b"\x1b" not in shown


def test_stats_that_are_watched_as_json_are_lines(url: str) -> None:
    with watched(url, "--json") as stats:
        assert [orjson.loads(stats.readline())["finished"] for _ in range(3)] == [1, 1, 1]


def test_peek_shows_the_rows_that_are_next_and_takes_none(penstock: Penstock, url: str) -> None:
    for _ in range(2):
        result = penstock("queue", "peek", url)
        rows = lines(result.out)
        assert [(row["id"], row["payload"], row["attempts"]) for row in rows] == [
            (4, {"n": 3}, 0),
            (5, {"n": 4}, 0),
        ]
    assert [row["id"] for row in lines(penstock("queue", "peek", url, "--count", "1").out)] == [4]
    (dead,) = lines(penstock("queue", "peek", url, "--state", "dead").out)
    assert (dead["id"], dead["error"]) == (2, "ValueError: Boom")
    (working,) = lines(penstock("queue", "peek", url, "--state", "in-work").out)
    assert (working["id"], working["owner"]) == (3, "host:1:abc")


def test_peek_shows_the_rows_that_have_failed_and_will_be_tried_again(
    penstock: Penstock, url: str
) -> None:
    async def fail(store: Store) -> None:
        rows = (await store.claim(1, TERMS)).rows
        await store.settle(Settlement([], [Failure(rows[0], "ValueError: Late", 0)]), TERMS)

    assert penstock("queue", "peek", url, "--state", "failed").out == ""
    within(url, fail)
    (failed,) = lines(penstock("queue", "peek", url, "--state", "failed").out)
    assert (failed["id"], failed["attempts"], failed["error"]) == (4, 1, "ValueError: Late")
    assert [row["id"] for row in lines(penstock("queue", "peek", url).out)] == [4, 5]


def test_peek_shows_a_payload_that_is_not_json_as_text(penstock: Penstock, url: str) -> None:
    async def work(store: Store) -> None:
        await store.put(["no json"])
        await store.query("UPDATE {table} SET {payload} = x'ff7b' WHERE {id} = 5")

    within(url, work)
    payloads = [row["payload"] for row in lines(penstock("queue", "peek", url).out)]
    assert payloads == [{"n": 3}, "\\xff{", "no json"]


def test_put_enqueues_a_row_for_each_line(
    process: Process, module: list[str], database: str
) -> None:
    result = process([*module, "queue", "put", database], input='{"a":1}\n{"a":2}\n')
    assert result.returncode == 0
    assert "2 in, 2 finished" in result.stderr
    rows = process([*module, "queue", "peek", database]).stdout
    assert [row["payload"] for row in lines(rows)] == [{"a": 1}, {"a": 2}]


def test_put_reports_lines_that_are_not_events_and_enqueues_the_others(
    penstock: Penstock, url: str, tmp_path: Path
) -> None:
    file = tmp_path / "new.jsonl"
    file.write_text('{"a":1}\nbad\n{"a":2}\n')
    result = penstock("queue", "put", url, "--input", file)
    assert result.status == 3
    assert "line 2 is not valid JSON" in result.err
    assert len(lines(penstock("queue", "peek", url).out)) == 4


def test_put_keeps_every_line_that_it_cannot_enqueue_as_a_dead_letter_if_that_is_wanted(
    penstock: Penstock, postgres: str, tmp_path: Path
) -> None:
    within(postgres, lambda store: store.query("ALTER TABLE queue ALTER payload TYPE jsonb"))
    bad, refused = [f"bad {n}" for n in range(30)], {"a": "\0"}
    file, dead = tmp_path / "new.jsonl", tmp_path / "dead.jsonl"
    rows = ['{"a":1}', *bad, orjson.dumps(refused).decode(), '{"a":2}']
    file.write_text("\n".join(rows))
    result = penstock("queue", "put", postgres, "--input", file, "--dead-letters", dead)
    assert result.status == 3
    letters = lines(dead.read_text())
    assert sorted((letter["token"], letter["value"]) for letter in letters) == [
        *enumerate(bad, 2),
        (32, refused),
    ]
    assert [row["payload"] for row in lines(penstock("queue", "peek", postgres).out)] == [
        {"a": 1},
        {"a": 2},
    ]


@pytest.mark.parametrize("same", ["new.jsonl", "./new.jsonl"])
def test_put_refuses_to_append_dead_letters_to_its_input(
    penstock: Penstock, url: str, tmp_path: Path, same: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.jsonl").write_text("bad\n")
    result = penstock("queue", "put", url, "--input", "new.jsonl", "--dead-letters", same)
    assert result.status == 2
    assert Path("new.jsonl").read_text() == "bad\n"


def test_put_reports_lines_that_the_database_refuses_and_enqueues_the_others(
    penstock: Penstock, postgres: str, tmp_path: Path
) -> None:
    within(postgres, lambda store: store.query("ALTER TABLE queue ALTER payload TYPE jsonb"))
    file = tmp_path / "new.jsonl"
    file.write_text('{"a":1}\n{"a":"\\u0000"}\n{"a":2}\n')
    result = penstock("queue", "put", postgres, "--input", file)
    assert result.status == 3
    assert "  events: 3 in, 2 finished, 1 failed\n" in result.err
    assert "line 2)" in result.err
    assert "Traceback" not in result.err
    assert [row["payload"] for row in lines(penstock("queue", "peek", postgres).out)] == [
        {"a": 1},
        {"a": 2},
    ]


def test_rows_that_failed_for_good_can_be_tried_again(penstock: Penstock, url: str) -> None:
    result = penstock("queue", "retry", url)
    assert (result.status, result.err) == (0, "penstock: 1 row will be tried again\n")
    assert [row["id"] for row in lines(penstock("queue", "peek", url).out)] == [2, 4, 5]


def test_rows_that_did_not_fail_are_not_tried_again(penstock: Penstock, url: str) -> None:
    result = penstock("queue", "retry", url, "--id", 1, 2, "--id", 77, "--table", "queue")
    assert result.status == 1
    assert result.err == (
        "penstock: 1 row will be tried again\n"
        "penstock: not 1, 77: there is no such row, or it has not failed\n"
    )


def test_old_rows_are_purged(penstock: Penstock, url: str) -> None:
    assert penstock("queue", "purge", url, "--older-than", "7d").err == "penstock: 0 rows deleted\n"
    assert penstock("queue", "purge", url, "--older-than", "0").err == "penstock: 1 row deleted\n"
    dead = penstock("queue", "purge", url, "--older-than", "0s", "--dead")
    assert dead.err == "penstock: 1 row deleted\n"


@pytest.mark.parametrize(
    ("age", "accepted"),
    [("90", True), ("15m", True), ("1.5h", True), ("7d", True), ("-1", False), ("x", False)],
)
def test_an_age_is_seconds_or_has_a_unit(
    penstock: Penstock, url: str, age: str, accepted: bool
) -> None:
    assert (penstock("queue", "purge", url, f"--older-than={age}").status == 0) is accepted


@pytest.mark.parametrize(
    "words", [("stats", "--window"), ("replay", "--window"), ("purge", "--older-than")]
)
def test_an_age_that_no_database_can_subtract_from_now_is_a_mistake(
    penstock: Penstock, url: str, words: tuple[str, str]
) -> None:
    action, option = words
    refused = penstock("queue", action, url, option, "36501d")
    assert refused.status == 2
    assert f"{option}: '36501d' is more than 36500d" in refused.err
    assert penstock("queue", action, url, option, "36500d").status != 2


def test_more_rows_than_a_table_can_have_may_be_peeked_at(
    penstock: Penstock, database: str
) -> None:
    fill(database)
    assert len(lines(penstock("queue", "peek", database, "--count", str(10**20)).out)) == 2


def test_a_table_of_the_users_is_looked_at_by_the_names_of_its_columns(
    penstock: Penstock, url: str, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "work.db") as db:
        db.execute("ALTER TABLE queue RENAME TO jobs")
        db.execute("ALTER TABLE jobs RENAME payload TO body")
    db.close()
    missing = penstock("queue", "stats", url, "--table", "jobs")
    assert missing.status == 2
    assert "lacks 'payload'" in missing.err
    words = (url, "--table", "jobs", "--column", "payload=body")
    assert lines(penstock("queue", "stats", *words, "--json").out)[0]["waiting"] == 2
    assert lines(penstock("queue", "peek", *words).out)[0]["payload"] == {"n": 3}
    assert penstock("queue", "peek", *words, "--column", "payload").status == 2


def test_a_table_with_nothing_but_a_payload_and_a_status_is_looked_at(
    penstock: Penstock, database: str, tmp_path: Path
) -> None:
    make_own(database, "jobs")
    words = (database, "--table", "jobs", "--beside", "--column", "finished=processed")
    missing = penstock("queue", "stats", *words)
    assert missing.status == 2
    assert "'jobs_queue' beside 'jobs'" in missing.err
    file = tmp_path / "new.jsonl"
    file.write_text('{"n": 8}\n{"n": 9}\n')
    assert penstock("queue", "put", *words, "--input", file).status == 0
    rows = lines(penstock("queue", "peek", *words).out)
    assert [(row["id"], row["payload"]) for row in rows] == [(1, {"n": 8}), (2, {"n": 9})]
    assert lines(penstock("queue", "stats", *words, "--json").out)[0]["waiting"] == 2
    kinds = penstock("queue", "stats", *words, "--by", "kind", "--kind", "n", "--json").out
    assert [kind["kind"] for kind in orjson.loads(kinds)] == ["8", "9"]


def test_how_long_rows_waited_is_not_said_where_nothing_says_when_they_came(
    penstock: Penstock, database: str, tmp_path: Path
) -> None:
    make_own(database, "jobs")
    run(from_iterable([{"n": 1}]).to(write_table(database, "jobs", beside=True)))
    run(read_table(database, "jobs", beside=True, follow=False).to(collect([])))
    words = (database, "--table", "jobs", "--beside")
    (stats,) = lines(penstock("queue", "stats", *words, "--json").out)
    assert (stats["finished"], stats["time_waiting"]) == (1, None)
    assert stats["time_in_work"] is not None
    shown = penstock("queue", "stats", *words).out.splitlines()
    assert [line.split()[:2] for line in shown[7:9]] == [["seconds", "mean"], ["in", "work"]]
    picture = tmp_path / "hours.svg"
    hours = penstock("queue", "stats", *words, "--by", "hour", "--window", "1", "--plot", picture)
    assert hours.status == 0
    assert "nan" not in picture.read_text()
    replayed = penstock("queue", "replay", *words)
    assert (replayed.status, replayed.out) == (2, "")
    assert "does not say when its rows came" in replayed.err
    assert "--column enqueued=" in replayed.err


def test_rows_are_put_into_a_table_of_the_users(
    penstock: Penstock, database: str, tmp_path: Path
) -> None:
    async def work(store: Store) -> None:
        await store.query("ALTER TABLE queue RENAME TO jobs")
        await store.query("ALTER TABLE jobs RENAME payload TO body")
        if database.startswith("postgresql"):
            await store.query("ALTER TABLE jobs ALTER body TYPE jsonb")

    within(database, work)
    file = tmp_path / "new.jsonl"
    file.write_text('{"n": 8}\n{"n": 9}\n')
    words = (database, "--table", "jobs", "--column", "payload=body")
    assert penstock("queue", "put", *words, "--input", file).status == 0
    payloads = [row["payload"] for row in lines(penstock("queue", "peek", *words).out)]
    assert payloads == [{"n": 8}, {"n": 9}]
    result = penstock("queue", "put", database, "--table", "jobs", "--input", file)
    assert "lacks 'payload'" in result.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["stats", "sqlite:///{folder}/other.db"], "other.db does not exist"),
        (["stats", "sqlite:///{folder}/work.db", "--table", "jobs"], "no table 'jobs'"),
        (["stats", "mysql://host/name"], "'mysql://host/name' does not name a known database"),
        (["peek", "postgresql://localhost:1/name"], "Connection refused"),
        (["stats", "sqlite:///{folder}/text"], "file is not a database"),
        (["put", "sqlite:///{folder}/text"], "file is not a database"),
        (["purge", "sqlite:///{folder}/work.db"], "required: --older-than"),
        (["peek", "sqlite:///{folder}/work.db", "--count", "0"], "'0' is not a number"),
        (["stats", "sqlite:///{folder}/work.db", "--window", "0"], "more than 0 seconds"),
    ],
)
def test_what_cannot_be_done_is_reported_without_a_traceback(
    penstock: Penstock,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    tmp_path: Path,
    words: list[str],
    told: str,
) -> None:
    (tmp_path / "text").write_text("This is a text and not a database, by all means. " * 9)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    result = penstock("queue", *(word.format(folder=tmp_path) for word in words))
    assert result.status in (1, 2)
    assert told in result.err
    assert "Traceback" not in result.err


def test_a_locked_database_is_reported_and_can_still_be_read(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, url: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(sqlite_table, "_PATIENCE", 0.05)
    db = sqlite3.connect(tmp_path / "work.db", isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        result = penstock("queue", "retry", url)
        assert result.status == 1
        assert result.err == f"penstock: {url} could not be used: database is locked\n"
        assert penstock("queue", "stats", url).status == 0
        assert penstock("queue", "peek", url).status == 0
    finally:
        db.close()


def test_a_missing_package_is_named_with_its_extra(process: Process) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None; from penstock.__main__ import main; "
        "sys.exit(main(['queue', 'stats', 'postgresql://localhost/name']))"
    )
    result = process([sys.executable, "-c", code])
    assert result.returncode == 2
    assert re.search(r"pip install .*\[postgres\]", result.stderr)


def test_a_password_is_not_shown(penstock: Penstock) -> None:
    result = penstock("queue", "stats", "postgresql://me:secret@localhost:1/name")
    assert "secret" not in result.err
    assert "me:***@localhost" in result.err


def fill_a_day(url: str) -> None:
    """Two mails and a bill end in each of the last three full hours; a row is open since then."""

    async def work(store: Store) -> None:
        ((now,),) = await store.query("SELECT {seconds}{now})")
        for ago in (1, 2, 3):
            # Half past an hour, which is over.
            finished = now - ((float(now) // 3600 - ago) * 3600 + 1800)
            for kind, took in (("mail", 1.0), ("mail", 3.0), ("bill", 60.0)):
                await store.query(
                    ROW.replace("KIND", kind),
                    status=1,
                    came=finished + took + 10,
                    started=finished + took,
                    finished=finished,
                )
        await store.query(
            "INSERT INTO {table} ({payload}, {enqueued}, {run_at}) "
            "SELECT '{{}}', {now} - 14400 * {second}, {now} - 14400 * {second}"
        )

    within(url, work)


ROW = """INSERT INTO {table} ({payload}, {status}, {enqueued}, {run_at}, {started}, {finished},
    {attempts})
SELECT '{{"type": "KIND"}}', :status, {now} - :came * {second}, {now} - :came * {second},
    {now} - :started * {second}, {now} - :finished * {second}, 1"""


def test_stats_by_hour_show_each_hour_the_trend_and_when_it_is_empty(
    penstock: Penstock, database: str
) -> None:
    fill_a_day(database)
    result = penstock("queue", "stats", database, "--by", "hour", "--window", "3h")
    assert (result.status, result.err) == (0, "")
    _, heading, *hours, last, trend = result.out.splitlines()
    assert heading.split()[:6] == ["hour", "(UTC)", "came", "finished", "dead", "open"]
    numbers = [line.split()[2:] for line in hours]
    assert numbers[:3] == [["3", "3", "0", "1", "10.000", "10.000", "3.000", "60.000"]] * 3
    assert numbers[3] == ["0", "0", "0", "1"]
    assert last.startswith("  last hour: ")
    assert trend == "  trend: +0.0 rows left open per hour"


def test_stats_by_kind_show_what_takes_the_time(penstock: Penstock, database: str) -> None:
    fill_a_day(database)
    result = penstock("queue", "stats", database, "--by", "kind", "--kind", "type", "--json")
    (kinds,) = lines(f'{{"kinds": {result.out}}}'.replace("\n", ""))
    shown = [
        (one["kind"], one["waiting"], one["done"], round(one["work_seconds"]))
        for one in kinds["kinds"]
    ]
    assert shown == [("bill", 0, 3, 180), ("mail", 0, 6, 12), (None, 1, 0, 0)]
    text = penstock("queue", "stats", database, "--by", "kind", "--kind", "type").out
    assert [line.split()[7] for line in text.splitlines()[2:4]] == ["94%", "6%"]
    assert result.err == ""


def test_a_kind_that_no_row_has_is_a_mistake(penstock: Penstock, database: str) -> None:
    fill_a_day(database)
    for more in ([], ["--json"]):
        wrong = penstock("queue", "stats", database, "--by", "kind", "--kind", "Type", *more)
        said = "penstock: --kind Type: no payload has this field, and there is no such column\n"
        assert (wrong.status, wrong.out, wrong.err) == (2, "", said)


def test_a_queue_without_rows_has_no_kinds(penstock: Penstock, database: str) -> None:
    async def nothing(store: Store) -> None:
        """Opening the store has made the table."""

    within(database, nothing)
    result = penstock("queue", "stats", database, "--by", "kind", "--kind", "type", "--json")
    assert (result.status, result.out, result.err) == (0, "[]\n", "")


def test_hours_are_drawn(penstock: Penstock, database: str, tmp_path: Path) -> None:
    fill_a_day(database)
    picture = tmp_path / "hours.svg"
    result = penstock("queue", "stats", database, "--by", "hour", "--plot", picture)
    assert result.status == 0
    drawn = picture.read_text()
    assert drawn.count("<g ") == 2
    assert all(f">{name}</text>" in drawn for name in ("open", "came", "finished", "waited p95"))
    times = re.findall(r">\d\d-\d\d (\d\d):(\d\d)</text>", drawn)
    assert len(times) >= 2 * 4
    assert {(int(hour) % 6, minute) for hour, minute in times} == {(0, "00")}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--by", "kind"], "--kind FIELD go together"),
        (["--kind", "type"], "--kind FIELD go together"),
        (["--plot", "a.svg"], "--plot goes with --by hour"),
        (["--by", "hour", "--plot", "a.png"], "must end in .svg"),
        (["--by", "hour", "--plot", "no/a.svg"], "Cannot write no/a.svg"),
        (["--window", "0"], "more than 0 seconds"),
    ],
)
def test_views_that_cannot_be_shown_are_reported(
    penstock: Penstock, url: str, words: list[str], told: str
) -> None:
    result = penstock("queue", "stats", url, *words)
    assert result.status == 2
    assert told in " ".join(result.err.split())


def fill_a_history(url: str) -> None:
    """Twenty rows that came at once, and took one poller a minute each."""

    async def work(store: Store) -> None:
        for n in range(20):
            text = ROW.replace("KIND", "mail").replace(
                "attempts})\nSELECT", "attempts}, {owner})\nSELECT"
            )
            await store.query(
                text + ", 'a'",
                status=1,
                came=3600.0,
                started=3600.0 - 60 * n,
                finished=3540.0 - 60 * n,
            )

    within(url, work)


def test_a_history_is_replayed_with_other_pollers(penstock: Penstock, database: str) -> None:
    fill_a_history(database)
    result = penstock("queue", "replay", database, "--pollers", "4")
    assert (result.status, result.err) == (0, "")
    first, heading, was, same, other, last = result.out.splitlines()
    assert first.endswith(": 20 rows ended in the last 24 h")
    assert heading.split()[:3] == ["pollers", "batch", "limit"]
    numbers = [
        [float(word.replace(",", "")) for word in line.removeprefix(what).split()[:7]]
        for what, line in (
            ("  as it was", was),
            ("  replayed as it was", same),
            ("  replayed", other),
        )
    ]
    # The rows are inserted one after the other, by the clock.
    assert numbers[0] == pytest.approx([1, 1, 1, 540, 1080, 600, 1140], abs=2.0)
    assert numbers[1] == pytest.approx(numbers[0], abs=2.0)
    assert numbers[2] == pytest.approx([4, 1, 1, 120, 240, 180, 300], abs=2.0)
    assert last.startswith("  with 4 pollers, batch 1, limit 1, p95 would have been ")
    assert last.endswith(" on no row waiting")


def test_a_signal_ends_a_replay_while_it_computes(
    penstock: Penstock, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on: list[bool] = []

    def compute(visits: object) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(True)

    monkeypatch.setattr("penstock.command.queue.replay.observed", compute)
    fill(database)
    with raising():
        result = penstock("queue", "replay", database)
    assert (result.status, result.out, went_on) == (0, "", [])


def test_a_replay_in_which_nothing_waits_says_so(penstock: Penstock, database: str) -> None:
    fill_a_history(database)
    result = penstock("queue", "replay", database, "--pollers", "20", "--batch", "1")
    other, last = result.out.splitlines()[-2:]
    assert other.split()[-2:] == ["0", "-"]
    assert last.endswith(", and no row waiting at all")


def test_a_replay_is_a_line_of_json_if_that_is_wanted(penstock: Penstock, database: str) -> None:
    fill_a_history(database)
    result = penstock("queue", "replay", database, "--limit", "2", "--json", "--window", "2h")
    was, same, other = orjson.loads(result.out)
    assert [one["what"] for one in (was, same, other)] == [
        *("as it was", "replayed as it was", "replayed")
    ]
    assert (other["pollers"], other["batch"], other["limit"]) == (1, 1, 2)
    assert other["total"]["p95"] == pytest.approx(600.0, abs=2.0)
    assert other["most_waiting"] == 18


def test_without_rows_that_ended_there_is_nothing_to_replay(penstock: Penstock, url: str) -> None:
    result = penstock("queue", "replay", url, "--window", "0.000001")
    assert result.status == 1
    assert "no row ended in the last" in result.err


def test_put_takes_a_time_and_a_priority_and_peek_and_stats_show_them(
    penstock: Penstock, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "new.jsonl"
    options = (["--priority", "5"], ["--priority=-5"], ["--at", "2090-01-31T08:00Z"])
    for n, given in enumerate([*options, ["--at", "2h", "--priority", "1"]], 1):
        file.write_text(f'{{"n": {n}}}\n')
        assert penstock("queue", "put", database, "--input", file, *given).status == 0
    found = lines(penstock("queue", "peek", database).out)
    assert [row["payload"]["n"] for row in found] == [2, 3, 4, 1]
    assert [row.get("priority") for row in found] == [-5, None, 1, 5]
    assert "+00:00" in found[1]["run_at"]
    shown = penstock("queue", "stats", database).out
    assert "  priority  1 of -5, 1 of 0, 1 of 1, 1 of 5\n" in shown
    assert "; row 2 is first" in shown


def test_cancel_names_the_rows_that_have_ended_and_those_that_do_not_exist(
    penstock: Penstock, url: str
) -> None:
    result = penstock("queue", "cancel", url, "--id", "1", "3", "4", "99", "2")
    assert result.status == 1
    assert "2 rows cancelled" in result.err
    assert "not 1, 2: already ended\n" in result.err
    assert "not 99: there is no such row\n" in result.err
    dead = lines(penstock("queue", "peek", url, "--state", "dead").out)
    assert [row["id"] for row in dead] == [2, 3, 4]
    assert dead[1]["error"].startswith("Cancelled")
    assert penstock("queue", "cancel", url, "--id", "5").status == 0


def test_stats_show_periodic_jobs_and_snoozed_and_cancelled_rows(
    penstock: Penstock, url: str
) -> None:
    async def work(store: Store) -> None:
        rows = (await store.claim(1, TERMS)).rows
        await store.settle(Settlement(failed=[Failure(rows[0], "", 60.0, snoozed=True)]), TERMS)
        await cancel(store, [5], [])
        await store.plan("sweep", "every 60", 0.0)
        await store.move("sweep", 0.0, 120.0, [Enqueued("{}", 60.0)], 2)

    within(url, work)
    text = penstock("queue", "stats", url).out
    assert "; 1 snoozed\n" in text
    assert "dead      2, 1 of them cancelled\n" in text
    shown = " ".join(text.partition("  periodic ")[2].split())
    assert shown.endswith("missed sweep every 60 1970-01-01 00:02:00 1970-01-01 00:01:00 2")
    numbers = orjson.loads(penstock("queue", "stats", url, "--json").out)
    assert (numbers["snoozed"], numbers["cancelled"]) == (1, 1)
    assert numbers["periodic"] == [
        {"name": "sweep", "schedule": "every 60", "next": 120.0, "last": 60.0, "missed": 2}
    ]


def test_pause_and_resume_say_what_they_have_changed(penstock: Penstock, database: str) -> None:
    fill(database)
    assert penstock("queue", "pause", database).err.endswith("table 'queue' is paused\n")
    assert penstock("queue", "pause", database).err.endswith("is paused, as before\n")
    assert penstock("queue", "stats", database).out.startswith(f"queue in {database} (paused):")
    (stats,) = lines(penstock("queue", "stats", database, "--json").out)
    assert stats["paused"] is True
    assert penstock("queue", "resume", database).err.endswith("table 'queue' is not paused\n")
    assert penstock("queue", "resume", database).err.endswith("is not paused, as before\n")
    assert penstock("queue", "stats", database).out.startswith(f"queue in {database}:")


@pytest.mark.parametrize(
    "option", [("--at", "soon"), ("--at", "25:00"), ("--at", "-5m"), ("--priority", "1.5")]
)
def test_put_refuses_what_is_no_time_and_no_priority(
    penstock: Penstock, url: str, option: tuple[str, str]
) -> None:
    result = penstock("queue", "put", url, *option)
    assert result.status == 2
    assert option[0] in result.err
    assert repr(option[1]) in result.err


def test_a_table_of_an_older_version_is_upgraded_by_a_command_that_the_error_names(
    penstock: Penstock, url: str, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        db.execute("DROP INDEX queue_priority")
        db.execute("ALTER TABLE queue DROP COLUMN priority")
    file = tmp_path / "new.jsonl"
    file.write_text('{"n": 1}\n')
    put = ("queue", "put", url, "--priority", "5", "--input", file)
    refused = penstock(*put)
    assert refused.status == 2
    assert f"penstock queue upgrade {url} --table queue" in refused.err
    assert penstock("queue", "upgrade", url).err.endswith("'queue' has priorities now\n")
    assert penstock("queue", "upgrade", url).err.endswith("'queue' lacks nothing\n")
    assert penstock(*put).status == 0
    assert penstock("queue", "upgrade", url, "--column", "id=id").status == 2
