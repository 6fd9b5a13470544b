from __future__ import annotations

import asyncio
import html
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    Fixed,
    Pipeline,
    adaptive_flat_map,
    agg,
    collect,
    distinct_within,
    event_time,
    for_each,
    from_iterable,
    group_by,
    latency_histogram,
    ops,
    read_jsonl,
    spread,
    tumbling,
    window,
)
from penstock.streams.base.compiled import form
from penstock.streams.base.errors import BuildError
from penstock.streams.running.report import Report
from penstock.streams.telemetry.report.writing import write_page
from penstock.streams.testing import VirtualTimeLoop
from penstock.streams.testing.plugin import Run

SCRIPT = "<script>alert('x')</script>&amp;\ud800\0"


async def work(value: Any) -> Any:
    await asyncio.sleep(0.1)
    if value["n"] % 7 == 6:
        raise ValueError(f"{SCRIPT} {value['k']}")
    return value


def pipeline(events: list[dict[str, Any]], **options: Any) -> Pipeline:
    return (
        from_iterable(events)
        .pipe(
            distinct_within(60, by="id"),
            group_by("k"),
            spread(),
            adaptive_flat_map(work, Fixed(3), on_error="skip", **options),
        )
        .to(for_each(bool), for_each(bool))
    )


def events(count: int, keys: int = 3) -> list[dict[str, Any]]:
    return [
        {"n": n, "id": n // 2 if n % 5 == 1 else -n, "k": f"key{n % keys}"} for n in range(count)
    ]


def page_of(
    run: Run, pipeline: Pipeline, path: Path, *, show_values: bool = False, title: str | None = None
) -> tuple[Report, str]:
    """The report, and the page that was written."""

    async def story() -> Report:
        running = pipeline.start()
        running.report_page(path, title=title, show_values=show_values)
        async with running:
            pass
        return running.report()

    return run(story()), path.read_text(encoding="utf-8")


def account(page: str) -> list[tuple[str, int]]:
    found = re.findall(r"<b>([\d,]+)</b>([^<]+)</div>", page)
    return [(html.unescape(name), int(count.replace(",", ""))) for count, name in found]


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 80), keys=st.integers(1, 5))
def test_the_totals_on_the_page_are_those_of_the_report(
    tmp_path_factory: pytest.TempPathFactory, count: int, keys: int
) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        path = tmp_path_factory.mktemp("page") / "page.html"
        report, page = page_of(runner.run, pipeline(events(count, keys)), path)
    numbers = report.statistics
    (_, taken), *parts = account(page)
    assert taken == numbers["in"] == count
    assert taken == sum(part for _, part in parts)
    shown = dict(parts)
    assert shown["finished"] == numbers["finished"]
    assert shown["failed"] == numbers["failed"] == sum(numbers["errors"].values())
    assert shown["returned"] == numbers["returned"]
    assert {f"dropped ({cause})": n for cause, n in numbers["dropped"].items()}.items() <= (
        shown.items()
    )
    sent = [f"{stage['sent']:,}" for stage in numbers["stages"] if "sent" in stage]
    drawn = re.findall(r'<text class="flow"[^>]*>([\d,]+)</text>', page)
    # group_by, which has no arrow of its own, and spread are one stage.
    assert drawn == [*sent[:2], sent[2], *sent[2:]]


def test_the_page_says_whether_the_library_is_compiled(run: Run, tmp_path: Path) -> None:
    _, page = page_of(run, pipeline(events(3)), tmp_path / "page.html")
    rows = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    (row,) = [row for row in rows if re.search(r">penstock</t[dh]>", row)]
    assert f" ({form()})<" in row


def test_each_arrow_of_the_picture_has_its_total_those_of_other_streams_too(
    run: Run, tmp_path: Path
) -> None:
    shared = from_iterable(events(1234)).pipe(ops.share())
    other = from_iterable(events(5)).pipe(ops.filter(lambda event: event["n"] > 1))
    stream = shared.pipe(ops.filter(lambda event: event["n"] > 0), ops.merge(shared, other))
    report, page = page_of(run, stream.to(for_each(bool), collect([])), tmp_path / "page.html")
    sent = {stage["stage"]: stage.get("sent") for stage in report.statistics["stages"]}
    assert sent == {1: 1234, 2: 2468, 3: 1233, 4: 5, 5: 3, 6: 2470, 7: None, 8: None}
    drawn = re.findall(r'<text class="flow"[^>]*>([\d,]+)</text>', page)
    between = ["1,234", "1,234", "1,234", "1,233", "5", "3"]
    assert sorted(drawn) == sorted([*between, "2,470"])


