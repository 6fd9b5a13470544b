"""Watches the steps of many workflows as they happen: one state per case and rule.

    python examples/workflow.py [cases]

Cases of a shop begin every few milliseconds and run concurrently. Most keep the rules, some do not.
Every rule has a monitor in the pipeline; all steps pass, and an alarm is given at the step that
breaks a rule, or at the end for a step that should have come and did not.

The second rule is a well-known one: after the start of an interaction (soi) there is an input, and
then or later its confirmation (coi). No step can break it for good, so it is judged at the end; the
first line of the output warns of that.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from penstock import Flowable, Pipeline, for_each, from_async_iterable, monitor, run
from penstock.streams.temporal import Violation

Step = dict[str, Any]
Alarm = Callable[[Violation[Step]], object]

RULES = [
    "!shipped W paid",
    "G(soi -> X(!input U (input & F coi)))",
    "always ({checked; !approved[*]; changed} |-> false)",
    "never (approved & by_clerk)",
]

MEANING: dict[str, Any] = {
    name: {"step": name}
    for name in ("paid", "shipped", "soi", "input", "coi", "checked", "changed", "approved")
} | {"by_clerk": lambda step: step.get("by") == "clerk"}

RIGHT = ["soi", "input", "coi", "checked", "approved", "paid", "shipped"]

WRONG = {
    "ships before it is paid": ["soi", "input", "coi", "checked", "approved", "shipped", "paid"],
    "never confirms the input": ["soi", "input", "checked", "approved", "paid", "shipped"],
    "changes what was checked": ["soi", "input", "coi", "checked", "changed", "approved"],
    "lets the clerk approve": [*RIGHT[:4], "approved by the clerk", *RIGHT[5:]],
}


def watch(steps: Flowable[Step], alarm: Alarm) -> Flowable[Step]:
    """All steps; `alarm` is called with each violation of a rule."""
    for rule in RULES:
        steps = steps.pipe(monitor(rule, by="case", on_violation=alarm, where=MEANING))
    return steps


async def shop(cases: int, seed: int = 1) -> AsyncIterator[Step]:
    """The steps of all cases, in the order in which they happen."""
    rng = random.Random(seed)
    queue: asyncio.Queue[Step | None] = asyncio.Queue(maxsize=100)

    async def one(case: int) -> None:
        steps = RIGHT if case % 25 else rng.choice(list(WRONG.values()))
        await asyncio.sleep(case * 0.002)
        for step in steps:
            name, _, clerk = step.partition(" by the ")
            await queue.put({"case": case, "step": name, "by": clerk or "manager"})
            await asyncio.sleep(rng.expovariate(100))

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for case in range(1, cases + 1):
                group.create_task(one(case))
        await queue.put(None)

    working = asyncio.create_task(all_of_them())
    try:
        while (step := await queue.get()) is not None:
            yield step
    finally:
        working.cancel()


def build(cases: int, alarm: Alarm) -> tuple[Pipeline, list[int]]:
    """The pipeline, and a list that counts the steps that passed."""
    passed = [0]

    def count(step: Step) -> None:
        passed[0] += 1

    steps = from_async_iterable(lambda: shop(cases))
    return watch(steps, alarm).to(for_each(count)), passed


def main(cases: int) -> None:
    """Run the shop and print the alarms."""
    pipeline, passed = build(cases, lambda violation: print(f"ALARM {violation}"))
    run(pipeline)
    print(f"{passed[0]:,} steps of {cases:,} cases, watched by {len(RULES)} rules")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
