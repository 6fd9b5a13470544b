"""`penstock run FILE --report-page PATH`: the options, and the page of a real run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]

JOB = """
from penstock import adaptive_flat_map, read_jsonl, write_jsonl

async def work(event):
    if event["n"] == 3:
        raise ValueError("the secret")
    return event

pipeline = read_jsonl().pipe(adaptive_flat_map(work, on_error={policy!r})).to(write_jsonl())
"""

INPUT = ("--input", "events.jsonl", "--output", "done.jsonl")
EVENTS = "".join(json.dumps({"n": n}) + "\n" for n in range(5)) + "bad\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.py").write_text(JOB.format(policy="skip"), encoding="utf-8")
    (tmp_path / "stop.py").write_text(JOB.format(policy="stop"), encoding="utf-8")
    (tmp_path / "events.jsonl").write_text(EVENTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def account(page: str) -> dict[str, int]:
    found = re.findall(r"<b>([\d,]+)</b>([^<]+)</div>", page)
    return {name: int(count.replace(",", "")) for count, name in found}


def test_a_page_is_written_beside_the_report_on_standard_error(
    penstock: Penstock, job: Path
) -> None:
    ended = penstock("run", "job.py", "--report-page", "page.html", *INPUT)
    assert ended.status == 3
    assert "events: 5 in, 4 finished, 1 failed" in ended.err
    page = (job / "page.html").read_text(encoding="utf-8")
    assert account(page) == {"in": 5, "finished": 4, "dropped": 0, "failed": 1, "returned": 0}
    assert "<h1>job.py</h1>" in page
    assert "exit status 3" in page
    assert "the secret" not in page


def test_a_page_shows_values_if_that_is_asked_for(penstock: Penstock, job: Path) -> None:
    penstock("run", "job.py", "--report-page", "page.html", "--show-values", *INPUT)
    assert "the secret" in (job / "page.html").read_text(encoding="utf-8")


def test_a_run_that_an_error_stops_has_its_page(penstock: Penstock, job: Path) -> None:
    ended = penstock("run", "stop.py", "--report-page", "page.html", *INPUT)
    assert ended.status == 1
    page = (job / "page.html").read_text(encoding="utf-8")
    assert "stopped by an error" in page
    assert "<code>ValueError</code>" in page
    assert "the secret" not in page


def test_a_run_whose_input_cannot_be_opened_has_its_page(penstock: Penstock, job: Path) -> None:
    ended = penstock("run", "job.py", "--report-page", "page.html", "--input", "missing.jsonl")
    assert ended.status == 2
    assert "CannotOpen" in (job / "page.html").read_text(encoding="utf-8")


def test_a_place_where_no_page_can_be_is_a_usage_error(penstock: Penstock, job: Path) -> None:
    ended = penstock("run", "job.py", "--report-page", "no/page.html", *INPUT)
    assert ended.status == 2
    assert ended.err == ("penstock: cannot write no/page.html: there is no folder no\n")
    assert ended.out == ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_what_is_no_file_is_not_replaced_by_a_page(penstock: Penstock, job: Path) -> None:
    # As a device is not, such as /dev/stdout.
    os.mkfifo(job / "pipe")
    ended = penstock("run", "job.py", "--report-page", "pipe", *INPUT)
    assert (ended.status, ended.out) == (2, "")
    assert "cannot write pipe: it is not a file, which a page would replace" in ended.err
    assert (job / "pipe").is_fifo()


def test_a_link_to_a_page_stays_a_link(penstock: Penstock, job: Path) -> None:
    (job / "pages").mkdir()
    (job / "latest.html").symlink_to("pages/first.html")
    assert penstock("run", "job.py", "--report-page", "latest.html", *INPUT).status == 3
    assert (job / "latest.html").is_symlink()
    assert account((job / "pages/first.html").read_text("utf-8"))["finished"] == 4


def test_the_input_of_the_pipeline_is_not_overwritten(penstock: Penstock, job: Path) -> None:
    for taken in ("events.jsonl", "done.jsonl"):
        ended = penstock("run", "job.py", *INPUT, "--report-page", taken)
        assert ended.status == 2
        assert "is a file of the pipeline" in ended.err
    assert (job / "events.jsonl").read_text(encoding="utf-8") == EVENTS


def test_values_are_shown_on_a_page_only(penstock: Penstock, job: Path) -> None:
    ended = penstock("run", "job.py", "--show-values", *INPUT)
    assert ended.status == 2
    assert "--show-values goes with --serve or --report-page" in ended.err
