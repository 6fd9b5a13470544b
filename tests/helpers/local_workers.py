"""Workers in the same process, on virtual time, whose messages take time; they may be killed."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable
from typing import Any

from penstock.streams.workers.child import Child
from penstock.streams.workers.messages import Events, packed
from penstock.streams.workers.placement import Section

__all__ = ["LocalCrew", "random_delay"]


class _Way:
    """One direction of a link: messages arrive in their order, each some time after it was sent."""

    # The process of a test.
    pid: int | None = None

    def __init__(self, receive: Callable[[Any], None], delay: Callable[[], float]) -> None:
        self._receive = receive
        self._delay = delay
        self._free = 0.0
        self.is_cut = False
        # What has arrived since it was frozen, if it is.
        self.frozen: list[bytes] | None = None
        self.values: list[Any] = []
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        loop = asyncio.get_running_loop()
        data = packed(message)
        self.sent.append(message)
        if isinstance(message, Events):
            self.values += message.values
        if not self.is_cut:
            self._free = max(self._free, loop.time() + self._delay())
            loop.call_at(self._free, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.frozen is not None:
            self.frozen.append(data)
        elif not self.is_cut:
            self._receive(pickle.loads(data))

    def thaw(self) -> None:
        """Receive what has arrived meanwhile, and go on."""
        arrived, self.frozen = self.frozen or [], None
        for data in arrived:
            self._arrive(data)

    def close(self) -> None: ...

    def end(self, ended: Callable[[], object]) -> None:
        """Call `ended` when all that was sent has arrived."""
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._free, loop.time()) + 1e-6, lambda: self.is_cut or ended())


class _Worker:
    """One worker, from its start to its end."""

    def __init__(
        self,
        section: Section,
        window: int,
        received: Callable[[Any], None],
        lost: Callable[[str], None],
        delay: Callable[[], float],
    ) -> None:
        self._lost = lost
        self.down = _Way(lambda message: self.child.received(message), delay)
        self.up = _Way(received, delay)
        self.over = asyncio.Event()
        self.child = Child(section, self.up, window, self._end)

    def _end(self) -> None:
        self.over.set()
        self.up.end(lambda: self._lost("exit status 0"))


class LocalCrew:
    """`delay()` gives the seconds that a message is on its way."""

    def __init__(self, workers: int, delay: Callable[[], float] = lambda: 0.0) -> None:
        self.workers = workers
        self._delay = delay
        self._all: list[_Worker] = []
        self._now: dict[int, tuple[_Worker, Callable[[str], None]]] = {}

    def open(
        self,
        worker: int,
        section: Section,
        window: int,
        received: Callable[[Any], None],
        lost: Callable[[str], None],
    ) -> _Way:
        one = _Worker(section, window, received, lost, self._delay)
        self._all.append(one)
        one.down.pid = 1000 + len(self._all)
        self._now[worker] = one, lost
        return one.down

    def kill(self, worker: int) -> None:
        """End a worker at once: what it has and has not sent is lost."""
        one, lost = self._now.pop(worker)
        one.down.is_cut = one.up.is_cut = True
        one.child.abandon()
        one.over.set()
        asyncio.get_running_loop().call_soon(lost, "a test")

    def silence(self, worker: int) -> None:
        """Lose whatever a worker says from now on, as if it hung."""
        self._now[worker][0].up.is_cut = True

    def freeze(self, worker: int) -> None:
        """Let a worker receive and say nothing until it is thawed, as one that is stopped."""
        one, _ = self._now[worker]
        one.down.frozen, one.up.frozen = [], []

    def thaw(self, worker: int) -> None:
        """Let a frozen worker go on."""
        one, _ = self._now[worker]
        one.down.thaw()
        one.up.thaw()

    def values(self, worker: int) -> list[Any]:
        """The values that a worker was sent."""
        return self._now[worker][0].down.values

    def messages(self, worker: int) -> tuple[list[Any], list[Any]]:
        """The messages that were sent to a worker, and those that it has sent."""
        one, _ = self._now[worker]
        return one.down.sent, one.up.sent

    @property
    def alive(self) -> list[int]:
        return list(self._now)

    @property
    def started(self) -> int:
        """How many workers were started, those in place of others included."""
        return len(self._all)

    async def close(self) -> None:
        for worker in self._all:
            await worker.over.wait()
        # What they sent last may still be on its way.
        await asyncio.sleep(0.05)


def random_delay(seed: int, most: float) -> Callable[[], float]:
    """Up to `most` seconds, each message its own time."""
    draw = random.Random(seed)
    return lambda: draw.uniform(0.0, most)
