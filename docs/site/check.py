"""What must be true of the built site: links and anchors lead somewhere, and nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["faults"]

# What makes a browser fetch; an `a` fetches only when it is followed.
FETCHES = {"img", "script", "link", "iframe", "source", "video", "audio", "object", "embed"}
# These links say where a page stands or what comes next; nothing is loaded by them.
NAMES = {"canonical", "next", "prev", "alternate"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.anchors |= {said[name] for name in ("id", "name") if name in said}
        url = said.get("src") or said.get("href") or said.get("data") or ""
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        elif tag in FETCHES and url and said.get("rel") not in NAMES:
            self.loads.append(url)


def faults(site: Path) -> Iterator[str]:
    """One line for each broken link, missing anchor, and thing that is fetched from elsewhere."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for url in page.loads:
            if urlsplit(url).netloc:
                yield f"{name} loads {url}"
        # The page of an error may be shown below any address, so its links begin at the root.
        if name == "404.html":
            continue
        for url in page.links + page.loads:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{name} links to {url}, which does not exist"
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                yield f"{name} links to {url}, which has no such anchor"
