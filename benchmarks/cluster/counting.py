"""The pipeline of the benchmark of states: it counts the events of each key, with a store or
without one."""

from __future__ import annotations

import sys
from typing import Any

from penstock import Store, adaptive_flat_map, for_each, group_by, read_jsonl, spread, stateful

STORE = sys.argv[1] if len(sys.argv) > 1 else ""


def count(n: int, event: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    return n + 1, [event]


def plain(event: dict[str, Any]) -> dict[str, Any]:
    return event


def done(event: dict[str, Any]) -> None:
    """Nothing is left to do."""


events = read_jsonl()
if STORE:
    events = events.pipe(stateful(count, by="key", start=0, store=Store(STORE)))
pipeline = events.pipe(group_by("key"), spread(), adaptive_flat_map(plain)).to(for_each(done))
