"""`penstock queue ACTION URL`: inspect and maintain a queue in a database table."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from orjson import OPT_APPEND_NEWLINE, Fragment, JSONDecodeError, dumps, loads

from penstock.command.output import mention, put, put_one
from penstock.command.pipelines.options import Options
from penstock.command.pipelines.run import execute, warnings_to_standard_error
from penstock.command.queue.views import check, look
from penstock.streams.base.errors import DatabaseUnavailable, counted
from penstock.streams.sql_queue import (
    DEAD,
    IN_PROCESS,
    PROCESSED,
    UNPROCESSED,
    DatabaseLost,
    Store,
    open_store,
    redacted,
)
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import (
    Found,
    Refusals,
    cancel,
    known,
    peek,
    purge,
    retry,
    retry_some,
)

__all__ = ["call"]

_T = TypeVar("_T")

# The most rows that are named.
_SHOWN = 10

_STATES = {
    "waiting": UNPROCESSED,
    "failed": UNPROCESSED,
    "in-work": IN_PROCESS,
    "finished": PROCESSED,
    "dead": DEAD,
}


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run an action; returns the exit status: 1 if not all of it could be done."""
    if options.action == "put":
        return _put(options)
    if options.action == "stats":
        check(options)
    try:
        if options.action == "replay":
            return _replay(options)
        return asyncio.run(_with_store(options, _ACTIONS[options.action]))
    except (DatabaseLost, DatabaseUnavailable) as error:
        mention(f"{redacted(options.url)} could not be used: {error}")
        return 1
    except KeyboardInterrupt:
        return 0


def _put(options: argparse.Namespace) -> int:
    from penstock.sinks.dead_letter import dead_letters
    from penstock.sinks.table import write_table
    from penstock.sources.jsonl import read_jsonl
    from penstock.streams.failures.policy import route

    warnings_to_standard_error()
    path = options.dead_letters
    routed = None if path is None else route(dead_letters(path))
    sink = write_table(
        options.url,
        options.table,
        queue=_mapping(options),
        beside=options.beside,
        run_at=None if options.at is None else lambda _: options.at,
        priority=None if options.priority is None else lambda _: options.priority,
        on_error=routed or "skip",
        patience=10.0,
    )
    pipeline = read_jsonl(on_bad_line=routed or "report").to(sink)
    return execute(pipeline, Options(input=options.input, report=options.report))


async def _with_store(
    options: argparse.Namespace, action: Callable[[Store, argparse.Namespace], Awaitable[_T]]
) -> _T:
    store = open_store(options.url, options.table, _mapping(options), beside=options.beside)
    try:
        await store.open(Required(make=False))
        return await action(store, options)
    finally:
        await store.close()


def _mapping(options: argparse.Namespace) -> dict[str, str] | None:
    return dict(options.column) if options.column else None


async def _stats(store: Store, options: argparse.Namespace) -> int:
    name = f"{options.table} in {redacted(options.url)}"
    watches = options.watch is not None
    while True:
        found, text = await look(store, name, options)
        if options.json:
            text = dumps(found, option=OPT_APPEND_NEWLINE).decode()
        status = put_one(text, of_many=watches, line=options.json)
        if status is not None:
            return status
        await asyncio.sleep(options.watch)


async def _peek(store: Store, options: argparse.Namespace) -> int:
    state = options.state
    for row in await peek(store, options.count, _STATES[state], failed=state == "failed"):
        if status := put(_line(row)):
            return status
    return 0


def _line(row: Found) -> str:
    payload = row.payload
    shown: object = payload
    if payload is not None:
        try:
            loads(payload)
            shown = Fragment(payload)
        except JSONDecodeError:
            if isinstance(payload, bytes):
                shown = payload.decode("utf-8", "backslashreplace")
    fields: dict[str, object] = {
        "id": row.id,
        "attempts": row.attempts,
        "enqueued": _time(row.enqueued),
        "run_at": _time(row.run_at),
        "priority": row.priority or None,
    }
    fields |= {"owner": row.owner, "error": row.error}
    fields = {name: value for name, value in fields.items() if value is not None}
    # Ids in a user's own table may be bytes.
    return dumps({**fields, "payload": shown}, str, OPT_APPEND_NEWLINE).decode()


def _time(seconds: float | str | None) -> datetime | str | None:
    if isinstance(seconds, str):
        return seconds  # of another program, in SQLite
    return None if seconds is None else datetime.fromtimestamp(round(seconds, 3), UTC)


async def _retry(store: Store, options: argparse.Namespace) -> int:
    refused: Refusals = []
    if not options.id:
        mention(f"{_rows(await retry(store, refused))} will be tried again")
        return _status(refused)
    asked = set(options.id)
    found = await retry_some(store, asked, refused)
    mention(f"{_rows(len(found))} will be tried again")
    if others := sorted(asked - found - {id for id, _ in refused}):
        mention(f"not {', '.join(map(str, others))}: there is no such row, or it has not failed")
        return _status(refused) or 1
    return _status(refused)


async def _cancel(store: Store, options: argparse.Namespace) -> int:
    refused: Refusals = []
    asked = set(options.id)
    found = await cancel(store, asked, refused)
    mention(f"{_rows(len(found))} cancelled")
    others = asked - found - {id for id, _ in refused}
    ended = await known(store, others)
    for ids, why in ((ended, "already ended"), (others - ended, "there is no such row")):
        if ids:
            mention(f"not {', '.join(map(str, sorted(ids)))}: {why}")
    return _status(refused) or bool(others)


async def _purge(store: Store, options: argparse.Namespace) -> int:
    refused: Refusals = []
    count = await purge(store, options.older_than, refused, dead=options.dead)
    mention(f"{_rows(count)} deleted")
    return _status(refused)


async def _pause(store: Store, options: argparse.Namespace, *, paused: bool) -> int:
    was = await store.is_paused()
    await store.pause(paused)
    again = "" if was != paused else ", as before"
    mention(f"table {options.table!r} is {'paused' if paused else 'not paused'}{again}")
    return 0


async def _upgrade(store: Store, options: argparse.Namespace) -> int:
    changed = await store.upgrade()
    mention(f"table {options.table!r} " + ("has priorities now" if changed else "lacks nothing"))
    return 0


def _status(refused: Refusals) -> int:
    """Report the rows for which the database refused it; 1 if there are any."""
    for id, error in refused[:_SHOWN]:
        mention(f"not {id}: the database refuses it: {' '.join(str(error).split())}")
    if len(refused) > _SHOWN:
        mention(f"nor {_rows(len(refused) - _SHOWN)} more")
    return 1 if refused else 0


def _rows(count: int) -> str:
    return counted(count, "row")


def _replay(options: argparse.Namespace) -> int:
    from penstock.command.queue.replay import history, replay

    name = f"{options.table} in {redacted(options.url)}"
    visits = asyncio.run(_with_store(options, partial(history, name)))
    # Outside the loop, in which a signal would wait for the end of it.
    return replay(visits, name, options)


_ACTIONS: dict[str, Callable[[Store, argparse.Namespace], Awaitable[int]]] = {
    "stats": _stats,
    "peek": _peek,
    "retry": _retry,
    "cancel": _cancel,
    "purge": _purge,
    "pause": partial(_pause, paused=True),
    "resume": partial(_pause, paused=False),
    "upgrade": _upgrade,
}
