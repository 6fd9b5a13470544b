"""`penstock status --on URLS`: workers, lag and dead letters of pipelines and work pools."""

from __future__ import annotations

import argparse
import asyncio

from penstock.command.cluster.broker import Broker, broker_of
from penstock.command.output import put_one

__all__ = ["call"]

_EVERY = 1.0


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Print the state of one pipeline, of one work pool, or of all, once or (`--watch`) each
    second."""
    try:
        return asyncio.run(_show(broker_of(options), watch=options.watch))
    except KeyboardInterrupt:
        return 0


async def _show(broker: Broker, *, watch: bool) -> int:
    async with broker.looking() as look:
        while True:
            status = put_one("\n".join(await look()), of_many=watch)
            if status is not None:
                return status
            await asyncio.sleep(_EVERY)
