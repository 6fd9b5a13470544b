from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock import (
    Fixed,
    Flowable,
    Sink,
    WorkPool,
    adaptive_flat_map,
    agg,
    batch,
    collect,
    count_over_time,
    distinct_within,
    event_time,
    for_each,
    from_iterable,
    group_by,
    join,
    lookup,
    monitor,
    rate_limit,
    read_csv,
    read_jetstream,
    read_jsonl,
    read_kafka,
    read_lines,
    retry,
    route,
    stateful,
    table,
    tumbling,
    violations,
    window,
    write_csv,
    write_jetstream,
    write_jsonl,
    write_kafka,
    write_table,
)
from penstock.streams.failures.policy import Route
from penstock.streams.testing import MemorySink
from tests.helpers.public_names import with_pages

Write = Callable[[str, str], Path]
Penstock = Callable[..., Any]

SVG = "{http://www.w3.org/2000/svg}"


def test_the_text_shows_every_stage_its_bound_and_their_sum(
    penstock: Penstock, pipeline_file: Path
) -> None:
    result = penstock("draw", pipeline_file)
    lines = result.out.splitlines()
    assert result.status == 0
    assert [line.split()[1] for line in lines[1:7]] == [
        "read_jsonl",
        "distinct_within",
        "group_by",
        "spread",
        "adaptive_flat_map",
        "write_jsonl",
    ]
    assert "4,096 events  1,024 of a key, 100,000 more on disk" in lines[3]
    # 1,000 in work at most, and 256 results; then the writer's 1,024.
    assert "1,256 events" in lines[5]
    assert lines[-1] == "Holds at most 7,400 events in memory and 100,000 on disk at once."


@pytest.mark.parametrize("form", ["text", "mermaid", "svg"])
def test_with_workers_it_shows_which_stages_run_in_them(
    penstock: Penstock, pipeline_file: Path, form: str
) -> None:
    result = penstock("draw", pipeline_file, "--workers", "2", "--format", form)
    assert result.status == 0
    assert result.out.count("in 2 workers") == 3
    assert result.out.count("lines are decoded in the workers, too") == 1
    alone = penstock("draw", pipeline_file, "--format", form)
    assert "worker" not in alone.out
    # What may be held is the same.
    assert "Holds at most 7,400 events in memory and 100,000 on disk at once." in result.out


@pytest.mark.parametrize(
    ("store", "note"),
    [
        ("bank.db", "in the commits of the store"),
        ("./bank.db", "in the commits of the store"),
        ("other.db", "one transaction per batch"),
    ],
)
def test_a_sink_that_writes_in_the_commits_of_a_store_says_so(
    penstock: Penstock, write_file: Write, store: str, note: str
) -> None:
    path = write_file(
        "job.py",
        "from penstock import Store, write_table\n"
        f"source = read_jsonl('in.jsonl', position=Store({store!r}))\n"
        "rows = write_table('sqlite:///bank.db', 'rows', columns=['n'])\n"
        "pipeline = source.to(rows, write_jsonl())\n",
    )
    lines = penstock("draw", path).out.splitlines()
    assert [line.endswith(note) for line in lines if "write_table" in line] == [True]
    assert "commits" not in lines[-2]


