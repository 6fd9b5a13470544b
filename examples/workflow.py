"""One rule, three uses: checked on a drawn workflow, watched as it runs, and beside what was mined.

    python examples/workflow.py [cases]

Cases of a shop begin every few milliseconds and run concurrently. Most keep the rules, some do not.
The rules hold on every path of the drawn workflow. But steps happen that are not drawn: every rule
has a monitor in the pipeline, and an alarm is given at the step that breaks it, or at the end for a
step that should have come and did not. At the end, the arcs that were taken and are not drawn are
listed. The last rule is about who did a step, which the drawing does not show.

The second rule is a well-known one: after the start of an interaction (soi) there is an input, and
then or later its confirmation (coi). No step can break it for good, so it is judged at the end; a
line of the output warns of that.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from penstock import Flowable, Pipeline, for_each, from_async_iterable, monitor, run
from penstock.streams.temporal import Miner, Rule, Violation, Workflow, counter_example

Step = dict[str, Any]
Alarm = Callable[[Violation[Step]], object]

DRAWN = Workflow.of(
    {
        "soi": {"goto": "input"},
        "input": {"goto": ["changed", "coi"]},
        "changed": {"goto": ["changed", "coi"]},
        "coi": {"goto": "checked"},
        "checked": {"goto": "approved"},
        "approved": {"goto": "paid"},
        "paid": {"goto": "shipped"},
        "shipped": {},
    }
)

RULES = [
    Rule("pay before shipping", "soi", "shipped", "!shipped W paid"),
    Rule("inputs are confirmed", "soi", "shipped", "G(soi -> X(!input U (input & F coi)))"),
    Rule(
        "what is checked stays",
        "soi",
        "shipped",
        "always ({checked; !approved[*]; changed} |-> false)",
    ),
    Rule("clerks approve nothing", "soi", "shipped", "never (approved & by_clerk)"),
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
        assert rule.formula is not None
        steps = steps.pipe(monitor(rule.formula, by="case", on_violation=alarm, where=MEANING))
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


def build(cases: int, alarm: Alarm) -> tuple[Pipeline, Miner]:
    """The pipeline, and the miner of all steps that pass through it."""
    miner = Miner(DRAWN)

    def mine(step: Step) -> None:
        miner.add(step["case"], step["step"])

    steps = from_async_iterable(lambda: shop(cases))
    return watch(steps, alarm).to(for_each(mine)), miner


def checked(rule: Rule) -> str:
    """What the rule says of the drawn workflow."""
    if lacks := rule.lacking(DRAWN):
        return f"{rule.name}: not applicable to the drawing, which lacks {', '.join(lacks)}"
    broken = counter_example(DRAWN, rule)
    return f"{rule.name}: holds as drawn" if broken is None else broken.describe()


def main(cases: int) -> None:
    """Check the drawing, run the shop, and print the alarms and what is not drawn."""
    for rule in RULES:
        print(checked(rule))
    pipeline, miner = build(cases, lambda violation: print(f"ALARM {violation}"))
    run(pipeline)
    miner.end()
    for (a, b), traffic in miner.arcs.items():
        if traffic.forbidden:
            print(f"NOT DRAWN {a} -> {b}: {traffic.count}, first in case {traffic.first}")
    print(f"{miner.events:,} steps of {cases:,} cases, watched by {len(RULES)} rules")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
