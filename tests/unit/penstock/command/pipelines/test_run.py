from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.base.compiled import library

Write = Callable[[str, str], Path]
Penstock = Callable[..., Any]
Process = Callable[..., "subprocess.CompletedProcess[str]"]

KATA = Path(__file__).parents[5] / "examples" / "kata.py"


def _lines(count: int, clients: int = 10, **more: object) -> str:
    return "".join(
        json.dumps({"uuid": f"u{i}", "client_id": 1000 + i % clients, **more}) + "\n"
        for i in range(count)
    )


def _report(err: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(err.splitlines()[-1])
    return report


# The main job.


def test_the_main_job_keeps_order_per_client_and_drops_duplicates(
    process: Process, either_way: list[str]
) -> None:
    rng = random.Random(1)
    events: list[dict[str, Any]] = [
        {"uuid": f"u{i}", "client_id": 1000 + rng.randrange(100), "created": 0.0}
        for i in range(300)
    ]
    events += rng.sample(events, 30)
    text = "".join(json.dumps(event) + "\n" for event in events)
    result = process(either_way, "run", KATA, "--report", "json", input=text)
    assert result.returncode == 0
    expected: dict[int, list[str]] = defaultdict(list)
    for event in events[:300]:
        expected[event["client_id"]].append(event["uuid"])
    done: dict[int, list[str]] = defaultdict(list)
    for line in result.stdout.splitlines():
        event = json.loads(line)
        done[event["client_id"]].append(event["uuid"])
    assert done == expected
    report = _report(result.stderr)
    assert report["outcome"] == "completed"
    assert report["library"] == library()
    assert report["statistics"]["dropped"] == {"duplicate": 30}
    assert report["statistics"]["finished"] == 300


def test_the_latencies_of_the_main_job_are_printed(process: Process, script: list[str]) -> None:
    result = process(script, "run", KATA, input=_lines(3))
    assert result.returncode == 0
    for word in ("waiting (ms)", "service (ms)", "total (ms)", "p999", "3 in, 3 finished"):
        assert word in result.stderr
    # Output for terminals is absent.
    assert "\x1b" not in result.stderr


def test_the_main_job_runs_without_uvloop(process: Process, write_file: Write) -> None:
    path = write_file(
        "job.py",
        "async def work(event):\n"
        "    loop = type(asyncio.get_running_loop()).__module__\n"
        "    return await asyncio.sleep(0, {**event, 'loop': loop.partition('.')[0]})\n\n"
        "pipeline = read_jsonl().pipe(\n"
        "    group_by('client_id'), spread(), adaptive_flat_map(work)\n"
        ").to(write_jsonl())\n",
    )
    code = (
        "import sys; sys.modules['uvloop'] = None; "
        "from penstock.__main__ import main; sys.exit(main())"
    )
    result = process([sys.executable, "-c", code], "run", path, input=_lines(300))
    assert result.returncode == 0, result.stderr
    done = [json.loads(line) for line in result.stdout.splitlines()]
    assert {event["loop"] for event in done} == {"asyncio"}
    for client in range(10):
        uuids = [event["uuid"] for event in done if event["client_id"] == 1000 + client]
        assert uuids == [f"u{i}" for i in range(client, 300, 10)]


# Exit statuses.


def test_an_empty_input_is_finished(penstock: Penstock, pipeline_file: Path) -> None:
    result = penstock("run", pipeline_file, "--input", "/dev/null")
    assert result.status == 0
    assert result.err.startswith(f"{library()}: completed after")


def test_a_handlers_error_is_shown_with_stage_event_and_the_users_frames_only(
    penstock: Penstock, write_file: Write, tmp_path: Path
) -> None:
    path = write_file(
        "job.py",
        "async def work(event):\n    return event['missing']\n\n"
        "pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())\n",
    )
    (tmp_path / "in.jsonl").write_text(_lines(1))
    result = penstock("run", path, "--input", tmp_path / "in.jsonl")
    assert result.status == 1
    assert result.err.startswith("penstock: Traceback")
    assert "KeyError: 'missing'" in result.err
    assert "in stage 2 'adaptive_flat_map', on the event {'uuid': 'u0'" in result.err
    assert f'File "{path}", line 8, in work' in result.err
    assert "workers.py" not in result.err
    assert f"{library()}: stopped by an error" in result.err

    result = penstock("run", path, "--input", tmp_path / "in.jsonl", "--traceback")
    assert result.status == 1
    assert "calling_stage.py" in result.err


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()", "BaseException('x')"])
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_no_exception_of_a_handler_escapes_the_report(
    process: Process, script: list[str], write_file: Write, raised: str, kind: str
) -> None:
    path = write_file(
        "job.py",
        f"{kind} work(event):\n    raise {raised}\n\n"
        "pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())\n",
    )
    result = process(script, "run", path, input=_lines(1))
    assert result.returncode == 1
    assert raised.partition("(")[0] in result.stderr
    assert f"{library()}: stopped by an error" in result.stderr
    assert "never retrieved" not in result.stderr


def test_a_bad_line_is_reported_with_its_number_and_makes_the_status_three(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(1) + "nonsense\n" + _lines(2))
    result = penstock("run", pipeline_file, "--input", tmp_path / "in.jsonl")
    assert result.status == 3
    assert "line 2 " in result.err
    assert "bad lines: 1" in result.err
    assert len(result.out.splitlines()) == 2


def test_a_time_of_creation_that_cannot_be_read_is_counted_in_the_text_and_no_failure(
    penstock: Penstock, write_file: Write, tmp_path: Path
) -> None:
    path = write_file("job.py", "pipeline = read_jsonl(created='at').to(write_jsonl())\n")
    (tmp_path / "in.jsonl").write_text('{"at": "noon"}\n{}\n{"at": "2024-01-01"}\n')
    result = penstock("run", path, "--input", tmp_path / "in.jsonl")
    assert result.status == 0
    assert "\n  events without a readable time of creation: 2" in result.err
    (tmp_path / "in.jsonl").write_text('{"at": 0}\n')
    assert "creation" not in penstock("run", path, "--input", tmp_path / "in.jsonl").err


def test_a_skipped_event_makes_the_status_three(
    penstock: Penstock, write_file: Write, tmp_path: Path
) -> None:
    path = write_file(
        "job.py",
        "def work(event):\n    return event['uuid'] + 1\n\n"
        "pipeline = read_jsonl().pipe(\n"
        "    adaptive_flat_map(work, on_error='skip')\n).to(write_jsonl())\n",
    )
    (tmp_path / "in.jsonl").write_text(_lines(1))
    result = penstock("run", path, "--input", tmp_path / "in.jsonl")
    assert result.status == 3
    assert "stage 2 'adaptive_flat_map': 1 skipped" in result.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-command"],
        ["run"],
        ["run", "job.py", "--limit", "0"],
        ["run", "job.py", "--limit", "3:2"],
        ["run", "job.py", "--limit", "x"],
        ["run", "job.py", "--drain-deadline", "-1"],
        ["run", "job.py", "--report", "xml"],
        ["run", "job.py", "--no-such-option"],
        ["draw", "job.py", "--format", "png"],
    ],
)
def test_a_wrong_command_line_is_explained(penstock: Penstock, words: list[str]) -> None:
    result = penstock(*words)
    assert result.status == 2
    assert result.err.startswith("usage: penstock")


