"""Retries calls while the database is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from penstock.streams.base.database_url import redacted
from penstock.streams.base.errors import DatabaseUnavailable
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.tasks import cancellable
from penstock.streams.sql_queue.rows import Database
from penstock.streams.sql_queue.store import DatabaseLost

__all__ = ["Reconnecting"]

T = TypeVar("T")

# Seconds between two attempts, at first and at most.
_SOON, _LATEST = 0.05, 2.0
# Seconds after which it is said that a call waits.
_SILENT = 4.0

_LEASES = (
    "Rows whose outcomes could not be recorded are processed again when their leases have run out."
)


class Reconnecting:
    """Calls to one database, repeated while it is unavailable, for at most `patience` seconds.

    `lost` counts the outages. A call that takes longer than four seconds is said to wait, with
    whom it waits for if the database knows that. `after` says what becomes of events when the
    patience is over.
    """

    def __init__(self, run: Run, store: Database, patience: float, after: str = _LEASES) -> None:
        self._run = run
        self._after = after
        self._store = store
        self._name = redacted(store.url)
        # How many calls wait, since when the first does, and how long others did before.
        self._waiting, self._since, self._waited = 0, 0.0, 0.0
        self.patience = patience
        self.lost = 0
        self.is_away = False
        """Whether the last call failed, and is repeated."""

    @property
    def waited(self) -> float:
        """The seconds in which calls were waiting for longer than four seconds."""
        return self._waited + (self._run.now() - self._since if self._waiting else 0.0)

    @contextmanager
    def _watched(self) -> Generator[None, None, None]:
        began, waits = self._run.now(), False

        def tell() -> None:
            nonlocal waits
            waits = True
            self._waiting += 1
            if self._waiting == 1:
                self._since = began
                self._run.spawn(self._tell(), "say who blocks the table")

        telling = self._run.call_later(_SILENT, None, tell)
        try:
            yield
        finally:
            telling.cancel()
            if waits:
                if self._waiting == 1:
                    self._waited = self.waited
                self._waiting -= 1

    async def _tell(self) -> None:
        who = await self._store.blockers()
        self._run.errors.warn(
            f"{self._name}: table {self._store.layout.table!r} has not answered for {_SILENT:g} s"
            + (f", waiting for {who}" if who else "")
        )

    async def __call__(self, call: Callable[[], Awaitable[T]], *, idle: bool = False) -> T:
        """The result of `call`. Raises DatabaseUnavailable, and what it raises otherwise. An `idle`
        one waits on purpose."""
        since: float | None = None
        wait = _SOON
        while True:
            try:
                with nullcontext() if idle else self._watched():
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
                        f"{self._name} could not be used for {self.patience:g} s: {error}. "
                        f"{self._after}"
                    ) from error
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LATEST)