def test_what_nothing_has_read_has_sent_nothing(run: Run, tmp_path: Path) -> None:
    other = from_iterable(events(5)).pipe(ops.filter(bool))
    stream = from_iterable(events(7)).pipe(ops.catch(other)).to(for_each(bool))
    _, page = page_of(run, stream, tmp_path / "page.html")
    drawn = re.findall(r'<text class="flow"[^>]*>([\d,]+)</text>', page)
    assert sorted(drawn) == ["0", "0", "7", "7"]


def test_a_limit_in_another_stream_that_is_read_has_the_number_of_its_stage(
    run: Run, tmp_path: Path
) -> None:
    other = from_iterable(events(3)).pipe(
        ops.map(lambda event: event),
        ops.filter(lambda event: "n" in event),
        adaptive_flat_map(work, Fixed(3)),
    )
    merged = from_iterable(events(2)).pipe(ops.merge(other)).to(for_each(bool))
    _, page = page_of(run, merged, tmp_path / "page.html")
    assert "Limit of stage 5 &#x27;adaptive_flat_map&#x27;" in page
    assert page.count("Limit of") == 1


def test_the_latencies_on_the_page_are_those_of_the_report(run: Run, tmp_path: Path) -> None:
    stream = from_iterable(events(20)).pipe(adaptive_flat_map(work, Fixed(2), on_error="skip"))
    measured = stream.to(latency_histogram(None, report=None))
    report, page = page_of(run, measured, tmp_path / "page.html")
    for name, summary in report.statistics["latency"].items():
        row = (
            f"<tr><td>{name}</td><td>{summary['count']:,}</td><td>{summary['min'] * 1000:,.3f}</td>"
        )
        assert row in page
        assert (
            f"<td>{summary['p999'] * 1000:,.3f}</td><td>{summary['max'] * 1000:,.3f}</td>" in page
        )
    assert page.count('class="line one"') >= 1


def test_values_of_events_are_on_the_page_only_if_they_are_asked_for(
    run: Run, tmp_path: Path
) -> None:
    _, page = page_of(run, pipeline(events(40)), tmp_path / "page.html")
    assert "key1" not in page
    assert "alert" not in page
    assert "ValueError" in page
    assert "in stage 5 &#x27;adaptive_flat_map&#x27;" in page
    _, page = page_of(run, pipeline(events(40)), tmp_path / "page.html", show_values=True)
    assert "key1" in page
    assert "alert" in page


def test_what_looks_like_markup_in_values_names_and_titles_is_text(
    run: Run, tmp_path: Path
) -> None:
    found = [{"n": 6, "id": 1, "k": f"{SCRIPT}</td>"}]
    working = pipeline(found)
    _, page = page_of(run, working, tmp_path / "p.html", show_values=True, title=f"{SCRIPT}<h1>")
    assert "<script" not in page
    assert page.count("<h1>") == 1
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;amp;" in page
    assert page.count("</td>") == page.count("<td")


def test_nothing_is_loaded_from_elsewhere_and_no_script_may_run(run: Run, tmp_path: Path) -> None:
    _, page = page_of(run, pipeline(events(10)), tmp_path / "page.html")
    assert not re.findall(r"""(?:src|href)=|url\(|@import""", page)
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_late_events_are_said_below_the_account(run: Run, tmp_path: Path) -> None:
    stages = event_time(lambda at: at), window(tumbling(10), agg.count())
    source = from_iterable([25, 3]).pipe(*stages).to(for_each(bool))
    _, page = page_of(run, source, tmp_path / "report.html")
    above, _, below = html.unescape(page).partition("<h2>Pipeline</h2>")
    assert "Late events: 1, in stage 3 'window': a greater lateness= waits" in above
    assert below


