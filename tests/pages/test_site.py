"""The documentation site builds without a fault, and has a page for each public name."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

import penstock
from docs.site import check, marble, reference, staging
from docs.site.__main__ import ROOT, BuildFailed, build
from docs.site.navigation import SECTIONS
from penstock.operators import rx
from penstock.streams import limits, temporal, testing
from tests.helpers.public_names import with_pages

LABELS = ["Items", "Time", "Memory", "Demand", "Ends", "Errors"]
WITH_LINES = [
    *with_pages("operators", "sources", "sinks"),
    "from_iterable",
    "from_async_iterable",
    *(f"ops.{name}" for name in rx.__all__),
]
PUBLIC = sorted({*penstock.__all__, *limits.__all__, *temporal.__all__, *testing.__all__})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew in strict mode; takes some seconds."""
    return build(tmp_path_factory.mktemp("docs"))


def page_of(site: Path, name: str) -> str:
    _, dot, name = name.rpartition(".")
    (entry,) = [
        entry
        for entry in reference.entries()
        if entry.name == name and (entry.section == "rx") == bool(dot)
    ]
    return (site / entry.path).with_suffix(".html").read_text(encoding="utf-8")


def test_the_site_has_a_page_for_each_page_of_docs(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if not (site / page).with_suffix(".html").is_file()] == []
    assert (site / "index.html").is_file()


def test_every_public_name_has_a_page_with_its_import_and_its_signature(site: Path) -> None:
    for name in PUBLIC:
        text = unescape(re.sub(r"<[^>]*>", "", page_of(site, name)))
        assert re.search(rf"from penstock\S* import {name}\b", text), name
    text = unescape(re.sub(r"<[^>]*>", "", page_of(site, "read_lines")))
    assert "on_bad_line: Literal['report', 'stop'] | Route = 'report'" in text


@pytest.mark.parametrize("name", WITH_LINES)
def test_an_operator_has_its_six_lines_and_its_diagram_as_a_picture(site: Path, name: str) -> None:
    page = page_of(site, name)
    labels = re.findall(r"<dt><strong>(\w+)</strong></dt>", page)
    assert labels == LABELS
    (picture,) = re.findall(r'<svg class="marble".*?</svg>', page, re.DOTALL)
    if name != "queue_stats":  # its rows are a clock, and lists at its times
        assert len(re.findall(r'class="(?:item|ask|group)', picture)) >= 2


def test_nothing_of_the_site_is_loaded_from_elsewhere(site: Path) -> None:
    assert list(check.faults(site)) == []
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"url\(['\"]?https?:|@import", path.read_text(encoding="utf-8")), path


def test_llms_txt_lists_every_page_and_each_is_there_as_markdown(site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    assert len(listed) == len(set(listed))
    own = {name for names in SECTIONS.values() for name in names}
    assert own | {entry.path for entry in reference.entries()} <= set(listed)
    assert [name for name in listed if not (site / name).is_file()] == []
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert [name for name in listed if f"<!-- {name} -->" not in full] == []


def test_a_search_finds_a_page_by_its_words(site: Path) -> None:
    index = (site / "search.json").read_text(encoding="utf-8")
    assert "replay-dead-letters.html" in index


def test_the_texts_of_diagrams_are_not_searched(site: Path) -> None:
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    (found,) = [
        one for one in items if one["location"].endswith("operators/adaptive_flat_map.html")
    ]
    assert "with adaptive concurrency" in found["text"]
    assert "each call takes three ticks" not in found["text"]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("resume after crash", "how-to/survive-a-crash.html"),
        ("several results", "tutorial.html#drop-an-event-or-give-several-results"),
        ("drop an event", "tutorial.html#drop-an-event-or-give-several-results"),
    ],
)
def test_a_task_in_the_words_of_a_user_is_the_heading_of_its_page(
    site: Path, words: str, page: str
) -> None:
    # The search ranks what is in a heading first.
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    (found,) = [one for one in items if one["location"] == page]
    assert set(words.split()) <= set(re.findall(r"\w+", found["title"].lower()))


def test_the_page_of_operators_links_to_their_signatures(site: Path) -> None:
    text = (site / "operators.html").read_text(encoding="utf-8")
    for link in ("operators/window", "rx/window", "sinks/write_table", "sources/WorkPool"):
        name = link.rpartition("/")[2]
        assert f'<a href="reference/{link}.html"><code>{name}</code></a>' in text
    assert "max_groups=None" not in text


def test_home_has_no_column_for_the_pages_of_a_section(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r'class="md-sidebar md-sidebar--primary"[^>]* hidden', home)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="gone.html">', "index.html links to gone.html, which does not exist"),
        ('<a href="#gone">', "index.html links to #gone, which has no such anchor"),
        ('<a href="index.html#gone">', "index.html links to index.html#gone, which has no such"),
        ('<script src="https://example.com/x.js">', "index.html loads https://example.com/x.js"),
        ('<img src="//example.com/x.png">', "index.html loads //example.com/x.png"),
    ],
)
def test_a_fault_of_the_site_is_reported(page: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    (told, *_) = check.faults(tmp_path)
    assert told.startswith(fault)


def test_a_page_that_links_to_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs/images").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"):
        (tmp_path / name).write_text("# Title\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("[gone](docs/gone.md)\n", encoding="utf-8")
    with pytest.raises(staging.BrokenLink, match=r"README\.md links to 'docs/gone\.md'"):
        staging.stage(tmp_path, tmp_path / "site")


def test_a_page_in_no_section_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SECTIONS, "Reference", ["operators.md"])
    with pytest.raises(BuildFailed, match=r"docs/statistics\.md is in no section"):
        build(tmp_path / "docs")


def test_items_that_stand_under_each_other_are_drawn_at_one_time() -> None:
    picture = marble.draw("    source   (a,b)-c--|\n    same     a-----c--|")
    above = re.findall(r'class="item c(\d)" cx="(\d+)" cy="(\d+)"', picture)
    (a, _, c), (same_a, same_c) = above[:3], above[3:]
    assert (a[:2], c[:2]) == (same_a[:2], same_c[:2])
    assert int(c[1]) - int(a[1]) == 6 * marble.TICK
    assert int(c[2]) < int(same_c[2])


def test_a_diagram_without_an_end_goes_on() -> None:
    ended, endless = (marble.draw(f"    a   -x-{end}\n    b   -x-{end}") for end in ("|", ""))
    assert ('class="end"' in ended, 'class="tip"' in ended) == (True, False)
    assert ('class="end"' in endless, 'class="tip"' in endless) == (False, True)


def test_a_line_that_is_no_row_of_a_diagram_is_an_error() -> None:
    assert not marble.is_marble("    $ penstock run\n    done")
    with pytest.raises(ValueError, match="not a row of a marble diagram"):
        marble.rows_of("    word")
