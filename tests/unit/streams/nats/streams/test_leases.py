"""A reader begins only messages of which it is certain that no other reader has them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from penstock.streams.delivery.lease import Lease
from penstock.streams.nats.client.client import Client
from penstock.streams.nats.streams.leases import Leased, Leases
from penstock.streams.testing import run_virtual


class Server:
    """A server as a reader's client sees it, which may be silent."""

    def __init__(self) -> None:
        self.is_silent = False
        self.said: list[str] = []

    async def publish(self, subject: str, what: bytes) -> None:
        self.said.append(subject)

    async def request(self, subject: str, what: bytes, timeout: float) -> None:  # noqa: ASYNC109
        if self.is_silent:
            await asyncio.sleep(timeout)
            raise TimeoutError


def leases_of(server: Server) -> Leases[int, Leased]:
    now = asyncio.get_running_loop().time
    return Leases(cast(Client, server), "stream", "consumer", 30.0, now)


async def _renewing(leases: Leases[Any, Any]) -> None:
    while True:
        await leases.renew()


def test_a_lease_counts_from_before_a_question_that_the_server_has_answered_since() -> None:
    async def story() -> None:
        server = Server()
        leases, began = leases_of(server), asyncio.get_running_loop().time()
        assert leases.newest.until == began + 30
        await leases.renew()
        assert leases.newest.until == began + 40
        server.is_silent = True
        await leases.renew()
        assert leases.newest.until == began + 40

    run_virtual(story())


def test_a_lease_that_was_renewed_in_time_is_held_and_one_that_was_over_is_not() -> None:
    async def story() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        leases = leases_of(server)
        began = loop.time()
        held = leases.held[1] = Leased("held", leases.newest)
        over = leases.held[2] = Leased("over", Lease(loop.time, began + 5))
        await leases.renew()
        assert server.said == ["held", "over"]
        assert (held.lease.until, over.lease.until) == (began + 40, began + 5)

    run_virtual(story())


def test_a_message_that_came_during_a_renewal_is_not_renewed_by_it() -> None:
    async def story() -> None:
        leases, loop = leases_of(server := Server()), asyncio.get_running_loop()
        until = loop.time() + 30
        before = leases.held[1] = Leased("before", leases.newest)

        async def arrives(subject: str, what: bytes, timeout: float) -> None:  # noqa: ASYNC109
            leases.held[2] = Leased("during", leases.newest)

        server.request = arrives  # type: ignore[method-assign]
        await leases.renew()
        assert (before.lease.until, leases.held[2].lease.until) == (until + 10, until)

    run_virtual(story())


def test_a_server_that_was_silent_is_asked_again_soon_and_holds_what_is_not_over_by_then() -> None:
    async def story() -> None:
        server, loop = Server(), asyncio.get_running_loop()
        leases = leases_of(server)
        held = leases.held[1] = Leased("held", leases.newest)
        server.is_silent = True
        renewing = asyncio.create_task(_renewing(leases))
        await asyncio.sleep(25)
        server.is_silent = False
        await asyncio.sleep(3)
        assert held.lease.until > loop.time() + 25
        renewing.cancel()

    run_virtual(story())


def test_a_message_that_is_delivered_here_again_is_held_again_and_not_begun_twice() -> None:
    async def story() -> None:
        leases = leases_of(Server())
        lost = leases.held[1] = Leased("first", Lease(asyncio.get_running_loop().time))
        assert leases.came_again(1, "second")
        assert (lost.reply, lost.lease) == ("second", leases.newest)
        assert not leases.came_again(2, "other")

    run_virtual(story())
