"""Serves a number of requests at once, each in about 50 ms; the others wait in line.

`GET /work` works, `PUT /at_once/N` changes the number. Prints its port, ends with its input.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque

from aiohttp import web


class Slots:
    """A semaphore whose number can be changed; first come, first served."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken = 0
        self._line: deque[asyncio.Future[None]] = deque()

    def change(self, number: int) -> None:
        """Change the number; requests in work continue."""
        self._number = number
        self._let_in()

    async def take(self) -> None:
        """Wait for a slot."""
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        self._let_in()
        await place

    def give_back(self) -> None:
        """Let go of a slot."""
        self._taken -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._line and self._taken < self._number:
            place = self._line.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)


async def main() -> None:
    slots, draw = Slots(8), random.Random(1)

    async def work(request: web.Request) -> web.Response:
        await slots.take()
        try:
            # Gamma: a mean of 50 ms with a coefficient of variation of 0.3.
            await asyncio.sleep(draw.gammavariate(1 / 0.09, 0.05 * 0.09))
        finally:
            slots.give_back()
        return web.Response(text="done")

    async def at_once(request: web.Request) -> web.Response:
        slots.change(int(request.match_info["number"]))
        return web.Response(text="done")

    application = web.Application()
    application.add_routes([web.get("/work", work), web.put("/at_once/{number}", at_once)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