@pytest.mark.parametrize("name", ["none.jsonl", "."])
def test_an_input_that_cannot_be_opened_is_a_usage_error(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path, name: str
) -> None:
    result = penstock("run", pipeline_file, "--input", tmp_path / name)
    assert result.status == 2
    assert result.err.startswith(f"penstock: Cannot read {tmp_path / name}")


def test_an_output_that_cannot_be_opened_is_a_usage_error(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    result = penstock(
        "run", pipeline_file, "--input", "/dev/null", "--output", tmp_path / "no" / "dir"
    )
    assert result.status == 2
    assert "Cannot write" in result.err


# Options.


def test_input_and_output_take_the_place_of_the_standard_streams(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as file:
        file.write(_lines(20))
    target = tmp_path / "out.jsonl"
    result = penstock("run", pipeline_file, "--input", tmp_path / "in.jsonl.gz", "--output", target)
    assert (result.status, result.out) == (0, "")
    assert len(target.read_text().splitlines()) == 20


def test_the_report_names_the_file_that_was_read(
    penstock: Penstock, write_file: Callable[[str, str], Path], tmp_path: Path
) -> None:
    rest = "def fail(event): raise ValueError(event)\npipeline = read_jsonl().pipe("
    rest += "adaptive_flat_map(fail, limit=(1, 1))).to(write_jsonl())"
    path = write_file("job.py", rest)
    (tmp_path / "in.jsonl").write_text(_lines(3))
    result = penstock("run", path, "--input", tmp_path / "in.jsonl")
    assert f"read and not begun, by read_jsonl of {tmp_path / 'in.jsonl'}: " in result.err
    assert "standard input" not in result.err


@pytest.mark.parametrize(
    ("option", "pipeline"),
    [
        ("--input", "read_jsonl('/dev/null').to(write_jsonl())"),
        ("--output", "read_jsonl().to(write_jsonl('/dev/null'))"),
        ("--limit", "read_jsonl().to(write_jsonl())"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    penstock: Penstock, write_file: Write, option: str, pipeline: str
) -> None:
    result = penstock("run", write_file("job.py", f"pipeline = {pipeline}\n"), option, "1")
    assert result.status == 2
    assert f"{option}" in result.err
    assert "leave the option out" in result.err


def test_an_input_that_is_named_in_the_file_is_reported(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file(
        "job.py",
        "from penstock import read_lines\npipeline = read_lines('/dev/null').to(write_jsonl())\n",
    )
    result = penstock("run", path, "--input", "1")
    assert "no read_lines() of standard input" in result.err
    assert "stage 1 'read_lines' has its own path, /dev/null" in result.err


@pytest.mark.parametrize(("limit", "most"), [("1", 1), ("3", 3), ("2:2", 2)])
def test_the_limit_holds_from_the_first_event_on(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path, limit: str, most: int
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(100))
    result = penstock(
        "run", pipeline_file, "--input", tmp_path / "in.jsonl", "--limit", limit,
        "--report", "json",
    )  # fmt: skip
    (stage,) = [
        stage
        for stage in _report(result.err)["statistics"]["stages"]
        if stage["name"] == "adaptive_flat_map"
    ]
    assert stage["peak_in_flight"] == stage["limit"] == most


@pytest.mark.parametrize("good", [True, False])
def test_the_json_report_is_one_line_that_says_everything(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path, good: bool
) -> None:
    (tmp_path / "in.jsonl").write_text(_lines(5) if good else '{"uuid": 1}\n')
    result = penstock("run", pipeline_file, "--input", tmp_path / "in.jsonl", "--report", "json")
    report = json.loads(result.err)
    assert report["exit_status"] == result.status
    assert report["outcome"] == ("completed" if good else "stopped")
    if good:
        assert report["error"] is None
        assert report["statistics"]["finished"] == 5
    else:
        assert report["error"]["type"] == "KeyError"
        assert "group_by" in report["error"]["notes"][0]


def test_lines_are_read_by_a_pipeline_file_from_standard_input(
    process: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    pipeline = tmp_path / "upper.py"
    pipeline.write_text(
        "from reactivex import operators as ops\n"
        "from penstock import for_each\n"
        "from penstock import read_lines\n"
        "pipeline = read_lines().pipe(ops.map(str.upper)).to(for_each(print))\n"
    )
    command = [sys.executable, "-m", "penstock", "run", str(pipeline)]
    assert process(command, input="a\nb").stdout == "A\nB\n"
    log = tmp_path / "some.log"
    log.write_text("from a file\n")
    assert process([*command, "--input", str(log)]).stdout == "FROM A FILE\n"


@pytest.mark.parametrize(
    ("option", "company"),
    [
        *((option, "--on") for option in ("--name", "--partitions", "--room")),
        *((option, "--on") for option in ("--replicas", "--batch", "--lease", "--worker")),
        ("--attempts", "--on; in one process set it in the pipeline"),
    ],
)
def test_what_is_said_of_servers_and_workers_is_refused_where_there_are_none(
    penstock: Penstock, pipeline_file: Path, option: str, company: str
) -> None:
    result = penstock("run", pipeline_file, option, "2")
    assert result.status == 2
    assert f"{option} goes with {company}" in result.err


def test_workers_that_shall_keep_events_are_told_where_they_can_be_kept(
    penstock: Penstock, pipeline_file: Path
) -> None:
    result = penstock("run", pipeline_file, "--workers", "2", "--data", "kept")
    assert result.status == 2
    assert "keep them in a table, with read_table()" in result.err
    assert "on a NATS server, with read_jetstream()" in result.err
    assert "--data" not in penstock("run", "--help").out


@pytest.mark.parametrize("number", ["0", "-1", "2.5", "many", ""])
def test_a_number_of_workers_is_a_number_or_auto(
    penstock: Penstock, pipeline_file: Path, number: str
) -> None:
    result = penstock("run", pipeline_file, f"--workers={number}")
    assert result.status == 2
    assert "number of at least 1" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("servers", ["nats://127.0.0.1:1", "kafka://127.0.0.1:1/events"])
def test_states_of_one_process_are_refused_before_servers_are_looked_for(
    penstock: Penstock, tmp_path: Path, servers: str
) -> None:
    file = tmp_path / "states.py"
    file.write_text(
        "from penstock import Store, collect, read_jsonl, stateful\n"
        "store = Store('a.state')\n"
        "count = stateful(lambda n, e: (n + 1, [e]), 'user', start=0, store=store)\n"
        "pipeline = read_jsonl('a.jsonl', position=store).pipe(count).to(collect([]))\n"
    )
    result = penstock("run", file, "--on", servers)
    assert result.status == 2
    assert "stage 2 'stateful' has a store that one process uses" in result.err
    assert "without --on" in result.err


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (
            "event_time('at'), window(tumbling(60), agg.count(), store=store)",
            "has one state for all events",
        ),
        (
            "event_time('at'), window(tumbling(60), agg.count(), by='user', store=store), "
            "group_by('start'), spread()",
            "Give both the same key",
        ),
        (
            "event_time('at'), join(read_jsonl('b').pipe(event_time('at')), by='user', within=9, "
            "store=store)",
            "stage 3 'read_jsonl', whose events are in none of the partitions",
        ),
        (
            "group_by('n'), spread(), stateful(count, 'user', start=0, store=store)",
            "Give both the same key",
        ),
    ],
)
def test_states_that_cannot_move_with_the_partitions_of_nats_are_refused_by_name(
    penstock: Penstock, tmp_path: Path, stages: str, said: str
) -> None:
    file = tmp_path / "states.py"
    file.write_text(
        "from penstock import Store, agg, collect, event_time, group_by, join, read_jsonl\n"
        "from penstock import spread, stateful, tumbling, window\n"
        "store = Store('nats://127.0.0.1:1/counts')\n"
        "count = lambda n, e: (n + 1, [e])\n"
        f"pipeline = read_jsonl('a.jsonl').pipe({stages}).to(collect([]))\n"
    )
    result = penstock("run", file, "--on", "nats://127.0.0.1:1")
    assert result.status == 2
    assert said in result.err


def test_workers_and_servers_that_are_there_are_two_ways(
    penstock: Penstock, pipeline_file: Path
) -> None:
    result = penstock("run", pipeline_file, "--workers", "2", "--on", "nats://127.0.0.1:1")
    assert result.status == 2
    assert "give one of them" in result.err
