"""The folders on the architecture page and in its picture are those of the code."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.contract.test_layers import ORDER, arrows
from tests.helpers.folders_picture import IMAGE, picture

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs/architecture.md").read_text(encoding="utf-8")


def folders() -> list[str]:
    _, _, section = PAGE.partition("\n## Folders\n")
    table = section.partition("\n## ")[0]
    return re.findall(r"^\| `(?:streams/)?([\w/]+)/` \|", table, re.MULTILINE)


def test_the_table_of_folders_has_every_folder_once_in_the_order_of_their_imports() -> None:
    assert folders() == [folder for folder in ORDER if folder != "streams"]


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
    folders = [HOME / "streams", HOME / "penstock/command"]
    exist = {path.name for folder in folders for path in folder.rglob("*.py")}
    assert [name for name in re.findall(r"`(\w+\.py)`", PAGE) if name not in exist] == []


def test_the_picture_of_the_folders_is_what_the_code_draws() -> None:
    assert IMAGE.read_text(encoding="utf-8") == picture(), "run make pictures ARGS=folders"


def test_every_folder_has_a_box_that_names_all_its_imports() -> None:
    titles = [
        group[0].text or ""
        for group in ET.fromstring(picture()).iter("{http://www.w3.org/2000/svg}g")
    ]
    drawn = {
        (bare(folder), bare(other))
        for folder, _, others in (title.partition(" imports ") for title in titles)
        for other in others.split(", ")
        if other != "no other folder"
    }
    assert len(titles) == len(ORDER)
    assert drawn == {(bare(folder), bare(other)) for folder, other in arrows()}


def bare(folder: str) -> str:
    return folder.removesuffix("/__init__.py").removesuffix(".py").removesuffix("/")
