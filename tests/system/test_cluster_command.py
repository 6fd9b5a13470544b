from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.streams.nats.client.server import Servers
from penstock.streams.nats.cluster.layout import token
from tests.helpers.servers.command import PIPELINE, Penstock, Worker, event, eventually, lines

DEADLY = (
    "import os, signal\n"
    "from penstock import adaptive_flat_map\n"
    "from penstock import write_jsonl\n"
    "from penstock import read_jsonl\n"
    "def die(event):\n"
    "    os.kill(os.getpid(), signal.SIGKILL)\n"
    "pipeline = read_jsonl().pipe(adaptive_flat_map(die)).to(write_jsonl())\n"
)
EXITS = DEADLY.replace("os.kill(os.getpid(), signal.SIGKILL)", "os._exit(9)")
LONG = ("long.py", "--workers", "2", "--data", "kept")


def test_what_is_published_is_worked_on_once_and_seen(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "seen")
    fed = penstock(
        *("publish", "pipe.py", "--partitions", "4", *on),
        given=lines(event(1, "a", 1), event(2, "a", 2), event(1, "a", 1), event(3, "b", 3)),
    )
    assert fed.returncode == 0, fed.stderr
    assert "stored: 3, known already: 1" in fed.stderr

    before = penstock("status", *on).stdout
    assert "seen: 3 events unfinished, 3 kept, 0 dead letters" in before
    assert "4 partitions, 4 of them with no worker" in before
    assert "no worker is there" in before

    with Worker(tmp_path, *on, "--worker", "first", "--lease", "2") as worker:
        eventually(lambda: "seen: 0 events unfinished" in penstock("status", *on).stdout)
        during = penstock("status", *on).stdout
        assert "4 partitions, 0 of them with no worker" in during
        assert "first" in during
        status, output, errors = worker.drain()
    assert status == 4, errors
    assert sorted(map(json.loads, output.splitlines()), key=lambda one: one["id"]) == [
        event(1, "a", 2),
        event(2, "a", 4),
        event(3, "b", 6),
    ]
    assert "no worker is there" in penstock("status", *on).stdout


