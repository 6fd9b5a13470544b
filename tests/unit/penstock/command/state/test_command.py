from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock import Store, collect, distinct_within, from_iterable, read_jsonl, run, stateful
from penstock.streams.base.errors import BuildError
from penstock.streams.delivery.ranges import text_of_most
from penstock.streams.delivery.text import text_of
from penstock.streams.io.kept_position import ABOUT
from penstock.streams.nats.client.server import Servers
from penstock.streams.state.backend import KeptStage, Row, Unit
from penstock.streams.state.jetstream.moving import MovingJetStream
from penstock.streams.state.postgresql.backend import PostgreSQL
from penstock.streams.state.rocks import Rocks
from penstock.streams.state.sqlite import SQLite
from penstock.streams.state.store import backend_at

Penstock = Callable[..., Any]

# 2026-01-01, and a day later.
AT, LATER = 1_767_225_600.0, 1_767_312_000.0

VISITS = [
    Row(b'"7"', b"70", 1, b"", None),
    Row(b'"ann"', b"3", 1, b"", None),
    Row(b'["eu","bob"]', b'{"n":1}', 2, b"", None),
    Row(b"7", b"5", 1, b'{"silent":1767225600.0,"":1767312000.0}', AT),
]

# States that end; one has a timer before its end.
ENDS = [
    Row(b'"at"', b"1", 3, b'{"":1767225600.0}', AT),
    Row(b'"later"', b"2", 3, b'{"":4000000000.0}', 4e9),
    Row(b'"timer"', b"3", 3, b'{"":1767312000.0,"silent":1767225600.0}', AT),
]


def opened(path: str) -> SQLite | Rocks:
    """The backend of a run that uses the store."""
    backend: Any = backend_at(path)
    backend.open()
    return backend