def test_bad_lines_are_named_by_their_place_and_shown_if_asked_for(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"n": 1}\nsecret\n{"n": 2}\n' + "secret\n" * 30, encoding="utf-8")
    reading = read_jsonl(path).to(for_each(bool))
    report, page = page_of(run, reading, tmp_path / "page.html")
    assert report.statistics["bad_lines"] == 31
    assert f"{path}, line 2; {path}, line 4" in html.unescape(page)
    assert "secret" not in page
    assert "and 11 more" in page
    _, page = page_of(run, reading, tmp_path / "page.html", show_values=True)
    assert "secret" in page


@pytest.mark.parametrize("how", ["completed", "stopped", "cancelled", "drained", "raised"])
def test_the_page_is_written_however_the_run_ends(run: Run, tmp_path: Path, how: str) -> None:
    path = tmp_path / "page.html"
    stopping = (
        from_iterable(events(30))
        .pipe(adaptive_flat_map(work, Fixed(1), on_error="stop" if how == "stopped" else "skip"))
        .to(for_each(bool))
    )

    async def story() -> Report:
        running = stopping.start(drain_deadline=0)
        running.report_page(path)
        try:
            async with running:
                await asyncio.sleep(0.45)
                if how == "cancelled":
                    running.cancel()
                elif how == "drained":
                    running.begin_drain(1.0, by_signal=True)
                elif how == "raised":
                    raise KeyError("of the program")
                await running.wait()
        except (ValueError, KeyError):
            pass
        return running.report()

    report = run(story())
    expected = "cancelled" if how == "raised" else how
    assert report.outcome == expected
    page = path.read_text(encoding="utf-8")
    assert f": {expected}</title>" in page
    assert sum(count for name, count in account(page) if name != "in") == report.statistics["in"]
    assert os.listdir(tmp_path) == ["page.html"]


def test_of_a_limit_every_change_is_on_the_page_with_its_reason(run: Run, tmp_path: Path) -> None:
    async def story() -> str:
        running = pipeline(events(40, keys=40)).start()
        running.report_page(tmp_path / "page.html")
        async with running:
            await asyncio.sleep(0.25)
            running.retune(Fixed(5))
            await asyncio.sleep(0.3)
            running.retune(Fixed(2))
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    page = run(story())
    assert "Limit of stage 5 &#x27;adaptive_flat_map&#x27;" in page
    row = '<td class="text">retuned</td><td>2</td><td>0.55 s</td><td>5 to 2</td>'
    assert row in page
    assert "At the end 2: retuned." in page


def test_a_page_that_cannot_be_written_is_known_before_anything_runs(
    run: Run, tmp_path: Path
) -> None:
    async def story(path: Path) -> None:
        running = pipeline([]).start()
        try:
            running.report_page(path)
        finally:
            async with running:
                pass

    with pytest.raises(BuildError, match="it is a folder"):
        run(story(tmp_path))
    with pytest.raises(BuildError, match="there is no folder"):
        run(story(tmp_path / "nowhere" / "page.html"))


def test_a_page_that_cannot_be_written_in_the_end_is_a_warning(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    async def story() -> Report:
        running = pipeline(events(5)).start()
        running.report_page(folder / "page.html")
        async with running:
            folder.rmdir()
        return running.report()

    assert run(story()).outcome == "completed"
    assert "the report page was not written: FileNotFoundError" in caplog.text


def test_a_page_replaces_the_one_before_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    path.write_text("before", encoding="utf-8")

    def refused(old: str, new: str) -> None:
        assert Path(old).read_text(encoding="utf-8") == "after"
        assert path.read_text(encoding="utf-8") == "before"
        raise PermissionError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refused)
        with pytest.raises(PermissionError):
            write_page("after", str(path))
    assert os.listdir(tmp_path) == ["page.html"]
    assert path.read_text(encoding="utf-8") == "before"
    write_page("after", str(path))
    assert path.read_text(encoding="utf-8") == "after"


def test_a_page_is_asked_for_where_a_pipeline_is_run(run: Run, tmp_path: Path) -> None:
    run(pipeline(events(3)).run(report_page=tmp_path / "page.html"))
    assert dict(account((tmp_path / "page.html").read_text(encoding="utf-8")))["in"] == 3
