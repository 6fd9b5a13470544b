"""Retries calls while the database is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.streams.errors import DatabaseUnavailable
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import cancellable
from penstock.streams.sql_queue.store import DatabaseLost
from penstock.streams.sql_queue.url import redacted

__all__ = ["Insistence"]

T = TypeVar("T")

# Seconds between two attempts, at first and at most.
_SOON, _LATEST = 0.05, 2.0


class Insistence:
    """Calls to one database, repeated while it is unavailable, for at most `patience` seconds.

    `lost` counts the outages.
    """

    def __init__(self, run: Run, url: str, patience: float) -> None:
        self._run = run
        self._name = redacted(url)
        self.patience = patience
        self.lost = 0
        self.is_away = False
        """Whether the last call failed, and is repeated."""

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call` returns. Raises DatabaseUnavailable, and what it raises otherwise."""
        since: float | None = None
        wait = _SOON
        while True:
            try:
                result = await cancellable(call())
                self.is_away = False
                return result
            except DatabaseLost as error:
                self.is_away = True
                now = self._run.now()
                if since is None:
                    since = now
                    self.lost += 1
                    self._run.errors.warn(
                        f"{self._name} is unavailable, trying again for {self.patience:g} s: "
                        f"{error}"
                    )
                if now - since >= self.patience:
                    raise DatabaseUnavailable(
                        f"{self._name} could not be used for {self.patience:g} s: {error}. Rows "
                        "whose outcomes could not be recorded are processed again when their "
                        "leases have run out."
                    ) from error
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LATEST)
