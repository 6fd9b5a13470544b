"""What a start costs: the processor time of `penstock run` with the README's pipeline.

`python -m benchmarks start`: with three events, next to a process that only imports what such a run
cannot do without. Each is a process of its own, from its start to its end, in turn.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ROOT, Subject, alternate, run_whole

__all__ = ["EVENTS", "IMPORTS", "report", "write_pipeline"]

ROUNDS, EVENTS = 21, 3
IMPORTS = "import asyncio, orjson, reactivex, uvloop"
"""What a run cannot do without."""


def write_pipeline(folder: Path) -> Path:
    """Write the first pipeline of the README into a file; returns its path."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(# kata\.py\n.*?)```", page, re.DOTALL)
    if block is None:
        raise LookupError("README.md has no block of Python that begins with # kata.py")
    path = folder / "kata.py"
    path.write_text(block[1], encoding="utf-8")
    return path


def report(rounds: int = ROUNDS) -> str:
    """The milliseconds of each, and their ratio."""
    # Where it is set, each start compiles all modules, which takes longer than the start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        pipeline, events = write_pipeline(Path(folder)), Path(folder, "events.jsonl")
        events.write_text(
            "".join(f'{{"uuid": {number}, "client_id": 1}}\n' for number in range(EVENTS))
        )
        imports = Subject("its imports", "", rounds, ("-c", IMPORTS))
        run = Subject("penstock run", "", rounds, ("-m", "penstock", "run", str(pipeline)))

        def once(who: Subject) -> dict[str, Any]:
            return run_whole(who, events, 1, EVENTS if who is run else 0)

        # The first one after a change writes bytecode.
        once(run)
        everybody = alternate((imports, run), once)
    lines = [f"  {'':<14}{'CPU ms':>8}{'min-max':>16}{'ratio':>9}{'min-max':>14}"]
    least = everybody[0].per_event()
    for runs in everybody:
        if runs.failure:
            lines.append(f"  {runs.subject.name:<14} - {runs.failure}")
            continue
        cpu = runs.per_event()
        ratios = [mine / theirs for mine, theirs in zip(cpu, least, strict=False)]
        spread = f"{min(cpu) / 1000:.0f}-{max(cpu) / 1000:.0f}"
        lines.append(
            f"  {runs.subject.name:<14}{median(cpu) / 1000:>8.0f}{spread:>16}"
            f"{f'{median(ratios):.2f} x':>9}{f'{min(ratios):.2f}-{max(ratios):.2f}':>14}"
        )
    return "\n".join(lines)
