"""Draws the pictures of docs/workflows.md by running the blocks of the page.

python -m tests.helpers.workflow_pictures
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.pages.test_docs import HOME, blocks_of, run, run_python

PICTURES = {"shop.svg": "workflow.svg", "mined.svg": "mined.svg"}


def main() -> None:
    """Run the page, and copy what it draws."""
    page = (HOME / "docs/workflows.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for block in blocks_of(page):
            if block.language == "python":
                run_python(block, folder)
            elif block.language == "sh":
                run(["bash", "-c", block.code], folder)
        for drawn, image in PICTURES.items():
            shutil.copy(folder / drawn, HOME / "docs/images" / image)


if __name__ == "__main__":
    main()