def test_events_in_batches_are_worked_on_once_and_their_dead_letters_tried_again(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "packed")
    given = lines(*(event(n, f"key {n % 5}", n) for n in range(100)), event(100, "bad", -1))
    for _ in range(2):
        fed = penstock("publish", "pipe.py", "--partitions", "2", "--batch", "8", *on, given=given)
        assert fed.returncode == 0, fed.stderr
        assert "stored: 101 in batches; workers drop the duplicates" in fed.stderr
    assert "messages unfinished" in penstock("status", *on).stdout

    with Worker(tmp_path, *on) as worker:
        eventually(lambda: " 0 messages unfinished" in penstock("status", *on).stdout)
        again = penstock("dead-letters", "replay", *on)
        assert "1 event published again" in again.stderr
        eventually(lambda: " 1 dead letter" in penstock("status", *on).stdout)
        status, output, errors = worker.drain()
    (letter,) = map(json.loads, penstock("dead-letters", "list", *on).stdout.splitlines())
    assert (letter["value"]["n"], letter["key"]) == (-1, token("bad"))
    assert status == 3
    assert "101 dropped (duplicate)" in errors
    numbers = [json.loads(line)["n"] for line in output.splitlines()]
    assert sorted(numbers) == list(range(0, 200, 2))
    assert all(
        [n for n in numbers if n // 2 % 5 == key] == list(range(2 * key, 200, 10))
        for key in range(5)
    )

    other = penstock("publish", "pipe.py", "--batch", "1", *on, given=given)
    assert other.returncode == 2
    assert "batch is 8 there, 1 here" in other.stderr


def test_the_state_is_shown_again_each_second_until_it_is_stopped(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "watched")
    assert penstock("publish", "pipe.py", "--partitions", "1", *on).returncode == 0
    watching = subprocess.Popen(
        [sys.executable, "-m", "penstock", "status", "--watch", *on],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    shown = [watching.stdout.readline() for _ in range(6)]
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=60)
    assert sum("watched: 0 events unfinished" in line for line in shown) >= 2
    assert watching.returncode == 0


def test_a_signal_after_the_end_of_a_worker_does_not_change_its_exit_status(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    on = ("--on", server.urls[0], "--name", "late")
    assert penstock("publish", "pipe.py", *on, given=lines(event(1, "a", 1))).returncode == 0
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
    (tmp_path / "pipe.py").write_text(late + PIPELINE, encoding="utf-8")
    with Worker(tmp_path, *on) as worker:
        eventually(lambda: "late: 0 events unfinished" in penstock("status", *on).stdout)
        status, _, errors = worker.drain()
    assert status == 4, errors


def test_workers_of_one_machine_are_fed_and_stopped(penstock: Penstock, tmp_path: Path) -> None:
    given = lines(*(event(n, f"key {n % 7}", n) for n in range(500)))
    ran = penstock("run", "pipe.py", "--workers", "2", "--data", "kept", given=given)
    assert ran.returncode == 0, ran.stderr
    done = [json.loads(line) for line in ran.stdout.splitlines()]
    for key in range(7):
        assert [one["n"] for one in done if one["key"] == f"key {key}"] == [
            2 * n for n in range(key, 500, 7)
        ]
    assert "500 stored" in ran.stderr
    assert "0 unfinished" in ran.stderr


def test_the_report_says_that_workers_drop_duplicates_where_they_are_not_counted(
    penstock: Penstock, tmp_path: Path
) -> None:
    # So a message holds several events, and the server sees no duplicates.
    in_one_partition = PIPELINE.replace('group_by("key")', 'group_by("id")')
    (tmp_path / "same.py").write_text(in_one_partition, encoding="utf-8")
    given = lines(*(event(n % 50, "a", n) for n in range(100)))
    ran = penstock("run", "same.py", "--workers", "1", "--data", "kept", given=given)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 50
    assert "100 stored, of which workers drop the duplicates, 0 dead letters" in ran.stderr


def test_what_stops_the_input_of_workers_of_one_machine_is_reported(penstock: Penstock) -> None:
    given = lines(event(1, "a", 1), {"id": 2, "n": 2})
    ran = penstock("run", "pipe.py", "--workers", "1", "--data", "kept", given=given)
    assert ran.returncode == 1
    assert "KeyError: 'key'" in ran.stderr
    assert "the event has no field 'key'" in ran.stderr
    ran = penstock("run", "pipe.py", "--workers", "1", "--data", "kept", "--input", "none.jsonl")
    assert ran.returncode == 2
    assert "Cannot read none.jsonl" in ran.stderr


# Kills the server of its run, which then gives up soon.
KILLS = """
import os, signal
from pathlib import Path
from penstock import adaptive_flat_map, read_jsonl, write_jsonl
from penstock.streams.nats.client import answers

answers._PATIENCE = 0.5

def work(event):
    parent = os.getppid()
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"nats-server" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find processes")
def test_a_server_of_one_machine_that_is_killed_is_an_error_of_the_run(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "kills.py").write_text(KILLS, encoding="utf-8")
    words = ("run", "kills.py", "--workers", "1", "--data", "kept")
    ran = penstock(*words, given=lines(event(1, "a", 1)))
    assert ran.returncode == 1
    assert "the server of this run answers no more: see kept/server0.log" in ran.stderr


def test_workers_of_one_machine_have_a_page_each_and_one_for_the_whole(
    penstock: Penstock, tmp_path: Path
) -> None:
    given = lines(*(event(n, f"key {n % 7}", n) for n in range(200)))
    ran = penstock(
        *("run", "pipe.py", "--workers", "2", "--data", "kept", "--report-page", "run.html"),
        given=given,
    )
    assert ran.returncode == 0, ran.stderr
    whole = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<b>200</b>stored" in whole
    assert "<b>200</b>done" in whole
    finished = 0
    for number in (1, 2):
        name = f"run-worker-{number}.html"
        if f'href="{name}"' not in whole:
            # The other one may have done all before it had begun.
            assert "none: it was ended before it had begun" in whole
            continue
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "Where every event is" in page
        found = re.search(r"<b>(\d+)</b>finished", page)
        assert found is not None
        finished += int(found[1])
    assert finished == 200


def test_a_worker_that_ends_by_itself_has_no_page_and_the_whole_says_so(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text(EXITS, encoding="utf-8")
    ran = penstock(
        *("run", "deadly.py", "--workers", "1", "--data", "kept", "--report-page", "run.html"),
        given=lines(event(1, "a", 1)),
    )
    assert ran.returncode == 9
    whole = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "none: it ended by exit status 9" in whole
    assert "exit status 9" in whole
    assert not (tmp_path / "run-worker-1.html").exists()


def test_a_worker_of_this_machine_that_is_killed_is_replaced(
    penstock: Penstock, tmp_path: Path
) -> None:
    # One of its results was not written to its end.
    once = (
        "    if event['n'] == 70 and not os.path.exists('killed'):\n"
        "        open('killed', 'w').close()\n"
        "        os.write(1, b'[1, ')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return event\n"
    )
    text = DEADLY.replace("    os.kill(os.getpid(), signal.SIGKILL)\n", once)
    text = text.replace("pipe(", "pipe(group_by('key'), spread(), ")
    text = text.replace("import adaptive_flat_map", "import adaptive_flat_map, group_by, spread")
    (tmp_path / "deadly.py").write_text(text, encoding="utf-8")
    ran = penstock(
        *("run", "deadly.py", "--workers", "2", "--data", "kept"),
        given=lines(*(event(n, f"k{n % 7}", n) for n in range(200))),
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("ended by SIGKILL") == 1
    assert "another one is started, which works on its events again" in ran.stderr
    assert "200 stored, 0 dropped (duplicate), 0 dead letters, 0 unfinished" in ran.stderr
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    for key in range(7):
        numbers = dict.fromkeys(one["n"] for one in results if one["key"] == f"k{key}")
        assert list(numbers) == list(range(key, 200, 7))


def test_an_event_that_kills_its_workers_of_this_machine_is_a_dead_letter(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY, encoding="utf-8")
    words = ("run", "deadly.py", "--workers", "1", "--data", "kept", "--attempts", "2")
    ran = penstock(*words, given=lines(event(1, "a", 1)))
    assert ran.returncode == 3, ran.stderr
    assert ran.stderr.count("worker-1 ended by SIGKILL") == 2
    assert "1 stored, 0 dropped (duplicate), 1 dead letter, 0 unfinished" in ran.stderr


def test_a_worker_of_this_machine_that_is_killed_before_it_has_joined_three_times_ends_the_run(
    penstock: Penstock, tmp_path: Path
) -> None:
    # The command that starts the workers loads the file too, and leads no session.
    dies = "import os\nif os.getsid(0) == os.getpid():\n    os.kill(os.getpid(), 9)\n"
    (tmp_path / "deadly.py").write_text(dies + PIPELINE, encoding="utf-8")
    words = ("run", "deadly.py", "--workers", "1", "--data", "kept")
    ran = penstock(*words, given=lines(event(1, "a", 1)))
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count("another one is started") == 2
    assert ran.stderr.count("worker-1 ended by SIGKILL") == 3
    assert "1 unfinished" in ran.stderr


@pytest.mark.parametrize("many", [1, 3000])
@pytest.mark.parametrize(
    ("is_full", "status", "said"),
    [
        (True, 1, "standard output cannot be written: No space left on device"),
        (False, 0, "the reader of standard output went away"),
    ],
)
def test_a_run_with_workers_of_one_machine_ends_when_its_results_cannot_be_written(
    penstock: Penstock, tmp_path: Path, is_full: bool, status: int, said: str, many: int
) -> None:
    (tmp_path / "long.py").write_text(
        "from penstock import adaptive_flat_map, read_jsonl, write_jsonl\n"
        "def work(event):\n"
        "    return {**event, 'text': 'x' * 1000}\n"
        "pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())\n",
        encoding="utf-8",
    )
    if is_full:
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    ran = subprocess.run(
        [*(sys.executable, "-m", "penstock", "run"), *LONG],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        input=lines(*(event(n, "a", n) for n in range(many))),
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(output)
    assert (ran.returncode, ran.stderr.count(said)) == (status, 1), ran.stderr
    assert "worker-1 ended" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_worker_of_this_machine_that_skips_an_event_has_not_ended_badly(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "skips.py").write_text(
        "from penstock import adaptive_flat_map, read_jsonl, write_jsonl\n"
        "def work(event):\n"
        "    return 1 / event['n']\n"
        "work = adaptive_flat_map(work, on_error='skip')\n"
        "pipeline = read_jsonl().pipe(work).to(write_jsonl())\n",
        encoding="utf-8",
    )
    words = ("run", "skips.py", "--workers", "1", "--data", "kept")
    ran = penstock(*words, given=lines(event(1, "a", 0), event(2, "a", 1)))
    assert (ran.returncode, ran.stdout) == (3, "1.0\n"), ran.stderr
    assert "ZeroDivisionError" in ran.stderr
    assert "worker-1 ended" not in ran.stderr


def test_a_worker_of_this_machine_that_ends_by_itself_is_named_whatever_its_status(
    penstock: Penstock, tmp_path: Path
) -> None:
    (tmp_path / "deadly.py").write_text(EXITS.replace("9", "3"), encoding="utf-8")
    words = ("run", "deadly.py", "--workers", "1", "--data", "kept")
    ran = penstock(*words, given=lines(event(1, "a", 1)))
    assert ran.returncode == 3
    assert "worker-1 ended by exit status 3" in ran.stderr


def test_the_page_of_a_run_counts_what_an_earlier_one_has_left_and_not_its_dead_letters(
    penstock: Penstock, tmp_path: Path
) -> None:
    end = "async def double(event):\n    os._exit(1)\n"
    ends = "import os\n" + PIPELINE.replace("async def double(event):\n", end)
    (tmp_path / "deadly.py").write_text(ends, encoding="utf-8")
    data = ("--workers", "1", "--data", "kept", "--name", "jobs")
    ended = penstock("run", "deadly.py", *data, given=lines(event(1, "a", 1)))
    assert ended.returncode == 1
    page = ("--report-page", "run.html")
    given = lines(event(2, "a", 2), event(3, "a", -1))
    refused = penstock("run", "pipe.py", *data, *page, "--attempts", "1", given=given)
    assert "1 left before, 2 stored, 0 dropped (duplicate), 1 dead letter, " in refused.stderr
    assert refused.returncode == 3
    whole = (tmp_path / "run.html").read_text(encoding="utf-8")
    account = re.findall(r"<b>(\d+)</b>([a-z ]+)<", whole)
    assert account == [
        *(("1", "left before"), ("2", "stored"), ("2", "done")),
        *(("1", "dead letters"), ("0", "unfinished")),
    ]
    clean = penstock("run", "pipe.py", *data, *page, given=lines(event(4, "a", 4)))
    assert "1 stored, 0 dropped (duplicate), 0 dead letters, 0 unfinished" in clean.stderr
    assert clean.returncode == 0, clean.stderr
    assert "<b>1</b>done" in (tmp_path / "run.html").read_text(encoding="utf-8")


def test_what_workers_of_one_machine_leave_is_found_by_the_next(
    penstock: Penstock, tmp_path: Path
) -> None:
    words = ("run", "pipe.py", "--workers", "1", "--data", "kept")
    first = penstock(*words, given=lines(event(1, "a", 1)))
    assert first.returncode == 0, first.stderr
    again = penstock(*words, given=lines(event(1, "a", 1), event(2, "a", 2)))
    assert json.loads(again.stdout) == event(2, "a", 4)
    assert "1 stored, 1 dropped (duplicate)" in again.stderr
