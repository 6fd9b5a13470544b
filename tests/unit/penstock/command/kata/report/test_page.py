from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.report.page import broken, page, picture
from penstock.command.kata.report.table import LATENCIES, columns_of

EVENT = {"client_id": 1000, "created": 0.0}


def run(name: str, latencies: list[float], *, lost: int = 0) -> Measured:
    """A run whose events started after so many seconds; `lost` more of them never did."""
    now = 0.0
    observer = Observer(lambda: now)
    observer.arrived(len(latencies) + lost)
    for sequence, latency in enumerate(sorted(latencies)):
        now = latency
        event: dict[str, object] = {**EVENT, "uuid": str(sequence), "sequence": sequence}
        observer.started(event)  # type: ignore[arg-type]
        observer.finished(event)  # type: ignore[arg-type]
        observer.interval()
    for _ in range(lost):
        observer.lost(event)  # type: ignore[arg-type]
    return observer.measured(name)


SLOW = run("slow", [1.0, 2.0, 3.0], lost=2)
GOOD = run("good", [0.001, 0.002])


def test_every_run_has_its_charts_and_the_promises_that_it_broke() -> None:
    shown = page([SLOW, GOOD], "of some load\nLatency is in ms.")
    figures = re.findall(r"<figure>.*?</figure>", shown, re.S)
    assert [re.findall(r"<h3>(\w+)</h3>", figure) for figure in figures] == [["slow"], ["good"]]
    assert [figure.count("<svg") for figure in figures] == [2, 2]
    assert re.findall(r'<li class="(\w+)">([^<]+)', figures[0]) == [("wrong", "2 lost")]
    assert re.findall(r'<li class="(\w+)">([^<]+)', figures[1]) == [("kept", "keeps every promise")]
    assert broken(GOOD) == []


def test_the_numbers_on_the_page_are_those_of_the_table() -> None:
    shown = page([SLOW], "of some load")
    assert f"<td>{SLOW.latency.max * 1000:.0f}</td>" in shown
    assert '<td class="wrong">2</td>' in shown


def test_the_numbers_are_two_tables_that_have_every_column_of_the_text_between_them() -> None:
    shown = page([SLOW], "of some load")
    tables = re.findall(r"<table><caption>(.*?)</table>", shown, re.S)
    assert [one.partition("<")[0] for one in tables] == ["Events", "Latency, in milliseconds"]
    heads = [re.findall(r'<th scope="col">([^<]*)</th>', one) for one in tables]
    names = [name for name, _ in columns_of([SLOW])]
    assert set(heads[1][1:]) == {name for name in names if name in LATENCIES}
    assert sorted(heads[0] + heads[1][1:]) == sorted(names)
    assert max(map(len, heads)) <= 13


def test_the_charts_of_all_runs_have_the_same_axes() -> None:
    both = page([SLOW, GOOD], "of some load")
    marks = [re.findall(r"<text[^>]+>([^<]+)<", c) for c in re.findall(r"<svg.*?</svg>", both)]
    assert marks[0] == marks[2]
    assert "10 s" in marks[0]
    assert "100 µs" in marks[0]


def test_the_picture_has_a_chart_for_each_run_with_the_others_behind() -> None:
    drawn = picture([SLOW, GOOD, replace(GOOD, variant="third"), replace(GOOD, variant="<4>")])
    root = ElementTree.fromstring(drawn)
    space = {"s": "http://www.w3.org/2000/svg"}
    charts = root.findall("s:svg", space)
    assert len(charts) == 4
    for chart in charts:
        kinds = [path.get("class") for path in chart.findall("s:path", space)]
        assert kinds.count("line ghost") == 3
        assert kinds[-1] in ("line one", "line bad")
    assert [chart.get("y") for chart in charts][-1] == "296"
    said = [text.text for text in root.findall("s:text", space)]
    assert "<4>" in said
    assert "2 lost" in said


def test_a_run_of_which_nothing_was_measured_has_empty_charts() -> None:
    nothing = Observer(lambda: 0.0).measured("interrupted")
    assert "interrupted" in page([nothing], "of some load")
    assert "keeps every promise" not in picture([nothing])


def test_the_picture_of_the_readme_is_of_all_steps() -> None:
    path = Path(__file__).parents[6] / "docs" / "images" / "kata-steps.svg"
    names = re.findall(r'class="name"[^>]*>([^<]+)<', path.read_text(encoding="utf-8"))
    assert names[0] == "sequential"
    assert names[-1] == "penstock"
    assert len(names) == 6
