"""Monitors: look-ups in bulk, the cost per event in a pipeline, and compilation."""

from __future__ import annotations

import asyncio
import random
from time import process_time
from typing import Any

from benchmarks.temporal.formulas import random_formulas
from penstock import Flowable, for_each, from_iterable, monitor
from penstock.streams.temporal import Monitor

__all__ = ["add_to_a_pipeline", "compile_formulas", "look_up_a_million"]

RULE = "G(paid -> X(!sent W packed))"
MEANING: dict[str, Any] = {name: {"type": name} for name in ("paid", "sent", "packed")}

TWELVE = "G(a -> X(!b U (c & F d))) & (e -> (f R (g | X h)) W i)"

ROUNDS = 5


def look_up_a_million() -> tuple[str, float]:
    """The task, and millions of events per second; at least 1.5."""
    watch = Monitor(RULE)
    table = watch.table
    assert table is not None
    dice = random.Random(1)
    letters = [dice.randrange(1 << watch.bits) for _ in range(1_000_000)]
    best = 0.0
    for _ in range(ROUNDS):
        before = process_time()
        state = watch.first
        for letter in letters:
            state = table[state | letter]
        best = max(best, 1 / (process_time() - before))
    return f"letters looked up: {RULE}", best


def add_to_a_pipeline() -> list[tuple[str, float]]:
    """The task, and the microseconds that a monitor adds per event; below 0.5."""
    told: list[tuple[str, float]] = []
    cases: list[tuple[str, dict[str, Any]]] = [
        ("one state", {}),
        ("one state, no evidence", {"evidence": 0}),
        ("100 keys", {"by": "case"}),
        ("100 keys, no evidence", {"by": "case", "evidence": 0}),
    ]
    events = [{"case": at % 100, "type": "packed"} for at in range(200_000)]
    for name, options in cases:
        bare = watched = 1e9
        for _ in range(ROUNDS):
            bare = min(bare, _seconds(from_iterable(events)))
            with_it = from_iterable(events).pipe(monitor(RULE, **options, **MEANING))
            watched = min(watched, _seconds(with_it))
        told.append((f"in a pipeline, {name}", (watched - bare) / len(events) * 1e6))
    return told


def _seconds(steps: Flowable[Any]) -> float:
    before = process_time()
    asyncio.run(steps.to(for_each(_nothing)).run())
    return process_time() - before


def _nothing(step: Any) -> None: ...


def compile_formulas() -> list[tuple[str, float]]:
    """The task, and the seconds it took; at most 1 each."""
    told: list[tuple[str, float]] = []
    for formula in (TWELVE, *(" & ".join(f"G F p{at}" for at in range(n)) for n in (1, 3, 5))):
        states, took = _compiled(formula)
        told.append((f"{formula}: {states} states", took))
    for intricate in (False, True):
        formulas = random_formulas(1_000, 12, intricate=intricate)
        longest = max(_compiled(formula)[1] for formula in formulas)
        kind = "intricate" if intricate else "random"
        told.append((f"the slowest of {len(formulas):,} {kind} formulas of 12 operators", longest))
    return told


def _compiled(formula: str) -> tuple[int, float]:
    before = process_time()
    states = len(Monitor(formula).machine)
    return states, process_time() - before
