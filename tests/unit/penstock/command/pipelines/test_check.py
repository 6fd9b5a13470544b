from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[[str, str], Path]
Penstock = Callable[..., Any]


def test_a_good_pipeline_is_shown_with_its_stages(penstock: Penstock, pipeline_file: Path) -> None:
    result = penstock("check", pipeline_file)
    assert result.status == 0
    assert result.out == (
        f"{pipeline_file}: OK, 6 stages: read_jsonl > distinct_within > group_by > spread > "
        "adaptive_flat_map > write_jsonl\n"
    )


COUNT = "count_over_time(begin='a', end='b')"
MADE = "ops.flat_map(lambda _: read_jsonl('a.jsonl', position='a.pos'))"


@pytest.mark.parametrize(
    ("stages", "fails_at"),
    [
        (f"{MADE}, {COUNT}", "stage 4 'count_over_time'"),
        (f"ops.merge(read_jsonl('b.jsonl').pipe({MADE})), {COUNT}", "stage 6 'count_over_time'"),
        (
            f"{MADE}, group_by('a', each=lambda group: group.pipe({COUNT}), idle=1), spread()",
            "'count_over_time' in stage 3 'group_by'",
        ),
        (f"ops.zip_latest(read_jsonl('b.jsonl').pipe({MADE}))", "stage 4 'zip_latest'"),
        (f"{COUNT}, {MADE}", None),
        ("ops.map(str)", None),
    ],
)
def test_what_only_the_run_can_refuse_is_said(
    penstock: Penstock, write_file: Write, stages: str, fails_at: str | None
) -> None:
    path = write_file(
        "job.py",
        "from penstock import count_over_time, ops\n"
        f"pipeline = read_jsonl().pipe({stages}).to(write_jsonl())\n",
    )
    result = penstock("check", path)
    assert result.status == 0
    assert "OK" in result.out
    _, *rest = result.out.splitlines()
    if fails_at is None:
        assert rest == []
    else:
        (note,) = rest
        assert "not checked: stage " in note
        assert "'flat_map' may read streams that are made while it runs" in note
        assert note.endswith(f"the run fails at {fails_at}")


@pytest.mark.parametrize(
    ("stages", "advice"),
    [
        ("group_by('client_id'), adaptive_flat_map(work)", "insert spread()"),
        ("group_by('client_id')", "insert spread()"),
        ("group_by('a'), group_by('b')", "put spread() between them"),
        ("adaptive_flat_map(work, timeout=1)", "Make it async"),
        ("adaptive_flat_map(work, limit=0)", "must be at least 1"),
        ("distinct_within(-1, by='uuid')", "distinct_within"),
        ("spread(), adaptive_flat_map(work)", "put group_by(...) before it"),
    ],
)
def test_an_impossible_pipeline_is_explained_at_its_line(
    penstock: Penstock, write_file: Write, stages: str, advice: str
) -> None:
    path = write_file(
        "job.py",
        "def work(event):\n    return event\n\n"
        f"pipeline = read_jsonl().pipe({stages}).to(write_jsonl())\n",
    )
    result = penstock("check", path)
    assert result.status == 2
    assert f"{path}:10: this pipeline cannot be built: " in result.err
    assert advice in result.err
    assert "Traceback" not in result.err


def test_a_formula_that_cannot_be_watched_is_explained_at_its_line(
    penstock: Penstock, write_file: Write
) -> None:
    lines = (
        "from penstock import monitor\n"
        "watch = monitor('G(paid -> F sendt)', paid={'type': 1}, sent={'type': 2})\n"
        "pipeline = read_jsonl().pipe(watch).to(write_jsonl())\n"
    )
    path = write_file("job.py", lines)
    result = penstock("check", path)
    assert result.status == 2
    assert f"{path}:8: this pipeline cannot be built: " in result.err
    assert "Did you mean 'sent'?" in result.err


def test_a_stream_cannot_end_in_a_plain_function(penstock: Penstock, write_file: Write) -> None:
    result = penstock("check", write_file("job.py", "pipeline = read_jsonl().to(print)\n"))
    assert result.status == 2
    assert "wrap a function: for_each(function)" in result.err


def test_a_sink_must_be_called(penstock: Penstock, write_file: Write) -> None:
    result = penstock("check", write_file("job.py", "pipeline = read_jsonl().to(write_jsonl)\n"))
    assert result.status == 2
    assert "write_jsonl makes one: write write_jsonl(...)" in result.err


def test_dead_letters_at_the_end_are_refused_with_where_they_belong(
    penstock: Penstock, write_file: Write
) -> None:
    lines = (
        "from penstock import dead_letters\npipeline = read_jsonl().to(dead_letters('lost.jsonl'))"
    )
    result = penstock("check", write_file("job.py", lines))
    assert result.status == 2
    assert "as on_error=route(dead_letters(path))" in result.err


