"""Every module of the library has its place on the architecture page, and no other is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGE = HOME / "docs/architecture.md"
FOLDERS = sorted({path.parent.relative_to(HOME) for path in HOME.glob("streams/**/*.py")})


def modules_of(folder: Path) -> set[str]:
    return {path.name for path in (HOME / folder).glob("*.py")} - {"__init__.py"}


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_the_table_of_a_folder_names_its_modules_and_no_others(folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n### `{folder}`\n")
    table = section.partition("\n#")[0]
    places = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = [name for place in places for name in re.findall(r"`(\w+\.py)`", place)]
    assert sorted(named) == sorted(modules_of(folder))


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.read_text(encoding="utf-8"))
    exist = {path.name for folder in FOLDERS for path in (HOME / folder).glob("*.py")}
    assert [name for name in named if not (HOME / name).exists() and name not in exist] == []