@pytest.fixture(params=["file", "rocks", "nats"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, of each kind that has files or a stream."""
    if request.param == "nats":
        servers: Servers = request.getfixturevalue("server")
        return f"{servers.urls[0]}/{tmp_path.name}"
    return str(tmp_path / "a.state") if request.param == "file" else f"rocks:///{tmp_path}/a"


@pytest.fixture
def store(empty: str) -> str:
    """A store with four keys of `visits`, none of `alarms`, and how far a table is done."""
    backend = opened(empty)
    backend.declare([KeptStage("visits", "user", 1), KeptStage("alarms", "device", 3)])
    backend.commit(Unit(rows={"visits": VISITS}, marks={"table jobs": b"?"}))
    backend.close()
    return empty


@pytest.fixture
def running(store: str) -> Generator[SQLite | Rocks]:
    """A run that uses the store."""
    backend = opened(store)
    yield backend
    backend.close()


def count(n: int, event: object) -> tuple[int, list[int]]:
    return n + 1, [n + 1]


def lines(text: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in text.splitlines()]


def keys(text: str) -> list[Any]:
    return [line["key"] for line in lines(text)]


def kept(path: str, stage: str = "visits") -> dict[bytes, Row]:
    backend = backend_at(path)
    backend.open_to_read()
    try:
        return {row.key: row for row in backend.scan(stage)}
    finally:
        backend.close()


def add(path: str, rows: list[Row]) -> None:
    """Give `alarms` these rows."""
    backend = opened(path)
    backend.commit(Unit(rows={"alarms": rows}))
    backend.close()


def shown(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# Looking.


def test_the_stages_are_shown_and_how_far_each_source_is_done(
    penstock: Penstock, store: str
) -> None:
    result = penstock("state", "show", store)
    assert (result.status, result.err) == (0, "")
    size = sum(len(row.key) + len(row.state) for row in VISITS)
    assert shown(result.out) == [
        f"{store}:",
        "stage by version keys bytes next timer (UTC)",
        f"visits user 1 4 {size} 2026-01-01 00:00:00",
        "alarms device 3 0 0 -",
        "done",
        "table jobs",
    ]


def test_they_are_a_line_of_json_if_that_is_wanted(penstock: Penstock, store: str) -> None:
    (found,) = lines(penstock("state", "show", store, "--json").out)
    visits, alarms = found["stages"]
    assert (visits["name"], visits["by"], visits["version"], visits["keys"]) == (
        *("visits", "user", 1, 4),
    )
    assert (visits["due"], alarms["due"]) == ("2026-01-01T00:00:00+00:00", None)
    assert found["marks"] == [
        {
            "partition": "table jobs",
            "lines": None,
            "bytes": None,
            "finished": [],
            "waits_for": None,
        }
    ]


def test_of_a_file_it_is_shown_how_many_lines_are_done(penstock: Penstock, tmp_path: Path) -> None:
    path, events = tmp_path / "b.state", tmp_path / "in.jsonl"
    events.write_text('{"n":1}\n{"n":2}\n{"n":22}\n')
    where = Store(path)
    counts = read_jsonl(events, position=where).pipe(stateful(count, "n", start=0, store=where))
    run(counts.to(collect([])))
    assert shown(penstock("state", "show", path).out)[-1] == f"file {events} 3 25 - -"


def test_event_times_are_shown_apart_from_what_is_done(penstock: Penstock, store: str) -> None:
    mark = orjson.dumps({"": {"greatest": 1_700_000_300.0, "ahead": []}})
    new = orjson.dumps({"topic/0": {"greatest": None, "ahead": []}})
    backend = opened(store)
    backend.commit(Unit(marks={"event_time at": mark, "event_time since": new}))
    backend.close()
    found = shown(penstock("state", "show", store).out)
    assert found[-3:] == [
        "event time greatest (UTC)",
        "event_time at 2023-11-14 22:18:20",
        "event_time since of topic/0 -",
    ]
    (as_json,) = lines(penstock("state", "show", store, "--json").out)
    assert as_json["event_times"] == [
        {"name": "event_time at", "time": "2023-11-14T22:18:20+00:00"},
        {"name": "event_time since of topic/0", "time": None},
    ]


def test_lines_that_are_done_before_others_are_shown_and_the_oldest_that_is_not(
    penstock: Penstock, store: str
) -> None:
    numbers = {"inode": 1, "size": 90, "offset": 80, "checksum": 0, "read": 90, "line": 4}
    position = orjson.dumps({**numbers, "finished": [[6, 8], [11, 12]], "unended": []}).decode()
    backend = opened(store)
    backend.commit(Unit(marks={"file a.jsonl": text_of(ABOUT, position).encode()}))
    backend.close()
    assert "file a.jsonl 4 80 6 to 7, 11 5" in shown(penstock("state", "show", store).out)
    (found,) = lines(penstock("state", "show", store, "--json").out)
    assert found["marks"][0] == {
        "partition": "file a.jsonl",
        "lines": 4,
        "bytes": 80,
        "finished": [[6, 7], [11, 11]],
        "waits_for": 5,
    }


def test_of_a_partition_of_kafka_offsets_are_shown(penstock: Penstock, store: str) -> None:
    body = {"floor": 1200, "finished": text_of_most(1200, [(1203, 1210)], 99).text}
    said = text_of(("kafka",), orjson.dumps({**body, "generation": "x"}).decode()).encode()
    backend = opened(store)
    backend.commit(Unit(marks={"kafka c/clicks/0": said, "kafka c/clicks/1": b"?"}))
    backend.close()
    rows = shown(penstock("state", "show", store).out)
    assert "kafka c/clicks/0 1,200 - 1,203 to 1,209 1,200" in rows
    assert "kafka c/clicks/1 - - - -" in rows


def test_an_empty_store_says_so(penstock: Penstock, tmp_path: Path) -> None:
    backend = SQLite(str(tmp_path / "new.state"))
    backend.open()
    backend.close()
    result = penstock("state", "show", tmp_path / "new.state")
    assert shown(result.out)[1:] == ["nothing is kept in it"]
    assert "no states of any stage" in penstock("state", "peek", tmp_path / "new.state").err


def test_peek_shows_the_first_keys_of_a_stage_with_their_states_and_timers(
    penstock: Penstock, store: str
) -> None:
    result = penstock("state", "peek", store, "--stage", "visits")
    assert lines(result.out) == [
        {"key": "7", "state": 70},
        {"key": "ann", "state": 3},
        {"key": 7, "state": 5}
        | {"timers": {"silent": "2026-01-01T00:00:00+00:00"}, "ends": "2026-01-02T00:00:00+00:00"},
        {"key": ["eu", "bob"], "state": {"n": 1}, "version": 2},
    ]
    some = penstock("state", "peek", store, "--stage", "visits", "--count", 2)
    assert keys(some.out) == ["7", "ann"]


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("ann", 3),
        ('"ann"', 3),
        ("7", 5),
        ('"7"', 70),
        ("7.0", 5),
        ('["eu", "bob"]', {"n": 1}),
    ],
)
def test_a_key_is_json_or_a_text(penstock: Penstock, store: str, key: str, state: Any) -> None:
    (found,) = lines(penstock("state", "peek", store, "--stage", "visits", "--key", key).out)
    assert found["state"] == state


def test_a_text_that_would_be_a_number_is_found_where_that_number_is_no_key(
    penstock: Penstock, store: str
) -> None:
    penstock(
        "state", "set", store, "--stage", "alarms", "--key", '"12"', "--state", "1", "--create"
    )
    assert keys(penstock("state", "peek", store, "--stage", "alarms", "--key", "12").out) == ["12"]


def test_a_key_without_a_state_is_reported(penstock: Penstock, store: str) -> None:
    result = penstock("state", "peek", store, "--stage", "visits", "--key", "eve")
    assert (result.status, result.out) == (1, "")
    assert result.err == "penstock: eve has no state in 'visits'\n"


def test_all_keys_are_exported_with_their_stages(penstock: Penstock, store: str) -> None:
    penstock(
        "state", "set", store, "--stage", "alarms", "--key", "a", "--state", "[1.5]", "--create"
    )
    found = lines(penstock("state", "export", store).out)
    assert [line["stage"] for line in found] == ["visits"] * 4 + ["alarms"]
    assert found[-1] == {"stage": "alarms", "key": "a", "state": [1.5]}
    assert keys(penstock("state", "export", store, "--stage", "alarms").out) == ["a"]


def test_more_keys_than_are_put_out_at_once_are_exported(penstock: Penstock, store: str) -> None:
    backend = opened(store)
    for first in (0, 667, 1_334):
        numbers = range(first, first + 667)
        backend.commit(Unit({"alarms": [Row(b"%d" % n, b"0", 3, b"", None) for n in numbers]}))
    backend.close()
    found = keys(penstock("state", "export", store, "--stage", "alarms").out)
    assert sorted(found) == list(range(2_001))


def test_a_timer_after_the_last_date_is_shown_as_a_number(penstock: Penstock, store: str) -> None:
    backend = opened(store)
    backend.commit(Unit(rows={"alarms": [Row(b"1", b"1", 3, b'{"never":1e300}', 1e300)]}))
    backend.close()
    (found,) = lines(penstock("state", "export", store, "--stage", "alarms").out)
    assert found["timers"] == {"never": 1e300}
    assert "1e+300" in penstock("state", "show", store).out


@pytest.mark.parametrize(
    "words", [("peek", "--count", "1"), ("peek", "--key", "later"), ("export",)]
)
def test_states_whose_ttl_is_over_are_not_shown(
    penstock: Penstock, store: str, words: tuple[str, ...]
) -> None:
    add(store, ENDS[:2])
    result = penstock("state", words[0], store, "--stage", "alarms", *words[1:])
    assert keys(result.out) == ["later"]
    assert penstock("state", "peek", store, "--stage", "alarms", "--key", "at").status == 1


def test_a_state_with_a_timer_that_is_due_before_its_end_is_shown(
    penstock: Penstock, store: str
) -> None:
    # The call for that timer gives it a later end.
    add(store, ENDS)
    result = penstock("state", "peek", store, "--stage", "alarms")
    assert keys(result.out) == ["later", "timer"]


def test_keys_are_shown_whose_window_is_over_by_the_clock_but_not_by_their_events(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "once.state"
    events = from_iterable([{"id": "a", "at": AT}])
    once = events.pipe(distinct_within(60, by="id", time="at", store=Store(path)))
    run(once.to(collect([])))
    assert lines(penstock("state", "peek", path).out) == [
        {"key": "a", "state": AT, "timers": {"ends": "2026-01-01T00:01:00+00:00"}}
    ]


def test_the_only_stage_need_not_be_named(penstock: Penstock, store: str) -> None:
    result = penstock("state", "peek", store)
    assert result.status == 2
    assert "has the stages 'visits', 'alarms': say which, by --stage NAME" in result.err
    penstock("state", "drop", store, "--stage", "alarms")
    assert len(keys(penstock("state", "peek", store).out)) == 4


def test_a_copy_has_all_that_is_in_the_store(
    penstock: Penstock, store: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.state")
    made = penstock("state", "backup", store, copy)
    assert made.status == 0
    files = list(Path(copy).iterdir()) if store.startswith("rocks:") else [Path(copy)]
    size = sum(file.stat().st_size for file in files)
    assert f"{copy} has a copy of the store, {size:,} bytes" in made.err
    scheme = "rocks:///" if store.startswith("rocks:") else ""
    assert kept(scheme + copy) == kept(store)
    again = penstock("state", "backup", store, copy)
    assert again.status == 2
    assert f"Cannot copy the store {store.removeprefix('rocks:///')} to {copy}: " in again.err


# Changing.


def test_a_key_is_given_another_state_and_keeps_its_timers(penstock: Penstock, store: str) -> None:
    before = kept(store)
    result = penstock("state", "set", store, "--stage", "visits", "--key", "7", "--state", "8")
    assert result.status == 0
    assert result.err == "penstock: 7 of 'visits' has the state 8 now, in place of 5\n"
    assert kept(store) == before | {b"7": before[b"7"]._replace(state=b"8")}


def test_a_state_that_was_not_made_one_of_the_present_version_stays_one_of_its_own(
    penstock: Penstock, store: str
) -> None:
    key = '["eu","bob"]'
    penstock("state", "set", store, "--stage", "visits", "--key", key, "--state", '{"n":2}')
    assert kept(store)[key.encode()] == Row(key.encode(), b'{"n":2}', 2, b"", None)


def test_a_new_key_is_given_a_state_of_the_stages_version(penstock: Penstock, store: str) -> None:
    words = ("state", "set", store, "--stage", "alarms", "--key", "a", "--state", '"on"')
    refused = penstock(*words)
    assert refused.status == 2
    assert "a has no state in 'alarms': if it is to be a new key, give --create" in refused.err
    assert kept(store, "alarms") == {}
    result = penstock(*words, "--create")
    assert result.err == 'penstock: "a" of \'alarms\' is new, with the state "on"\n'
    assert kept(store, "alarms") == {b'"a"': Row(b'"a"', b'"on"', 3, b"", None)}


def test_a_key_whose_ttl_is_over_is_a_new_one(penstock: Penstock, store: str) -> None:
    add(store, ENDS)
    words = ("state", "set", store, "--stage", "alarms", "--key", "at", "--state", "7")
    assert penstock(*words).status == 2
    assert "is new" in penstock(*words, "--create").err
    assert kept(store, "alarms")[b'"at"'] == Row(b'"at"', b"7", 3, b"", None)


def test_null_deletes_a_key(penstock: Penstock, store: str) -> None:
    words = ("state", "set", store, "--stage", "visits", "--key", "ann", "--state", "null")
    deleted = penstock(*words)
    assert deleted.err == "penstock: \"ann\" of 'visits' is deleted: its state was 3\n"
    assert b'"ann"' not in kept(store)
    again = penstock(*words)
    assert (again.status, again.err) == (1, "penstock: ann has no state in 'visits'\n")


def test_a_stage_is_dropped_with_its_states_and_no_other(penstock: Penstock, store: str) -> None:
    penstock("state", "set", store, "--stage", "alarms", "--key", "a", "--state", "1", "--create")
    result = penstock("state", "drop", store, "--stage", "visits")
    assert (result.status, result.err) == (0, "penstock: 'visits' deleted, with 4 keys\n")
    assert keys(penstock("state", "export", store).out) == ["a"]
    assert "table jobs" in penstock("state", "show", store).out


def test_the_next_run_goes_on_with_a_state_that_was_set(penstock: Penstock, tmp_path: Path) -> None:
    path, found = tmp_path / "c.state", list[int]()

    def go() -> None:
        counts = stateful(count, str, start=0, store=Store(path))
        run(from_iterable("a").pipe(counts).to(collect(found)))

    go()
    assert penstock("state", "set", path, "--key", "a", "--state", "41").status == 0
    go()
    assert found == [1, 42]


# Beside a run.


@pytest.mark.parametrize(
    "words", [("show",), ("peek", "--stage", "visits"), ("export",), ("backup",)]
)
def test_looking_disturbs_no_run(
    penstock: Penstock, store: str, running: SQLite | Rocks, tmp_path: Path, words: tuple[str, ...]
) -> None:
    running.commit(Unit(rows={"visits": [Row(b'"new"', b"1", 1, b"", None)]}))
    action, *options = words
    if action == "backup":
        options = [str(tmp_path / "copy.state")]
    assert penstock("state", action, store, *options).status == 0
    running.commit(Unit(rows={"visits": [Row(b'"newer"', b"1", 1, b"", None)]}))


@pytest.mark.parametrize(
    "words",
    [
        ("set", "--stage", "visits", "--key", "ann", "--state", "1"),
        ("drop", "--stage", "visits"),
    ],
)
def test_nothing_is_changed_while_a_run_uses_the_store(
    penstock: Penstock, store: str, running: SQLite | Rocks, words: tuple[str, ...]
) -> None:
    action, *options = words
    before = kept(store)
    result = penstock("state", action, store, *options)
    assert result.status == 2
    assert "another run uses the store" in result.err.lower()
    assert kept(store) == before
    running.commit(Unit(marks={"p": b"q"}))


# Mistakes.


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("peek", "--stage", "vists"), "has no stage 'vists': it has 'visits', 'alarms'"),
        (("drop", "--stage", "vists"), "has no stage 'vists'"),
        (("drop",), "--stage"),
        (("set", "--stage", "visits", "--key", "a", "--state", "on"), "'on' is not JSON"),
        (("set", "--stage", "visits", "--key", "a", "--state", "NaN"), "'NaN' is not JSON"),
        (("set", "--stage", "visits", "--key", "\udcff", "--state", "1"), "a key is a text, a "),
        (("peek", "--stage", "\udcff"), "has no stage"),
        (("peek", "--stage", "visits", "--count", "0"), "at least 1"),
        (("backup", "/nowhere/copy.state"), "to /nowhere/copy.state: "),
        (("show", "--kafka-config", "a"), "--kafka-config goes with a store at kafka://"),
    ],
)
def test_a_mistake_is_said_in_a_line_and_changes_nothing(
    penstock: Penstock, store: str, words: tuple[str, ...], told: str
) -> None:
    before = kept(store)
    action, *options = words
    result = penstock("state", action, store, *options)
    assert result.status == 2
    assert told in result.err
    assert "Traceback" not in result.err
    assert kept(store) == before


@pytest.mark.parametrize(
    "action", [("set", "--key", "a", "--state", "1"), ("drop", "--stage", "s")]
)
def test_changes_of_a_changelog_are_refused_before_brokers_are_asked(
    penstock: Penstock, action: tuple[str, ...]
) -> None:
    word, *options = action
    result = penstock("state", word, "kafka://127.0.0.1:1/counts", *options)
    assert result.status == 2
    assert result.err == (
        f"penstock: state {word}: the states in kafka://127.0.0.1:1/counts are those of "
        "many processes, and each changes those of its partitions. They can be read here (show, "
        "peek, export, backup), and not changed. To begin anew, give the pipeline a store of "
        "another name. To change the state of a key, send the pipeline an event with this key that "
        "does.\n"
    )


def test_brokers_that_do_not_answer_are_soon_given_up_by_who_only_looks(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.state.kafka.topic._LOOK", 0.1)
    result = penstock("state", "show", "kafka://127.0.0.1:1/counts")
    assert result.status == 2
    assert "The topic 'counts' on 127.0.0.1:1: waited " in result.err
    assert "s for the brokers to say its partitions (no broker has answered)." in result.err


def test_states_of_many_workers_on_nats_can_be_looked_at_and_not_changed(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    url = f"{server.urls[0]}/{tmp_path.name}"
    backend = MovingJetStream(url)
    backend.open()
    for number in range(2):
        backend.adopt(number, 2)
    backend.declare([KeptStage("visits", "user", 1)])
    marks = {
        number: Unit(marks={f"nats clicks/{number}": b'{"born":"","floor":3,"above":""}'})
        for number in range(2)
    }
    backend.commit(Unit(partitions=marks))
    backend.close()
    # What is done of a partition is in numbers that say nothing to a reader: status shows it.
    assert shown(penstock("state", "show", url).out)[-3:] == [
        "done",
        "nats clicks/0",
        "nats clicks/1",
    ]
    for words in (("set", "--key", "a", "--state", "1"), ("drop", "--stage", "visits")):
        result = penstock("state", words[0], url, *words[1:])
        assert result.status == 2
        assert f"the states in {url} are those of many processes" in result.err
        assert "To begin anew, give the pipeline a store of another name." in result.err


def test_a_setting_that_the_client_does_not_take_is_named(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No broker is asked; without the setting it would be, for as long.
    for seconds in ("_ANSWER", "_LOOK"):
        monkeypatch.setattr(f"penstock.streams.state.kafka.topic.{seconds}", 0.1)
    file = tmp_path / "client.properties"
    file.write_text("nonsense=1\n")
    result = penstock("state", "show", "kafka://127.0.0.1:1/counts", "--kafka-config", str(file))
    assert result.status == 2
    assert 'No such configuration property: "nonsense"' in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("action", ["show", "drop"])
def test_what_is_no_store_stays_as_it_is(penstock: Penstock, tmp_path: Path, action: str) -> None:
    missing, other = tmp_path / "none.state", tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE orders (id)")
    connection.close()
    options = ("--stage", "x") if action == "drop" else ()
    before = other.read_bytes()
    for path, told in (
        (missing, "no run has made it yet"),
        (f"sqlite:///{missing}", "no run has made it yet"),
        (other, "is not a store yet"),
        (tmp_path, "it is a folder"),
        ("mysql://host/name", "give the path of a file"),
    ):
        result = penstock("state", action, path, *options)
        assert result.status == 2
        assert told in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]
    assert other.read_bytes() == before


# What a run refuses names the command that helps.


def test_a_run_names_the_command_that_drops_states_which_it_cannot_go_on_with(
    penstock: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "my orders.state"

    def go(**options: Any) -> None:
        options = {"by": "user", "name": "per user", "version": 2, "migrate": {1: int}, **options}
        counts = stateful(count, start=0, store=Store(path), **options)
        run(from_iterable([{"user": 1, "client": 1}]).pipe(counts).to(collect([])))

    go()
    command = f"penstock state drop '{path}' --stage 'per user'"
    for options in ({"by": "client"}, {"version": 1, "migrate": None}, {"name": "other"}):
        with pytest.raises(BuildError) as refused:
            go(**options)
        assert str(refused.value).endswith(command)
    assert penstock("state", "drop", path, "--stage", "per user").status == 0
    go(by="client")


# In PostgreSQL.


def test_a_store_in_postgresql_is_shown_and_changed_in_the_same_way(
    penstock: Penstock, postgres: str
) -> None:
    backend = PostgreSQL(postgres)
    backend.open()
    backend.declare([KeptStage("visits", "user", 1)])
    backend.commit(Unit(rows={"visits": VISITS}))
    backend.close()
    size = sum(len(row.key) + len(row.state) for row in VISITS)
    assert f"visits user 1 4 {size} 2026-01-01 00:00:00" in shown(
        penstock("state", "show", postgres).out
    )
    assert penstock("state", "set", postgres, "--key", "ann", "--state", "9").status == 0
    assert lines(penstock("state", "peek", postgres, "--key", "ann").out) == [
        {"key": "ann", "state": 9}
    ]
    exported = keys(penstock("state", "export", postgres).out)
    assert exported == ["7", "ann", 7, ["eu", "bob"]]
    assert penstock("state", "drop", postgres, "--stage", "visits").status == 0
    assert "nothing is kept in it" in penstock("state", "show", postgres).out


def test_a_copy_of_postgresql_is_refused_with_the_program_that_makes_it(
    penstock: Penstock, postgres: str
) -> None:
    backend = PostgreSQL(postgres)
    backend.open()
    backend.close()
    result = penstock("state", "backup", postgres, "copy.sql")
    assert result.status != 0
    assert "pg_dump --table='penstock_*'" in result.err
