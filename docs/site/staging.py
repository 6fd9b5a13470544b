"""The pages as the site has them: copies of docs/ and of the files that they link to.

A link to a file outside docs/, such as an example, leads to a page that shows the file, so that the
site is complete without the repository.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from docs.site.reference import entries

__all__ = ["BrokenLink", "stage"]

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]*)((?:#[^)\s]*)?\))|((?:src|href)=\")([^\"#]*)((?:#[^\"]*)?\")")
# Home is in no section, so the column of its pages would be empty.
ALONE = "---\nhide:\n  - navigation\n---\n\n"
# The first cell of a row; the page of the name has its signature.
SIGNATURE = re.compile(r"^(\| )`(\w+)\(.*?\)`(?= \|)", re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "sh", ".css": "css"}


class BrokenLink(Exception):
    """A page links to a file that does not exist."""


def stage(home: Path, target: Path) -> None:
    """Write the pages and pictures of the repository at `home` below `target`."""
    shutil.copytree(home / "docs/images", target / "images")
    queue = {"README.md": "index.md"} | {
        page.relative_to(home).as_posix(): page.relative_to(home / "docs").as_posix()
        for page in sorted(home.glob("docs/**/*.md"))
    }
    queue |= {
        name: _place(name) for name in ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md")
    }
    places = dict(queue)
    while queue:
        source, place = queue.popitem()
        text = (home / source).read_text(encoding="utf-8")
        if source.endswith(".md"):
            text, found = _relinked(text, home, source, place)
            if place == "index.md":
                text = ALONE + text
            if place == "operators.md":
                text = _without_signatures(text)
            queue |= {name: to for name, to in found.items() if name not in places}
            places |= found
        else:
            text = _shown(source, text)
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _without_signatures(text: str) -> str:
    """The page of operators with links in place of signatures, which the pages of the names have:
    in a table on a narrow screen they leave no room for anything else."""
    paths = {(entry.section == "rx", entry.name): entry.path for entry in entries()}
    sections = re.split(r"^(?=##)", text, flags=re.MULTILINE)

    def linked(section: str) -> str:
        is_rx = section.startswith("### Operators of Rx")
        return SIGNATURE.sub(lambda row: f"{row[1]}[`{row[2]}`]({paths[is_rx, row[2]]})", section)

    return "".join(map(linked, sections))


def _place(name: str) -> str:
    """Where the site has a file of the repository."""
    if name == "README.md":
        return "index.md"
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    if "/" not in name:
        return f"project/{name.removesuffix('.md')}.md"
    return f"files/{name}.md"


def _shown(name: str, text: str) -> str:
    if name == "LICENSE":
        return f"# Licence\n\n{text}"
    return f"# {name}\n\n```{LANGUAGES.get(Path(name).suffix, 'text')}\n{text.rstrip()}\n```\n"


def _relinked(text: str, home: Path, source: str, place: str) -> tuple[str, dict[str, str]]:
    """The page with its links as they are in the site, and the files that they lead to."""
    found: dict[str, str] = {}

    def link(match: re.Match[str]) -> str:
        before, target, after = (group for group in match.groups() if group is not None)
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        name = os.path.normpath(PurePosixPath(source).parent / target)
        if not (home / name).is_file():
            raise BrokenLink(f"{source} links to {target!r}, which is not a file")
        to = _place(name)
        if not name.startswith("docs/images/"):
            found[name] = to
        return before + os.path.relpath(to, PurePosixPath(place).parent) + after

    pieces: list[str] = []
    end = 0
    for fence in FENCE.finditer(text):
        pieces += [_outside_code(text[end : fence.start()], link), fence[0]]
        end = fence.end()
    return "".join([*pieces, _outside_code(text[end:], link)]), found


def _outside_code(text: str, link: Callable[[re.Match[str]], str]) -> str:
    spans = re.split(r"(`[^`\n]+`)", text)
    # A link's text may be code, so only what looks like a link inside code is left alone.
    hidden: list[str] = []

    def hide(span: str) -> str:
        if LINK.search(span):
            hidden.append(span)
            return f"\0{len(hidden) - 1}\0"
        return span

    joined = "".join(hide(span) if span.startswith("`") else span for span in spans)
    done = LINK.sub(link, joined)
    return re.sub(r"\0(\d+)\0", lambda found: hidden[int(found[1])], done)
