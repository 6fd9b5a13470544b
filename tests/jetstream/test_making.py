from __future__ import annotations

import asyncio

import pytest
from nats.js.errors import BadRequestError, ServiceUnavailableError

from streams.jetstream.making import made
from streams.testing import run_virtual

OFFLINE = BadRequestError(
    code=400, err_code=10005, description="no suitable peers for placement, peer offline"
)
FULL = BadRequestError(
    code=400, err_code=10005, description="no suitable peers for placement, insufficient storage"
)
NO_LEADER = ServiceUnavailableError(code=503, description="temporarily unavailable")


@pytest.mark.parametrize("error", [OFFLINE, NO_LEADER])
def test_what_servers_cannot_make_while_one_is_away_is_made_when_it_is_back(
    error: Exception,
) -> None:
    async def make() -> str:
        if asyncio.get_running_loop().time() < 20:
            raise error
        return "made"

    assert run_virtual(made(make)) == "made"


@pytest.mark.parametrize(("error", "seconds"), [(FULL, 0), (OFFLINE, 30)])
def test_what_cannot_be_made_for_good_fails_at_once_and_what_is_away_for_long_in_the_end(
    error: Exception, seconds: float
) -> None:
    async def make() -> None:
        raise error

    async def story() -> None:
        with pytest.raises(BadRequestError, match="no suitable peers"):
            await made(make)
        assert seconds <= asyncio.get_running_loop().time() <= seconds + 0.5

    run_virtual(story())