def test_a_pipeline_without_a_handler_has_nothing_for_workers(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file("job.py", "pipeline = read_jsonl().to(write_jsonl())\n")
    result = penstock("draw", path, "--workers", "2")
    assert result.status == 2
    assert "runs the handler of adaptive_flat_map or batch" in result.err


def test_the_place_where_order_ends_is_marked(penstock: Penstock, pipeline_file: Path) -> None:
    marked = [line for line in penstock("draw", pipeline_file).out.splitlines() if "order" in line]
    assert len(marked) == 1
    assert "adaptive_flat_map" in marked[0]


def test_a_stage_without_a_bound_is_named(penstock: Penstock, write_file: Write) -> None:
    path = write_file(
        "job.py",
        "from penstock import HillClimb\n"
        "pipeline = read_jsonl().pipe(\n"
        "    adaptive_flat_map(print, limit=HillClimb(0.2, 0.1))\n"
        ").to(write_jsonl())\n",
    )
    result = penstock("draw", path)
    assert "no bound" in result.out
    assert "stage 2 'adaptive_flat_map' may hold, for which you set no bound" in result.out


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("", "keeps empty groups for 60 s"),
        (", max_groups=5", "keeps empty groups for 60 s, at most 5"),
    ],
)
def test_how_long_the_state_of_a_group_is_kept_is_shown(
    penstock: Penstock, write_file: Write, bound: str, expected: str
) -> None:
    text = (
        "from penstock import collect, from_iterable, group_by, ops, spread\n"
        "count = lambda group: group.pipe(ops.scan(lambda n, _: n + 1, 0))\n"
        f"groups = group_by('id', each=count, idle=60{bound}), spread()\n"
        "pipeline = from_iterable([]).pipe(*groups).to(collect([]))\n"
    )
    lines = penstock("draw", write_file("grouped.py", text)).out.splitlines()
    assert lines[2].endswith(f"4,096 events  1,024 of a key, 100,000 more on disk, {expected}")


@pytest.mark.parametrize("form", ["text", "mermaid", "svg"])
def test_what_a_recorder_keeps_is_shown_if_asked_for(
    penstock: Penstock, pipeline_file: Path, form: str
) -> None:
    kept = (
        "Recorded: 900 samples, one for each second of the last 15 minutes, of at most 45 numbers; "
        "counts of 2,000 keys."
    )
    assert kept in penstock("draw", pipeline_file, "--format", form, "--recorded").out
    assert "Recorded" not in penstock("draw", pipeline_file, "--format", form).out


def test_mermaid_joins_the_stages_in_order(penstock: Penstock, pipeline_file: Path) -> None:
    result = penstock("draw", pipeline_file, "--format", "mermaid")
    lines = [line.strip() for line in result.out.splitlines()]
    assert result.status == 0
    assert lines[0] == "flowchart TD"
    assert 's3["3 group_by<br>client_id<br>4,096 events"]' in lines
    assert "s4 --> s5" in lines
    assert any(line.startswith("s5 -->|") and line.endswith("s6") for line in lines)


FORK = (
    "from penstock import for_each\n"
    "pipeline = read_jsonl('a<b>&\"c\"|').to(write_jsonl(), for_each(print))\n"
)


def test_several_sinks_hang_side_by_side_in_mermaid(penstock: Penstock, write_file: Write) -> None:
    out = penstock("draw", write_file("job.py", FORK), "--format", "mermaid").out
    edges = [line.split() for line in out.splitlines() if "-->" in line]
    assert [(edge[0], edge[-1]) for edge in edges] == [("s1", "s2"), ("s1", "s3")]
    assert "a#lt;b#gt;&#quot;c#quot;#124;" in out


def test_the_picture_is_an_svg_document_with_a_box_per_stage(
    penstock: Penstock, write_file: Write, tmp_path: Path
) -> None:
    target = tmp_path / "job.svg"
    result = penstock("draw", write_file("job.py", FORK), "--format", "svg", "--output", target)
    assert (result.status, result.out) == (0, "")
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.get("class") in ("stage", "ends")]
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == ["read_jsonl", "write_jsonl", "for_each"]
    assert len(boxes) == 3
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in boxes:
        assert 0 <= float(box.get("x", -1)) <= width - float(box.get("width", 0))
        assert 0 <= float(box.get("y", -1)) <= height - float(box.get("height", 0))


SPREAD = (
    "from penstock import from_iterable, spread\n"
    "pipeline = from_iterable([[1]]).pipe(spread({})).to(write_jsonl())\n"
)


