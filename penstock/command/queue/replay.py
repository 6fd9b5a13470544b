"""`penstock queue replay`: the history of a queue, and what other pollers would have made of it."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from math import ceil, isinf
from typing import Any

from orjson import OPT_APPEND_NEWLINE, dumps

from penstock.command.output import aligned, mention, put
from penstock.command.queue.text import span
from penstock.streams.base.errors import BuildError, counted
from penstock.streams.sql_queue import Store
from penstock.streams.sql_queue.analytics.replay import (
    Numbers,
    Past,
    Replay,
    Visit,
    observed,
    read_visits,
    replayed,
)

__all__ = ["history", "replay"]

_NOTHING = 1
_HEADING = (
    *("", "pollers", "batch", "limit", "waited p50", "p95"),
    *("total p50", "p95", "most waiting", "empty at (UTC)"),
)


async def history(name: str, store: Store, options: Namespace) -> list[Visit]:
    """The visits to replay. Raises BuildError for a table that does not say when its rows came."""
    if not store.layout.knows_arrivals:
        raise BuildError(
            f"{name}: the table does not say when its rows came, so it is not known how long they "
            "waited, and they cannot come again. Name a column with that time: --column enqueued="
        )
    return await read_visits(store, options.window)


def replay(visits: list[Visit], name: str, options: Namespace) -> int:
    """Print what was, the same again, and the history with other numbers; the exit status.

    The second line shows how far the third can be trusted.
    """
    past = observed(visits)
    if past is None:
        mention(f"{name}: no row ended in the last {span(options.window)}")
        return _NOTHING
    wanted = Numbers(
        options.pollers or past.numbers.pollers,
        options.batch or past.numbers.batch,
        options.limit or past.numbers.limit,
    )
    found = [("as it was", past.numbers, past.was)]
    found.append(("replayed as it was", past.numbers, replayed(past, past.numbers)))
    if wanted != past.numbers:
        found.append(("replayed", wanted, replayed(past, wanted)))
    if options.json:
        rows = [{"what": what, **_fields(numbers, one)} for what, numbers, one in found]
        return put(dumps(rows, option=OPT_APPEND_NEWLINE).decode())
    return put(_text(name, options.window, past, found))


def _text(name: str, window: float, past: Past, found: list[tuple[str, Numbers, Replay]]) -> str:
    lines = [f"{name}: {counted(len(past.was.total), 'row')} ended in the last {span(window)}"]
    if past.calls:
        lines.append(
            f"  a call of n rows took {past.each_call:.3g} s + n x {past.each_row:.3g} s, mostly"
        )
    rows = [
        (
            what,
            *(f"{number:,}" for number in (numbers.pollers, numbers.batch, numbers.limit)),
            *(
                f"{_percentile(times, p):,.3f}"
                for times in (one.waited, one.total)
                for p in (50, 95)
            ),
            f"{one.most:,}",
            _time(one.empty_at) if one.most else "-",
        )
        for what, numbers, one in found
    ]
    lines += aligned([_HEADING, *rows])
    if len(found) > 2:
        _, numbers, one = found[-1]
        lines.append(
            f"  with {_what(numbers)}, p95 would have been {_percentile(one.total, 95):.3g} s, "
            + (
                f"and from {_time(one.empty_at)} on no row waiting"
                if one.most
                else "and no row waiting at all"
            )
        )
    return "\n".join([*lines, ""])


def _what(numbers: Numbers) -> str:
    pollers = counted(numbers.pollers, "poller")
    return f"{pollers}, batch {numbers.batch}, limit {numbers.limit}"


def _fields(numbers: Numbers, one: Replay) -> dict[str, Any]:
    return {
        "pollers": numbers.pollers,
        "batch": numbers.batch,
        "limit": numbers.limit,
        "waited": {f"p{p}": _percentile(one.waited, p) for p in (50, 95, 99)},
        "total": {f"p{p}": _percentile(one.total, p) for p in (50, 95, 99)},
        "most_waiting": one.most,
        "empty_at": None if isinf(one.empty_at) or not one.most else one.empty_at,
    }


def _percentile(times: tuple[float, ...], percent: int) -> float:
    """By nearest rank, as in all statistics of a queue."""
    return times[ceil(percent * len(times) / 100) - 1]


def _time(seconds: float) -> str:
    """A time of the day, or that it does not come."""
    if isinf(seconds):
        return "not yet"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
