"""`penstock dead-letters list|replay --on URLS`: what was given up on, and another try for it."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from orjson import OPT_APPEND_NEWLINE, dumps

from penstock.cluster_status import one_of
from penstock.output import mention, put
from penstock.run_on import PATIENCE, urls_of
from streams.errors import BuildError
from streams.jetstream.connection import connect, jetstream
from streams.jetstream.letters import letters_of, send_again
from streams.jetstream.outbox import Outbox
from streams.jetstream.view import layouts_there

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from streams.jetstream.layout import Layout

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """List the dead letters as JSON lines, or publish their events anew and delete them."""
    return asyncio.run(_work(options))


async def _work(options: argparse.Namespace) -> int:
    client = await connect(urls_of(options.on), patience=PATIENCE)
    try:
        js = jetstream(client)
        layouts = await layouts_there(js)
        name = options.name
        if name is None:
            if len(layouts) != 1:
                names = ", ".join(layout.name for layout, _ in layouts) or "none"
                raise BuildError(f"say which pipeline by --name; there are: {names}")
            name = layouts[0][0].name
        layout, _ = one_of(layouts, name)
        async with Outbox(client, doubt=layout.doubt) as outbox:
            return await _go_through(options, js, layout, outbox)
    finally:
        await client.close()


async def _go_through(
    options: argparse.Namespace, js: JetStreamContext, layout: Layout, outbox: Outbox
) -> int:
    chosen: set[int] = set(options.id or ())
    missing = set(chosen)
    sent = 0
    async for letter in letters_of(js, layout):
        if chosen and letter.sequence not in chosen:
            continue
        missing.discard(letter.sequence)
        if options.action == "list":
            status = put(_line(letter.as_dict()))
            if status:
                return status
        else:
            await send_again(outbox, js, layout, letter)
            sent += 1
    if options.action == "replay":
        mention(f"{sent:,} events published again")
    if missing:
        mention(f"no dead letter has the number {', '.join(map(str, sorted(missing)))}")
        return 1
    return 0


def _line(fields: dict[str, Any]) -> str:
    return dumps(fields, option=OPT_APPEND_NEWLINE).decode()
