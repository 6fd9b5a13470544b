"""Traces of a pipeline whose events come from the servers of a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.streams.nats.client.server import Servers
from tests.helpers.servers.command import Penstock, Worker, eventually, lines
from tests.helpers.traced import TRACED, spans_in

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
EVENTS = [
    {"n": 0, "traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01"},
    *({"n": n} for n in range(1, 20)),
]


def check(spans: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Each event has a span, and below it that of its call; the first one goes on with a trace."""
    events = {one["id"]: one for one in spans if one["name"].startswith("event of")}
    calls = [one for one in spans if one["name"] == "adaptive_flat_map work"]
    assert (len(events), len(calls)) == (20, 20)
    for call in calls:
        assert call["trace"] == events[call["parent"]]["trace"]
        assert call["pid"] == events[call["parent"]]["pid"]
    assert [one["trace"] for one in events.values() if one["parent"] == PARENT] == [TRACE]
    carried = {one["n"]: int(one["traceparent"].split("-")[2], 16) for one in results}
    assert set(carried.values()) == set(events)
    assert events[carried[0]]["trace"] == TRACE


def test_a_worker_on_servers_traces_what_it_works_on(
    penstock: Penstock, server: Servers, tmp_path: Path
) -> None:
    (tmp_path / "pipe.py").write_text(TRACED, encoding="utf-8")
    on = ("--on", server.urls[0], "--name", "traced")
    fed = penstock("publish", "pipe.py", "--partitions", "4", *on, given=lines(*EVENTS))
    assert fed.returncode == 0, fed.stderr
    with Worker(tmp_path, *on, "--lease", "2", "--trace") as worker:
        eventually(lambda: "traced: 0 messages unfinished" in penstock("status", *on).stdout)
        status, output, errors = worker.drain()
    assert status == 4, errors
    check(spans_in(tmp_path), [json.loads(line) for line in output.splitlines()])
