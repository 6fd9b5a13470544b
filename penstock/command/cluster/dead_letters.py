"""`penstock dead-letters list|replay --on URLS`: lists dead letters, or tries them again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterable

from orjson import OPT_APPEND_NEWLINE, dumps

from penstock.command.cluster.broker import Stored, broker_of
from penstock.command.output import counted, mention, put
from penstock.streams.base.errors import EventOmitted, PenstockError
from penstock.streams.io.letter import Letter

__all__ = ["Chosen", "call", "list_letters", "publish_again"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """List the dead letters as JSON lines, or publish their events or jobs again and delete
    them."""
    return asyncio.run(_work(options))


async def _work(options: argparse.Namespace) -> int:
    chosen = Chosen(options.id)
    async with broker_of(options).letters() as letters:
        some = (stored async for stored in letters.stored if chosen.has(stored[0]))
        work = list_letters if options.action == "list" else letters.replay or publish_again
        status = await work(some)
    return chosen.status(status)


class Chosen:
    """The dead letters with the numbers of `--id`, or all if it is not given."""

    def __init__(self, numbers: Iterable[int] | None) -> None:
        self._numbers = frozenset(numbers or ())
        self._missing = set(self._numbers)

    def has(self, letter: Letter) -> bool:
        """Whether this letter, which is there, is chosen."""
        self._missing.discard(letter.sequence)
        return not self._numbers or letter.sequence in self._numbers

    def status(self, status: int) -> int:
        """The exit status, of a command that would have this one if no number was missing."""
        if status or not self._missing:
            return status
        mention(f"no dead letter has the number {', '.join(map(str, sorted(self._missing)))}")
        return 1


async def list_letters(letters: AsyncIterator[Stored]) -> int:
    """Print each letter as a line of JSON; returns the exit status."""
    async for letter, _ in letters:
        status = put(dumps(letter.as_dict(), option=OPT_APPEND_NEWLINE).decode())
        if status:
            return status
    return 0


async def publish_again(letters: AsyncIterator[Stored]) -> int:
    """Publish the event of each letter; returns the exit status.

    A letter without its whole event is reported and left out; any other error ends it.
    """
    sent = status = 0
    async for letter, publish in letters:
        try:
            await publish()
        except EventOmitted as error:
            mention(str(error))
            status = 1
            continue
        except PenstockError as error:
            mention(
                f"{counted(sent, 'event')} published again, but not dead letter "
                f"{letter.sequence}: {error}"
            )
            return 1
        sent += 1
    mention(f"{counted(sent, 'event')} published again")
    return status
