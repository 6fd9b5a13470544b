"""llms.txt, by which a language model finds the pages, and llms-full.txt, which has them all.

The form is that of https://llmstxt.org: a title, a summary, and lists of links to Markdown pages.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["title_of", "write"]


def title_of(text: str) -> str:
    """The first heading of a page, without marks."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].replace("`", "") if found else ""


def summary_of(text: str) -> str:
    """The first sentence of a page."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for part in text.split("\n\n")[1:]:
        line = " ".join(part.split())
        if line and not line.startswith(("#", "-", "|", "`", "!", "<", "1.")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
            return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")
    return ""


def write(sections: dict[str, list[str]], pages: Path, site: Path) -> None:
    """Write both files, and beside each page of the site its Markdown."""
    home = (pages / "index.md").read_text(encoding="utf-8")
    index = ["# penstock", "", f"> {summary_of(home)}", ""]
    full: list[str] = []
    for section, names in {"Overview": ["index.md"], **sections}.items():
        index += [f"## {section}", ""]
        for name in names:
            text = (pages / name).read_text(encoding="utf-8")
            said = summary_of(text)
            index.append(f"- [{title_of(text)}]({name})" + (f": {said}" if said else ""))
            full.append(f"<!-- {name} -->\n\n{_without_pictures(text)}")
        index.append("")
    (site / "llms.txt").write_text("\n".join(index), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")
    for path in pages.rglob("*.md"):
        copy = site / path.relative_to(pages)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_without_pictures(path.read_text(encoding="utf-8")), encoding="utf-8")


def _without_pictures(text: str) -> str:
    """Instead of the SVG of a diagram, its text."""
    return re.sub(
        r'<div class="marble-box">.*?aria-label="([^"]*)".*?</div>',
        lambda found: "```text\n" + found[1].replace("; ", "\n") + "\n```",
        text,
    )
