from __future__ import annotations

import asyncio

import pytest
from nats.errors import NoRespondersError
from nats.js.errors import BadRequestError, NotFoundError, ServiceUnavailableError

from penstock.streams.base.errors import CannotConnect
from penstock.streams.nats.client.answers import answered
from penstock.streams.testing import run_virtual

OFFLINE = BadRequestError(
    code=400, err_code=10005, description="no suitable peers for placement, peer offline"
)
FULL = BadRequestError(
    code=400, err_code=10005, description="no suitable peers for placement, insufficient storage"
)
NO_LEADER = ServiceUnavailableError(code=503, description="temporarily unavailable")


@pytest.mark.parametrize("error", [OFFLINE, NO_LEADER, TimeoutError()])
def test_what_servers_cannot_say_while_one_is_away_is_asked_until_it_is_back(
    error: Exception,
) -> None:
    async def ask() -> str:
        if asyncio.get_running_loop().time() < 20:
            raise error
        return "said"

    assert run_virtual(answered(ask)) == "said"


@pytest.mark.parametrize(
    ("error", "seconds", "raised"),
    [
        (FULL, 0, BadRequestError),
        (NotFoundError(), 0, NotFoundError),
        (OFFLINE, 30, CannotConnect),
        (NO_LEADER, 30, CannotConnect),
        (ServiceUnavailableError(), 3, CannotConnect),
        (NoRespondersError(), 3, CannotConnect),
    ],
)
def test_a_permanent_failure_fails_at_once_and_a_long_absence_in_the_end(
    error: Exception, seconds: float, raised: type[Exception]
) -> None:
    async def ask() -> None:
        raise error

    async def story() -> None:
        with pytest.raises(raised):
            await answered(ask)
        assert seconds <= asyncio.get_running_loop().time() <= seconds + 0.5

    run_virtual(story())


def test_it_is_said_once_that_calls_wait_for_servers(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> str:
        if 0 < asyncio.get_running_loop().time() % 100 < 20:
            raise NO_LEADER
        return "said"

    async def story() -> None:
        await asyncio.sleep(1)
        await asyncio.gather(*(answered(ask) for _ in range(3)))
        assert caplog.text.count("waiting for the NATS servers, which have answered no") == 1
        await asyncio.sleep(90)
        await asyncio.gather(*(answered(ask) for _ in range(3)))
        assert caplog.text.count("waiting for the NATS servers, which have answered no") == 2

    run_virtual(story())
