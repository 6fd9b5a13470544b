"""Draws the pictures of the pages again.

python -m tests.helpers.pictures [NAME ...]
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from examples.open_orders import orders
from tests.helpers import folders_picture, live_page_pictures, moving_picture, time_pictures
from tests.pages.test_docs import HOME, blocks_of, run, run_python

IMAGES = "docs/images"


def penstock(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "penstock", *words], check=True, stdout=subprocess.DEVNULL
    )


def python(*words: str) -> None:
    subprocess.run([sys.executable, "-m", *words], check=True)


def santa() -> None:
    """docs/santa.md"""
    words = ("--simulate", "--limit", "hill-climb", "--batches", "360")
    penstock("santa", *words, "--plot", f"{IMAGES}/santa.svg")
    penstock("santa", "--race", "--plot", f"{IMAGES}/santa-race.svg")
    penstock("santa", "--race", "--shift", "--plot", f"{IMAGES}/santa-shift.svg")


def spreader() -> None:
    """docs/spreader.md"""
    page = (HOME / "docs/spreader.md").read_text(encoding="utf-8")
    (code,) = [block.code for block in blocks_of(page) if block.code.startswith("# jobs.py")]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jobs.py").write_text(code, encoding="utf-8")
        draw = ["penstock", "draw", "jobs.py", "--format", "svg", "--output", "drawn.svg"]
        run(draw, Path(folder))
        shutil.copy(Path(folder) / "drawn.svg", f"{IMAGES}/spreader.svg")


def kata() -> None:
    """docs/how-to/run-a-file.md"""
    penstock("draw", "examples/kata.py", "--format", "svg", "--output", f"{IMAGES}/kata.svg")


def kata_steps() -> None:
    """the README, measured"""
    penstock("kata", "--variant", "all", "--plot", f"{IMAGES}/kata-steps.svg")


def limits() -> None:
    """docs/limits.md"""
    python("benchmarks.limits.plots", "P5 shifting", "build/limits")
    shutil.copy("build/limits/p5-shifting.svg", f"{IMAGES}/limits.svg")


def live_page() -> None:
    """docs/live-page.md, with Chromium; others of the page and of a report go to build/pictures"""
    live_page_pictures.main()


def folders() -> None:
    """docs/architecture.md"""
    folders_picture.IMAGE.write_text(folders_picture.picture(), encoding="utf-8")


def moving() -> None:
    """docs/explanation/state-on-many-machines.md"""
    moving_picture.IMAGE.write_text(moving_picture.picture(), encoding="utf-8")


def counts() -> None:
    """docs/counts.md"""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/orders.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("from", "to"), *orders(5000)])
        penstock("counts", path, "--month", "--plot", f"{IMAGES}/counts.svg")


def oltp() -> None:
    """docs/batches.md, measured"""
    python("examples.oltp", "--curves", "--seconds", "1.5", "--plot", f"{IMAGES}/oltp.svg")


def queue() -> None:
    """docs/table-queue.md"""
    python("examples.queue_day", ".venv/day.db")
    plot = ("--by", "hour", "--plot", f"{IMAGES}/queue-hours.svg")
    penstock("queue", "stats", "sqlite:///.venv/day.db", *plot)


def time() -> None:
    """docs/explanation/time.md"""
    for name, picture in time_pictures.pictures().items():
        (time_pictures.IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")


def workflow() -> None:
    """docs/workflows.md"""
    of_page("workflows.md", {"shop.svg": "workflow.svg", "mined.svg": "mined.svg"})


def monitor() -> None:
    """docs/monitors.md"""
    of_page("monitors.md", {"live.svg": "monitor.svg", "automaton.svg": "automaton.svg"})


def of_page(name: str, images: dict[str, str]) -> None:
    """Run the blocks of a page, and copy what they draw."""
    page = (HOME / "docs" / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for block in blocks_of(page):
            if block.language == "python":
                run_python(block, folder)
            elif block.language == "sh":
                run(["bash", "-c", block.code], folder)
        for drawn, image in images.items():
            shutil.copy(folder / drawn, HOME / IMAGES / image)


DRAWING: dict[str, Callable[[], None]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        *(counts, folders, kata, kata_steps, limits, live_page, monitor, moving, oltp, queue),
        *(santa, spreader, time, workflow),
    )
}


def main() -> None:
    """Draw the pictures with these names, or all."""
    parser = argparse.ArgumentParser(
        prog="make pictures",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name}: of {draw.__doc__}" for name, draw in DRAWING.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *DRAWING], help="all")
    os.chdir(HOME)
    for name in parser.parse_args().names or DRAWING:
        DRAWING[name]()


if __name__ == "__main__":
    main()