def test_the_parts_of_the_job_spreader_are_shown_where_its_feeders_are_given(
    penstock: Penstock, write_file: Write
) -> None:
    lines = penstock("draw", write_file("job.py", SPREAD.format(3))).out.splitlines()
    assert [line[3:17].rstrip() for line in lines[2:6]] == [
        "spread",
        "  dispatcher",
        "  3 feeders",
        "  spreader",
    ]
    assert "takes one event of each feeder in rotation" in lines[5]
    without = penstock("draw", write_file("job.py", SPREAD.format(""))).out
    assert "dispatcher" not in without


def test_feeders_over_groups_are_drawn_as_well(penstock: Penstock, write_file: Write) -> None:
    path = write_file(
        "job.py",
        "from penstock import group_by, spread\n"
        "pipeline = read_jsonl().pipe(group_by('id'), spread(1)).to(write_jsonl())\n",
    )
    out = penstock("draw", path).out
    assert "dispatcher" in out
    assert "  1 feeder " in out


@pytest.mark.parametrize(
    ("feeders", "drawn"),
    [
        (1, ["feeder 1"]),
        (4, ["feeder 1", "feeder 2", "feeder 3", "feeder 4"]),
        (1200, ["feeder 1", "feeder 2", "…", "feeder 1,200"]),
    ],
)
def test_each_feeder_is_between_the_dispatcher_and_the_spreader(
    penstock: Penstock, write_file: Write, tmp_path: Path, feeders: int, drawn: list[str]
) -> None:
    path = write_file("job.py", SPREAD.format(feeders))
    lines = [
        line.strip() for line in penstock("draw", path, "--format", "mermaid").out.splitlines()
    ]
    box = lines[lines.index("end") - 2 * len(drawn) - 3 : lines.index("end")]
    assert box[0].startswith('subgraph s2["2 spread<br>')
    assert box[1 : -len(drawn)] == [
        's2d["dispatcher"]',
        *(f's2f{at}["{name}"]' for at, name in enumerate(drawn, 1)),
        's2s["spreader"]',
    ]
    assert box[-len(drawn) :] == [f"s2d --> s2f{at} --> s2s" for at in range(1, len(drawn) + 1)]
    assert "s1 --> s2" in lines

    target = tmp_path / "job.svg"
    penstock("draw", path, "--format", "svg", "--output", target)
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    named = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "part-name"]
    assert named == ["dispatcher", *drawn, "spreader"]
    threads = [path for path in root.iter(f"{SVG}path") if path.get("class") == "thread"]
    assert len(threads) == 2 * len(drawn)
    stages = [box for box in root.iter(f"{SVG}rect") if box.get("class") in ("stage", "ends")]
    tops = [float(box.get("y", 0)) for box in stages]
    ends = [top + float(box.get("height", 0)) for top, box in zip(tops, stages, strict=True)]
    # The parts lie in the box of their stage, and the boxes below each other.
    for part in root.iter(f"{SVG}rect"):
        if part.get("class") == "part":
            left, top = float(part.get("x", 0)), float(part.get("y", 0))
            assert tops[1] < top < top + float(part.get("height", 0)) < ends[1]
            assert left > float(stages[1].get("x", 0))
            assert left + float(part.get("width", 0)) < float(stages[1].get("x", 0)) + 320
    assert ends[0] < tops[1]
    assert ends[1] < tops[2]


