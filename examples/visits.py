"""The visits to a web site: a visit ends when its user has clicked nothing for half an hour.

    python -m examples.visits [--clicks 5000]
    penstock run examples/visits.py -- clicks.jsonl visits.jsonl visits.state

The second command follows a file of clicks, and writes a line for each visit when it has ended:

    {"user": "u7", "url": "/tea", "at": 32412.5}
    {"user": "u7", "minutes": 12, "pages": 4, "entry": "/", "most": "/tea"}

Clicks may come a minute after later ones. Those that come later than that, as of a phone that had
no network, go to `visits.jsonl.late`. When nobody clicks any more, the last visits end by the
clock. The open visits and the position in the file are in one store, so the pipeline can be killed
and started again.

The first command writes the clicks of a day as they reach a server, out of order and some of them
hours late, runs the second on them, and compares its visits with those of the sorted clicks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
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
    read_jsonl,
    route,
    run,
    session,
    window,
    write_jsonl,
)

GAP, LATENESS = 30 * 60, 60

Click = dict[str, Any]

VISIT = {"pages": agg.count(), "entry": agg.first("url"), "most": agg.top(1, by="url")}


def line_of(visit: Window[dict[str, Any]]) -> dict[str, Any]:
    ((most, _),) = visit.value["most"]
    minutes = round((visit.end - GAP - visit.start) / 60)
    return {"user": visit.key, "minutes": minutes, **visit.value, "most": most}


def visits_of(clicks: str, visits: str, file: str, *, follow: bool = True) -> Pipeline:
    store, late = Store(file), route(write_jsonl(f"{visits}.late", append=True))
    sessions = window(session(GAP), VISIT, by="user", late=late, store=store)
    return (
        read_jsonl(clicks, follow=follow, position=store)
        .pipe(event_time("at", lateness=LATENESS), sessions)
        .map(line_of)
        .to(write_jsonl(visits, append=True))
    )


# A day.


def clicks_of(count: int, draw: Random) -> Iterator[Click]:
    """Clicks in the order in which they reach the server, and `at` seconds of a day."""
    coming: list[tuple[float, Click]] = []
    while len(coming) < count:
        user, at = f"u{draw.randrange(count // 20 + 1)}", draw.uniform(6, 23) * 3600
        for _ in range(draw.randrange(1, 12)):
            delay = draw.uniform(0, 50) if draw.random() < 0.98 else draw.uniform(100, 7200)
            url = draw.choice(("/", "/tea", "/milk", "/prices"))
            coming.append((at + delay, {"user": user, "url": url, "at": round(at, 1)}))
            at += draw.expovariate(1 / 300)
    return (click for _, click in sorted(coming, key=lambda one: one[0])[:count])


def by_hand(clicks: Iterable[Click]) -> tuple[list[tuple[str, int, str]], int]:
    """The user, pages and entry of each visit, and how many clicks are late."""
    times: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    newest, late = 0.0, 0
    for number, click in enumerate(clicks):
        if click["at"] < newest - LATENESS:
            late += 1
        else:
            times[click["user"]].append((click["at"], number, click["url"]))
        newest = max(newest, click["at"])
    visits: list[tuple[str, int, str]] = []
    for user, own in times.items():
        begun, last = "", -float("inf")
        pages = 0
        for at, _, url in sorted(own):
            if at - last >= GAP:
                visits += [(user, pages, begun)] * (pages > 0)
                begun, pages = url, 0
            pages, last = pages + 1, at
        visits.append((user, pages, begun))
    return sorted(visits), late


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The visits of a day.")
    parser.add_argument("--clicks", type=int, default=5_000)
    clicks = list(clicks_of(parser.parse_args(arguments).clicks, Random(1)))
    with TemporaryDirectory() as folder:
        names = [str(Path(folder, name)) for name in ("clicks.jsonl", "visits.jsonl", "state")]
        Path(names[0]).write_text("".join(json.dumps(one) + "\n" for one in clicks), "utf-8")
        report = run(visits_of(*names, follow=False))
        found = [json.loads(line) for line in Path(names[1]).read_text("utf-8").splitlines()]
    visits, late = by_hand(clicks)
    same = visits == sorted((one["user"], one["pages"], one["entry"]) for one in found)
    print(report)
    print(f"{len(found):,} visits, {late:,} late clicks; the same as by hand: {same}")


if __name__ == "__main__":
    main()
else:
    names = [*sys.argv[1:], "clicks.jsonl", "visits.jsonl", "visits.state"][:3]
    pipeline = visits_of(*names)