SOURCES = {
    "read_table": "from penstock import read_table\nsource = read_table('sqlite:///orders.db')\n",
    "read_jetstream": "from penstock import read_jetstream\nsource = read_jetstream('orders')\n",
    "with a position": "from penstock import read_jsonl\nsource = read_jsonl(position='a.pos')\n",
    "read_jsonl": "from penstock import read_jsonl\nsource = read_jsonl()\n",
}


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", ["read_table", "read_jetstream", "with a position"])
def test_a_stage_that_acknowledges_what_is_in_no_sink_yet_is_explained_at_its_line(
    penstock: Penstock, write_file: Write, name: str, command: str
) -> None:
    lines = "from penstock import count_over_time\n" + SOURCES[name] + (
        "pipeline = source.pipe(count_over_time()).to(write_jsonl())\n"
    )  # fmt: skip
    path = write_file("job.py", lines)
    result = penstock(command, path)
    assert result.status == 2
    assert f"{path}:10: this pipeline cannot be built: stage 3 'count_over_time' ack" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("name", "stages"), [("read_jsonl", "count_over_time()"), ("read_table", "monitor('G true')")]
)
def test_what_is_read_again_may_be_counted_and_what_is_acknowledged_may_be_watched(
    penstock: Penstock, write_file: Write, name: str, stages: str
) -> None:
    lines = "from penstock import count_over_time, monitor\n" + SOURCES[name] + (
        f"pipeline = source.pipe({stages}).to(write_jsonl())\n"
    )  # fmt: skip
    assert penstock("check", write_file("job.py", lines)).status == 0


def test_outputs_that_would_write_over_each_other_are_refused(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file(
        "twice.py",
        "from penstock import write_jsonl\n"
        "from penstock import read_jsonl\n"
        'pipeline = read_jsonl().to(write_jsonl("a.jsonl"), write_jsonl("a.jsonl"))\n',
    )
    result = penstock("check", path)
    assert result.status == 2
    assert "stage 2 'write_jsonl' and stage 3 'write_jsonl' would write over each" in result.err


def test_the_stages_of_other_streams_are_counted_and_named_where_they_are_read(
    penstock: Penstock, write_file: Write
) -> None:
    path = write_file(
        "branches.py",
        "from penstock import from_iterable, ops, write_jsonl\n"
        "shared = from_iterable([{}]).pipe(ops.share())\n"
        "other = from_iterable([{}]).pipe(ops.map(dict), ops.zip(shared))\n"
        "pipeline = shared.pipe(ops.merge(other, shared)).to(write_jsonl())\n",
    )
    result = penstock("check", path)
    assert result.status == 0
    names = "from_iterable > share > merge(from_iterable > map > zip(from_iterable > share), "
    assert f"OK, 7 stages: {names}from_iterable > share) > write_jsonl\n" in result.out


STATEFUL = "stateful(lambda n, _: (n, ()), 'a', start=0, store=store)"


@pytest.mark.parametrize(
    ("source", "stages", "told"),
    [
        ("read_jsonl()", STATEFUL, ["stage 1 'read_jsonl'"]),
        ("read_jsonl('a.jsonl')", STATEFUL, ["stage 1 'read_jsonl'"]),
        ("from_iterable([])", f"ops.map(str), {STATEFUL}", ["stage 1 'from_iterable'"]),
        ("inbox(9)", f"{STATEFUL}, {STATEFUL}", ["stage 1 'inbox'"]),
        (
            "inbox(9)",
            f"ops.merge(read_lines('b.txt')), {STATEFUL}",
            ["stage 1 'inbox'", "stage 2 'read_lines'"],
        ),
        ("inbox(9)", f"ops.merge(inbox(9).pipe({STATEFUL}))", ["stage 2 'inbox'"]),
        ("read_jsonl('a.jsonl', position=store)", STATEFUL, []),
        ("read_jsonl()", STATEFUL.replace(", store=store", ""), []),
    ],
)
def test_a_source_that_does_not_know_what_its_states_are_made_of_is_named(
    penstock: Penstock, write_file: Write, source: str, stages: str, told: list[str]
) -> None:
    path = write_file(
        "job.py",
        "from penstock import Store, from_iterable, inbox, ops, read_lines, stateful\n"
        "store = Store('a.state')\n"
        f"pipeline = {source}.pipe({stages}).to(write_jsonl())\n",
    )
    checked = penstock("check", path)
    assert checked.status == 0
    _, *notes = checked.out.splitlines()
    assert [note.partition(": note: ")[2].partition(" does not")[0] for note in notes] == told
    assert all("which of its events have changed the states of stage " in note for note in notes)
    drawn = penstock("draw", path)
    noted = [
        line
        for line in drawn.out.splitlines()
        if "does not record in the store what is done" in line
    ]
    assert [f"stage {line.split()[0]} {line.split()[1]!r}" for line in noted] == told
