"""The slots of a stage: tasks that live long, each of which makes one call at a time.

Who wakes whom: a stage with events that are due wakes sleeping slots until as many are `looking` as
events are due, and makes new ones where none sleeps. A slot that has made a call takes the next
event that is due by itself. What has ended is flushed by the slot itself if no other call is in
flight (`_slot_drains`: it continues with what the flush makes due, and no other is woken for that),
otherwise by the loop, once for all calls that end in one iteration (`flush_is_due`). A slot with
nothing to do waits for that flush without sleeping, as long as flushes bring new events
(`_refills`): this saves a future for each call.

If a call changes context variables, its slot ends, and another one takes the next event: every call
begins with the variables of the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.slot import Slot

__all__ = ["Slots"]


class Slots:
    """Tasks that do `work()`: they take events that are due, and sleep while there are none.

    `go_on` is called when one has ended: another may have to take the next event.
    """

    __slots__ = ("_go_on", "_name", "_run", "_sleepers", "_stage", "_work", "by_task", "looking")

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        go_on: Callable[[], None],
        stage: object,
    ) -> None:
        self._run = run
        self._stage = stage
        self._name = f"{info.name} {name}"
        self._work = work
        self._go_on = go_on
        self.by_task: dict[asyncio.Task[None], Slot] = {}
        """In order, so that the same run always ends in the same way."""
        self.looking = 0
        """How many will look for events before they sleep."""
        self._sleepers: list[asyncio.Future[None]] = []

    def wake(self, n: int, most: int) -> None:
        """Make slots look for events until `n` do so; there are at most `most` slots."""
        n -= self.looking
        while n > 0 and self._sleepers:
            sleeper = self._sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                self.looking += 1
                n -= 1
        for _ in range(min(n, most - len(self.by_task))):
            self.looking += 1
            task = self._run.spawn(self._work(), self._name, stage=self._stage, replaced=True)
            self.by_task[task] = Slot(task)
            task.add_done_callback(self._ended)

    def begin(self) -> Slot:
        """The slot of the current task, which has begun."""
        slot = self.by_task[cast(Any, asyncio.current_task())]
        slot.has_begun = True
        self.looking -= 1
        return slot

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not self.by_task.pop(task).has_begun:
            self.looking -= 1
        self._go_on()

    async def sleep(self) -> None:
        """Wait until there is something to do."""
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append(sleeper)
        try:
            await sleeper
        finally:
            if not sleeper.cancelled():
                self.looking -= 1

    def cancel(self) -> None:
        """Cancel all but the current task, which reads the state of its stage itself."""
        for task in self.by_task:
            if task is not asyncio.current_task(self._run.loop):
                self._run.tasks.cancel(task)
