"""Stories on a virtual machine, in virtual time: one of them, or several with the same letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from penstock.command.santa.jobs import batches
from penstock.command.santa.machine import Machine
from penstock.command.santa.story import Curve, story
from penstock.streams.limits.choice import Limit
from penstock.streams.testing.loop import run_virtual

__all__ = ["SHIFT", "Simulation", "run"]

SHIFT = 600.0
"""The second of the story at which cores are taken away."""

# A stage looks at its loop some times in each second of the clock; in virtual time that would take
# longer than the story itself.
_SPEED = 1000.0

T = TypeVar("T")


@dataclass(frozen=True)
class Simulation:
    """The letters and the machine; each story that is told of them has a machine of its own."""

    count: int
    most: int
    interval: float
    seed: int
    value: int
    seconds: float
    """The seconds of one core, for each job."""
    cores: int
    left: int | None = None
    """Cores that are left at SHIFT; None: all of them."""

    async def tell(
        self,
        limit: Limit,
        say: Callable[[str], None] = lambda line: None,
        curve: Curve | None = None,
    ) -> Curve:
        """The story with this limit. `say` and `curve` are those of `story`."""
        machine = Machine(self.cores, seconds=self.seconds / _SPEED)
        shift: asyncio.TimerHandle | None = None
        if self.left is not None:
            loop = asyncio.get_running_loop()
            shift = loop.call_later(SHIFT / _SPEED, machine.use, self.left)
        try:
            return await story(
                machine.work,
                limit,
                batches(self.seed, self.most),
                self.count,
                value=self.value,
                interval=self.interval,
                speed=_SPEED,
                say=say,
                curve=curve,
            )
        finally:
            if shift is not None:
                shift.cancel()

    async def race(
        self, limits: dict[str, Limit], watch: Callable[[dict[str, Curve]], None] | None = None
    ) -> dict[str, Curve]:
        """The story with each limit, all at the same time; `watch` is called once a minute of it.

        A curve that is watched ends where its story is just then.
        """
        curves = {name: Curve() for name in limits}
        watching = None if watch is None else asyncio.create_task(_each_minute(watch, curves))
        try:
            async with asyncio.TaskGroup() as group:
                for name, limit in limits.items():
                    group.create_task(self.tell(limit, curve=curves[name]))
        finally:
            if watching is not None:
                watching.cancel()
        return curves


async def _each_minute(watch: Callable[[dict[str, Curve]], None], curves: dict[str, Curve]) -> None:
    while True:
        await asyncio.sleep(60 / _SPEED)
        watch(curves)


def run(telling: Coroutine[Any, Any, T]) -> T:
    """Run a story, or a race, in virtual time."""
    return run_virtual(telling, horizon=inf)