def test_a_picture_that_cannot_be_written_is_said_so(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    result = penstock("draw", pipeline_file, "--output", tmp_path / "no" / "such.txt")
    assert result.status == 2
    assert "Cannot write" in result.err


def test_what_waits_for_a_sink_of_dead_letters_counts_for_the_stage_that_writes_them() -> None:
    def most(policy: Any) -> int:
        work = adaptive_flat_map(abs, Fixed(1), on_error=policy)
        stages = from_iterable([1]).pipe(work).to(for_each(print)).describe()
        return sum(stage.holds or 0 for stage in stages)

    letters = 1024
    assert most(route(MemorySink())) == most("skip") + letters
    assert most(retry(2, then=route(MemorySink()))) == most(retry(2)) + letters


SERVERS = "nats://127.0.0.1:4222"

# What sends letters, by its name and the option that says so.
LETTERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("adaptive_flat_map", "on_error"): lambda p: adaptive_flat_map(abs, on_error=p),
    ("batch", "on_error"): lambda p: batch(list, on_error=p),
    ("count_over_time", "late"): lambda p: count_over_time(late=p),
    ("count_over_time", "on_error"): lambda p: count_over_time(on_error=p),
    ("distinct_within", "on_error"): lambda p: distinct_within(1, "id", on_error=p),
    ("event_time", "on_error"): lambda p: event_time("at", on_error=p),
    ("group_by", "on_error"): lambda p: group_by("id", on_error=p),
    ("join", "late"): lambda p: join(from_iterable([1]), "id", 1, time="at", late=p),
    ("join", "on_error"): lambda p: join(from_iterable([1]), "id", 1, time="at", on_error=p),
    ("lookup", "late"): lambda p: lookup(_table(), "id", as_of="at", late=p),
    ("lookup", "on_error"): lambda p: lookup(_table(), "id", as_of="at", on_error=p),
    ("monitor", "on_error"): lambda p: monitor("G p", on_error=p, p=bool),
    ("monitor", "on_violation"): lambda p: monitor(
        "G p", on_violation=p.sink if isinstance(p, Route) else "report", p=bool
    ),
    ("rate_limit", "on_error"): lambda p: rate_limit(1, cost="n", on_error=p),
    ("stateful", "on_error"): lambda p: stateful(lambda n, _: (n, ()), "id", start=0, on_error=p),
    ("violations", "on_error"): lambda p: violations("G p", on_error=p, p=bool),
    ("window", "late"): lambda p: _timed(window(tumbling(10), agg.count(), late=p)),
    ("window", "on_error"): lambda p: _timed(window(tumbling(10), agg.count(), on_error=p)),
    ("for_each", "on_error"): lambda p: for_each(print, on_error=p),
    ("write_jetstream", "on_error"): lambda p: write_jetstream("s", SERVERS, on_error=p),
    ("write_csv", "on_error"): lambda p: write_csv("a.csv", on_error=p),
    ("write_jsonl", "on_error"): lambda p: write_jsonl("a.jsonl", on_error=p),
    ("write_kafka", "on_error"): lambda p: write_kafka("t", on_error=p),
    ("read_kafka", "on_bad_record"): lambda p: read_kafka("t", "g", on_bad_record=_bad(p)),
    ("write_table", "on_error"): lambda p: write_table("sqlite:///a.db", on_error=p),
    ("read_jetstream", "on_bad_message"): lambda p: read_jetstream("s", on_bad_message=_bad(p)),
    ("read_csv", "on_bad_line"): lambda p: read_csv(on_bad_line=_bad(p)),
    ("read_jsonl", "on_bad_line"): lambda p: read_jsonl(on_bad_line=_bad(p)),
    ("read_lines", "on_bad_line"): lambda p: read_lines(on_bad_line=_bad(p)),
    ("WorkPool.offer", "on_error"): lambda p: WorkPool().offer([1], on_error=p),
}
OPTIONS = {option for _, option in LETTERS}


def _table() -> Any:
    return table(from_iterable([1]), "id", time="at")


def _timed(operator: Any) -> Any:
    return lambda source: source.pipe(event_time("at"), operator)


def _bad(policy: Any) -> Any:
    return policy if isinstance(policy, Route) else "report"


def _letters_of(made: Any) -> int | None:
    if isinstance(made, Sink):
        return made.info.letters
    stream: Any = made if isinstance(made, Flowable) else made(from_iterable([1]))
    return stream.info.letters


