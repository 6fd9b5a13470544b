"""Formulas learned from 1,000 good and 1,000 bad traces of 50 events with 8 propositions."""

from __future__ import annotations

import random
from time import process_time

from penstock.streams.temporal import learn

__all__ = ["learn_from_two_thousand_traces"]

TRACES, EVENTS, PROPOSITIONS = 1_000, 50, 8


def learn_from_two_thousand_traces() -> list[tuple[str, float]]:
    """The task, and the seconds it took: where a formula separates, and where none does."""
    dice = random.Random(1)
    good: list[list[int]] = []
    bad: list[list[int]] = []
    while min(len(good), len(bad)) < TRACES:
        trace = [1 << dice.randrange(PROPOSITIONS) for _ in range(EVENTS)]
        # Every p0 is followed by a p1.
        paid = [at for at, letter in enumerate(trace) if letter == 1]
        keeps = not paid or 2 in trace[paid[-1] :]
        side = good if keeps else bad
        if len(side) < TRACES:
            side.append(trace)
    names = [f"p{n}" for n in range(PROPOSITIONS)]
    mixed = [*good, *bad]
    dice.shuffle(mixed)
    told: list[tuple[str, float]] = []
    for one, other in ((good, bad), (mixed[:TRACES], mixed[TRACES:])):
        before = process_time()
        learned = learn(one, other, names)
        took = process_time() - before
        found = learned.findings[0].formula if learned.separates else "no formula"
        told.append((f"{found} from {2 * TRACES:,} traces of {EVENTS} events", took))
    return told
