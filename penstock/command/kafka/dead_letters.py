"""`penstock dead-letters list|replay --on kafka://...`: lists dead letters, or tries them again."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from functools import partial

from penstock.command.dead_letters import Chosen, list_letters, publish_again
from penstock.command.kafka.place import PATIENCE, layout_of
from penstock.command.output import mention
from penstock.streams.kafka.cluster.letters import Replay, StoredLetter, letters_of

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """List the dead letters as JSON lines, or write their events to the topic again and delete
    them."""
    return asyncio.run(_work(options))


async def _work(options: argparse.Namespace) -> int:
    layout = layout_of(options)
    chosen = Chosen(options.id)

    async def letters() -> AsyncIterator[StoredLetter]:
        for stored in letters_of(layout, PATIENCE, mention):
            if chosen.has(stored.letter):
                yield stored

    if options.action == "list":
        status = await list_letters(stored.letter async for stored in letters())
    else:
        replay = Replay(layout)

        async def send(stored: StoredLetter) -> None:
            replay.send(stored)

        status = await publish_again(
            (stored.letter, partial(send, stored)) async for stored in letters()
        )
    return chosen.status(status)