@pytest.mark.parametrize("which", LETTERS, ids=" ".join)
def test_letters_count_wherever_they_can_be_sent(which: tuple[str, str]) -> None:
    make = LETTERS[which]
    assert _letters_of(make("skip")) == 0
    assert _letters_of(make(route(MemorySink()))) == 1024
    assert _letters_of(make(route(write_jsonl("dead.jsonl")))) == 2048
    # The sink declares no bound, and so does each stage that writes to it.
    assert _letters_of(make(route(collect([])))) is None


def test_nothing_else_can_send_letters() -> None:
    made = with_pages("operators", "sinks", "sources")
    made["WorkPool.offer"] = WorkPool.offer
    found = {
        (name, option)
        for name, function in made.items()
        if not isinstance(function, type)
        for option in inspect.signature(function).parameters
        if option in OPTIONS
    }
    assert found == set(LETTERS)


def test_a_pool_on_servers_has_dead_letters_of_its_own() -> None:
    def letters(**options: Any) -> int | None:
        return WorkPool(SERVERS).offer([1], **options).info.letters

    assert letters() == 1024 + 64
    assert letters(on_error="skip") == 0
    assert WorkPool().offer([1]).info.letters == 0


def test_letters_count_also_where_the_stage_itself_has_no_bound(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file(
        "job.py",
        "from penstock import for_each\n"
        "from penstock import WorkPool\n"
        "from penstock import route\n"
        "from penstock.streams.testing import MemorySink\n"
        "jobs = WorkPool().offer([1], on_error=route(MemorySink()))\n"
        "pipeline = jobs.to(for_each(print))\n",
    )
    last = penstock("draw", path).out.splitlines()[-1]
    assert last.startswith("Holds 1,280 events, and what stage 2 'offer' may hold")


LIMITED = (
    "from penstock import Fixed\n"
    "work = adaptive_flat_map(print, limit=Fixed(8), on_error=retry(2, then='skip'))\n"
    "pipeline = read_jsonl().pipe(work).to(write_jsonl())\n"
)


@pytest.mark.parametrize("form", ["text", "mermaid", "svg"])
def test_a_picture_is_that_of_a_run_with_the_same_limit(
    form: str, penstock: Penstock, write_file: Write
) -> None:
    path = write_file("job.py", "from penstock import retry\n" + LIMITED)
    # 256 results, and twice the ceiling, for half of it may wait to be tried again.
    assert "272 events" in penstock("draw", path, "--format", form).out
    drawn = penstock("draw", path, "--format", form, "--limit", "2:100").out
    assert "456 events" in drawn
    assert "Holds at most 1,480 events at once." in drawn
    assert "258 events" in penstock("draw", path, "--format", form, "--limit", "1").out


def test_a_limit_says_how_many_are_at_work_at_once(penstock: Penstock, write_file: Write) -> None:
    path = write_file(
        "job.py",
        "async def work(value): ...\n"
        "pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())\n",
    )
    assert "2 to 100 at once, 256 results" in penstock("draw", path, "--limit", "2:100").out


def test_nothing_to_limit_is_said_so(penstock: Penstock, write_file: Write) -> None:
    result = penstock("draw", write_file("job.py", FORK), "--limit", "3")
    assert result.status == 2
    assert "--limit: this pipeline has no adaptive_flat_map() to limit" in result.err


def test_the_json_is_the_definition_with_the_bounds_of_the_limit(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file(
        "limited.py",
        "from penstock import from_iterable\n"
        "async def handler(value): ...\n"
        "pipeline = from_iterable([1]).pipe(adaptive_flat_map(handler)).to(write_jsonl())\n",
    )
    found = json.loads(penstock("draw", path, "--format", "json", "--limit", "5").out)
    assert found["operators"] == [{"use": "adaptive_flat_map", "handler": "limited:handler"}]
    assert [stage["holds"] for stage in found["stages"]] == [0, 261, 1024]
