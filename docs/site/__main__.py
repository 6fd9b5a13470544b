"""``python -m docs.site``: builds the documentation site below build/docs, offline.

The steps: the pages of docs/ and the files that they link to are copied; the reference is made from
the docstrings; zensical makes the HTML and the index of the search; llms.txt is written; then the
links, anchors and loads of the result are checked. Any fault ends it with status 1.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site import llms, reference
from docs.site.check import faults
from docs.site.navigation import HOME, SECTIONS
from docs.site.staging import BrokenLink, stage

ROOT = Path(__file__).parents[2]
PICTURE = re.compile(r'<svg class="marble".*?</svg>', re.DOTALL)
Navigation = list[dict[str, object]]


class BuildFailed(Exception):
    """The site has faults; the message has one line for each."""


def build(target: Path) -> Path:
    """Build the site below `target`, and return its folder. BuildFailed if it has any fault."""
    shutil.rmtree(target, ignore_errors=True)
    pages, site = target / "pages", target / "site"
    pages.mkdir(parents=True)
    try:
        stage(ROOT, pages)
    except BrokenLink as error:
        raise BuildFailed(str(error)) from None
    for name, text in reference.pages().items():
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "docs/site/site.css", pages)
    _check_that_each_page_has_a_section(pages)
    settings = (ROOT / "docs/site/zensical.toml").read_text(encoding="utf-8")
    added = f'docs_dir = "pages"\nsite_dir = "site"\nnav = {_toml(_navigation(pages))}\n'
    config = target / "zensical.toml"
    config.write_text(settings.replace("[project]\n", f"[project]\n{added}", 1), encoding="utf-8")
    _run_zensical(config)
    _leave_pictures_out_of_the_search(site)
    llms.write(_all_sections(), pages, site)
    wrong = list(faults(site))
    if wrong:
        raise BuildFailed("\n".join(wrong))
    return site


def _run_zensical(config: Path) -> None:
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        # It colours each character of a line, whatever its output is.
        raise BuildFailed(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr))


def _leave_pictures_out_of_the_search(site: Path) -> None:
    """Without the texts in marble diagrams, which the index has as one word without spaces."""
    place = site / "search.json"
    index = json.loads(place.read_text(encoding="utf-8"))
    drawn: dict[str, list[str]] = {}
    for item in index["items"]:
        page = item["location"].partition("#")[0]
        if page not in drawn:
            pictures = PICTURE.findall((site / page).read_text(encoding="utf-8"))
            drawn[page] = [re.sub(r"<[^>]*>", "", picture) for picture in pictures]
        for words in drawn[page]:
            item["text"] = item["text"].replace(words, "")
    place.write_text(json.dumps(index), encoding="utf-8")


def _check_that_each_page_has_a_section(pages: Path) -> None:
    listed = {HOME, *(name for names in SECTIONS.values() for name in names)}
    there = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    own = {name for name in there if not name.startswith(("files/", "reference/"))}
    own |= {name for name in there & listed if name.startswith("reference/")}
    wrong = [f"docs/site/navigation.py lists {name}, which does not exist" for name in listed - own]
    wrong += [f"docs/{name} is in no section of docs/site/navigation.py" for name in own - listed]
    if wrong:
        raise BuildFailed("\n".join(sorted(wrong)))


def _all_sections() -> dict[str, list[str]]:
    """The sections, and the reference of names by its own."""
    sections = dict(SECTIONS)
    for section, title in reference.TITLES.items():
        sections[f"Reference: {title}"] = [
            entry.path for entry in reference.entries() if entry.section == section
        ]
    return sections


def _navigation(pages: Path) -> Navigation:
    tabs: Navigation = [{"Home": HOME}]
    for section, names in SECTIONS.items():
        entries: list[object] = list(names)
        if section == "Reference":
            entries.insert(0, "reference/index.md")
            for key, title in reference.TITLES.items():
                inside = [e for e in reference.entries() if e.section == key]
                entries.append({title: [{entry.title: entry.path} for entry in inside]})
        tabs.append({section: entries})
    return tabs


def _toml(value: object) -> str:
    """Lists, tables and strings in the one-line form of TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the site.")
    parser.add_argument("--serve", type=int, metavar="PORT", help="then serve it on loopback")
    options = parser.parse_args()
    try:
        site = build(ROOT / "build/docs")
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{sum(1 for _ in site.rglob('*.html'))} pages in {site.relative_to(ROOT)}")
    if options.serve is not None:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
        with http.server.ThreadingHTTPServer(("127.0.0.1", options.serve), handler) as server:
            print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
