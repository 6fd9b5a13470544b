"""The three most viewed pages of each minute, of a web site that has three servers.

    python -m examples.top_pages [--views 20000]
    penstock run examples/top_pages.py -- top.jsonl top.state a.jsonl b.jsonl c.jsonl

The second command follows the logs of the servers, and writes a line for each minute:

    {"page": "/tea", "at": 72.25}
    {"minute": 1, "top": [["/tea", 31], ["/", 28], ["/milk", 7]]}

Each log is read at its own speed, and has its own watermark, so a minute waits for the server that
is furthest behind. One that writes nothing for half a minute is left out until it writes again, and
when none of them does, the last minute ends by the clock. The open minutes, and the positions in
the logs, are in one store.

The first command makes the logs of three servers, of which one has stopped for a while, runs the
second on them, and compares the minutes with those of all lines together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from penstock import (
    Pipeline,
    Store,
    Window,
    agg,
    event_time,
    ops,
    read_jsonl,
    run,
    tumbling,
    window,
    write_jsonl,
)

MINUTE, LATENESS, COUNT = 60, 5, 3

View = dict[str, Any]


def line_of(minute: Window[list[tuple[Any, int]]]) -> dict[str, Any]:
    return {"minute": int(minute.start // MINUTE), "top": minute.value}


def top_of(results: str, file: str, *logs: str, follow: bool = True) -> Pipeline:
    store = Store(file)
    first, *others = (
        read_jsonl(log, follow=follow, position=store).pipe(event_time("at", lateness=LATENESS))
        for log in logs
    )
    return (
        first.pipe(
            ops.merge(*others), window(tumbling(MINUTE), agg.top(COUNT, by="page"), store=store)
        )
        .map(line_of)
        .to(write_jsonl(results, append=True))
    )


# An hour.


def views_of(count: int, draw: Random) -> Iterator[View]:
    """The views of one server in the order of its log: requests take up to `LATENESS` seconds."""
    pages = {"/": 9, "/tea": 6, "/milk": 4, "/prices": 3, "/about": 1}
    ends = sorted(draw.uniform(LATENESS, 3600) for _ in range(count))
    for end in ends:
        (page,) = draw.choices(list(pages), list(pages.values()))
        yield {"page": page, "at": end - draw.uniform(0, LATENESS)}


def by_hand(views: list[View]) -> dict[int, list[list[Any]]]:
    """The pages with the most views of each minute, those with as many by their names."""
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for view in views:
        counts[view["at"] // MINUTE][view["page"]] += 1
    return {
        minute: [[page, n] for page, n in sorted(of.items(), key=lambda one: (-one[1], one[0]))]
        for minute, of in counts.items()
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The most viewed pages of each minute.")
    parser.add_argument("--views", type=int, default=20_000)
    count, draw = parser.parse_args(arguments).views, Random(1)
    of_servers = [list(views_of(count // 3, draw)) for _ in range(3)]
    of_servers[2] = [view for view in of_servers[2] if not 900 < view["at"] < 1800]
    with TemporaryDirectory() as folder:
        top, state, *logs = (str(Path(folder, name)) for name in ("top", "state", "a", "b", "c"))
        for log, views in zip(logs, of_servers, strict=True):
            Path(log).write_text("".join(json.dumps(one) + "\n" for one in views), "utf-8")
        report = run(top_of(top, state, *logs, follow=False))
        lines = [json.loads(line) for line in Path(top).read_text("utf-8").splitlines()]
    wanted = by_hand([view for views in of_servers for view in views])
    same = {one["minute"]: one["top"] for one in lines} == {
        minute: pages[:COUNT] for minute, pages in wanted.items()
    }
    print(report)
    print(f"{len(lines)} minutes; the same as by hand: {same}")


if __name__ == "__main__":
    main()
else:
    top, state, *logs = sys.argv[1:] or ["top.jsonl", "top.state", "a.jsonl", "b.jsonl", "c.jsonl"]
    pipeline = top_of(top, state, *logs)
