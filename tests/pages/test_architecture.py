"""The rooms on the architecture page are the folders, and every file that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.test_layers import ORDER

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs/architecture.md").read_text(encoding="utf-8")


def rooms() -> list[str]:
    _, _, section = PAGE.partition("\n## Rooms\n")
    table = section.partition("\n## ")[0]
    return re.findall(r"^\| `(?:streams/)?(\w+)(?:/|\.py)?` \|", table, re.MULTILINE)


def test_the_table_of_rooms_has_every_folder_once_in_the_order_of_their_imports() -> None:
    small = {"validation", "extras", "pages", "streams"}
    assert rooms() == [room for room in ORDER if room not in small]


def test_every_folder_says_what_it_is_for() -> None:
    folders = {path.parent for path in (HOME / "streams").rglob("*.py")}
    silent = [
        str(folder.relative_to(HOME))
        for folder in folders
        if not (folder / "__init__.py").read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)
    assert [name for name in named if not (HOME / name).exists()] == []


def test_every_file_that_the_page_names_without_its_folder_exists_somewhere() -> None:
    exist = {path.name for path in (HOME / "streams").rglob("*.py")}
    assert [name for name in re.findall(r"`(\w+\.py)`", PAGE) if name not in exist] == []
