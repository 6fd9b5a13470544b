"""Draws the pictures of a page by running its blocks.

python -m tests.helpers.page_pictures workflows.md
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.pages.test_docs import HOME, blocks_of, run, run_python

PICTURES = {
    "workflows.md": {"shop.svg": "workflow.svg", "mined.svg": "mined.svg"},
    "monitors.md": {"live.svg": "monitor.svg", "automaton.svg": "automaton.svg"},
}


def main(name: str) -> None:
    """Run the page of this name, and copy what it draws."""
    page = (HOME / "docs" / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for block in blocks_of(page):
            if block.language == "python":
                run_python(block, folder)
            elif block.language == "sh":
                run(["bash", "-c", block.code], folder)
        for drawn, image in PICTURES[name].items():
            shutil.copy(folder / drawn, HOME / "docs/images" / image)


if __name__ == "__main__":
    main(sys.argv[1])
