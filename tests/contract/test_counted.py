"""Messages say `1 event` and `2 events`: what is counted has the noun of its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("streams", "operators", "sinks", "sources", "penstock/command")

# In an f-string, a number and what there are of it; the two forms of one.
COUNTED = re.compile(
    r"\{([^{}]*):,\} (?:more |other )?"
    r"(?:cases|duplicates|events|groups|inputs|jobs|lines|outputs|rows|slices)\b"
)
ONE = re.compile(r'"1 [a-z ]+" if (.*) == 1')

NEVER_ONE = {
    *("LARGEST", "MOST_HELD", "_AT_ONCE"),  # constants
    *("table.cache", "self._hold", "self._looked", "self.events", "len(events)"),  # limits
    *("ahead", "len(peer.out)"),  # one has another text
}


def test_a_number_and_its_noun_are_written_by_counted() -> None:
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            these = {*COUNTED.findall(text), *ONE.findall(text)} - NEVER_ONE
            if these:
                found[path.relative_to(ROOT).as_posix()] = these
    assert not found
