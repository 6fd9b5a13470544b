from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from operators import adaptive_flat_map
from penstock.draw import most_held
from sinks import for_each
from streams import Fixed, from_iterable, retry, route
from streams.testing import MemorySink

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
    assert "1,024 events" in lines[3]
    # 1,000 in work at most, and 256 results; then the writer's 1,024.
    assert "1,256 events" in lines[5]
    assert lines[-1] == "Holds at most 4,328 events at once."


def test_the_place_where_order_ends_is_marked(penstock: Penstock, pipeline_file: Path) -> None:
    marked = [line for line in penstock("draw", pipeline_file).out.splitlines() if "order" in line]
    assert len(marked) == 1
    assert "adaptive_flat_map" in marked[0]


def test_a_stage_without_a_bound_is_named(penstock: Penstock, write_file: Write) -> None:
    path = write_file(
        "job.py",
        "from streams import HillClimb\n"
        "pipeline = read_jsonl().pipe(\n"
        "    adaptive_flat_map(print, limit=HillClimb(0.2, 0.1))\n"
        ").to(write_jsonl())\n",
    )
    result = penstock("draw", path)
    assert "no bound" in result.out
    assert "stage 2 'adaptive_flat_map' may hold, for which you set no bound" in result.out


def test_mermaid_joins_the_stages_in_order(penstock: Penstock, pipeline_file: Path) -> None:
    result = penstock("draw", pipeline_file, "--format", "mermaid")
    lines = [line.strip() for line in result.out.splitlines()]
    assert result.status == 0
    assert lines[0] == "flowchart TD"
    assert 's3["3 group_by<br>client_id<br>1,024 events"]' in lines
    assert "s3 --> s4" in lines
    assert any(line.startswith("s5 -->|") and line.endswith("s6") for line in lines)


FORK = (
    "from sinks import for_each\n"
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


def test_a_picture_that_cannot_be_written_is_said_so(
    penstock: Penstock, pipeline_file: Path, tmp_path: Path
) -> None:
    result = penstock("draw", pipeline_file, "--output", tmp_path / "no" / "such.txt")
    assert result.status == 2
    assert "Cannot write" in result.err


def test_what_waits_for_a_sink_of_dead_letters_counts_for_the_stage_that_writes_them() -> None:
    def most(policy: Any) -> int:
        work = adaptive_flat_map(abs, Fixed(1), on_error=policy)
        held = most_held(from_iterable([1]).pipe(work).to(for_each(print)).describe())
        assert held is not None
        return held

    letters = 1024
    assert most(route(MemorySink())) == most("skip") + letters
    assert most(retry(2, then=route(MemorySink()))) == most(retry(2)) + letters
