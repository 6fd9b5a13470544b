"""Processes that read one table, and the log that their handlers write.

`Pollers` kills, freezes and wakes them, and records that in the log too. The outcome of rows and
results is read from the database.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from orjson import dumps, loads

from penstock.streams.sql_queue import DEAD, IN_PROCESS, Store, open_store
from penstock.streams.sql_queue.analytics.statistics import QueueStats, measure
from penstock.streams.sql_queue.schema import Required
from penstock.streams.sql_queue.upkeep import Found, cancel, peek
from tests.helpers.beside import make_own
from tests.helpers.system.checker import Verdict, check
from tests.helpers.system.children import freeze
from tests.helpers.system.fleet import ENVIRONMENT, PATIENCE
from tests.helpers.system.log import Log, entries_of
from tests.helpers.system.poller import Orders

__all__ = ["Pollers"]

_PIPELINE = """
import sys
from tests.helpers.system.poller import pipeline_of

pipeline = pipeline_of(*sys.argv[1:])
"""

T = TypeVar("T")

Event = tuple[str, int]
"""The client and the number of an event."""


class Pollers:
    """Pollers of a table with `events` of each client, numbered from 1; killed at the end of the
    block. `special` adds fields to some of the events, `padding` a number of letters to all. `bad`
    are payloads that fail for good, by the number of the row that each precedes. Some of the
    clients may have special `names`."""

    def __init__(
        self,
        orders: Orders,
        folder: Path,
        *,
        clients: int = 20,
        events: int = 30,
        special: dict[Event, dict[str, Any]] | None = None,
        padding: int = 0,
        bad: Mapping[int, str] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.orders = orders
        all_names = [*names, *(f"client {n}" for n in range(len(names), clients))]
        self.sent = dict.fromkeys(all_names, events)
        self._bad = bad or {}
        self.path = folder / "log"
        self._folder = folder
        self._file = folder / "pollers.py"
        self._file.write_text(_PIPELINE, encoding="utf-8")
        self._log = Log(self.path, "pollers")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0
        if orders.beside:
            make_own(orders.url)
        self.ask(lambda store: self._fill(store, special or {}, padding), make=True)

    async def _fill(self, store: Store, special: dict[Event, dict[str, Any]], padding: int) -> None:
        id_ = "bigserial" if self.orders.url.startswith("postgres") else "integer PRIMARY KEY"
        await store.query(
            f"CREATE TABLE results (id {id_}, client text, seq integer, padding text)"
        )
        more = {"padding": "x" * padding} if padding else {}
        events = [
            dumps({"client": one, "seq": seq, **more, **special.get((one, seq), {})})
            for seq in range(1, max(self.sent.values()) + 1)
            for one in self.sent
        ]
        rows: list[bytes | str] = []
        for number, event in enumerate(events):
            if number in self._bad:
                rows.append(self._bad[number])
            rows.append(event)
        await store.put(rows)
        if self.orders.ranked:
            # Also among the rows of each client, which are nevertheless done in their order.
            await store.query("UPDATE {table} SET {priority} = {id} * 7919 % 5")

    def __enter__(self) -> Pollers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self._log.close()

    # Processes.

    def start(self, **changes: Any) -> str:
        """Start one, with some of its orders changed; return its name."""
        self._count += 1
        name = f"poller {self._count}"
        orders = replace(self.orders, **changes)
        with open(self._errors(name), "wb") as errors:
            self._processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "run", str(self._file)),
                    *("--report", "json", "--drain-deadline", str(PATIENCE)),
                    *("--", str(self.path), name, dumps(asdict(orders)).decode()),
                ],
                stderr=errors,
                env=ENVIRONMENT,
            )
        return name

    def start_two(self) -> tuple[str, str]:
        """Start two, and wait until they are at work."""
        first, second = self.start(), self.start()
        self.until(lambda: self.are_there(first, second) and self.arrived() > len(self.sent))
        return first, second

    def are_there(self, *names: str) -> bool:
        """Whether they have found the table."""
        there = {entry.process for entry in entries_of(self.path) if entry.what == "there"}
        return there >= set(names)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()
        self.reap()

    def freeze(self, name: str) -> None:
        freeze(self._processes[name])
        self._log.note("frozen", process=name)

    def freeze_between_writes(self, name: str) -> None:
        """The same, at a moment when it blocks no row for others."""
        while True:
            self.freeze(name)
            if not is_being_written(self.orders.url):
                return
            self.wake(name)
            time.sleep(0.01)

    def wake(self, name: str) -> None:
        self._log.note("woken", process=name)
        self._processes[name].send_signal(signal.SIGCONT)

    def ended(self, name: str) -> int:
        """Wait for the end of one; return its exit status."""
        status = self._processes[name].wait(PATIENCE)
        self.reap()
        return status

    def cancelled(self, name: str) -> None:
        """Cancel one: as by Ctrl-C that is pressed twice."""
        while self._processes[name].poll() is None:
            self._processes[name].send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.reap()

    def drained(self, name: str) -> dict[str, Any]:
        """Drain one; return the counts of its source."""
        self._processes[name].send_signal(signal.SIGTERM)
        # Drained, or with rows that another has.
        assert self.ended(name) in (3, 4), self.said(name)
        return self.counted(name)

    def counted(self, name: str) -> dict[str, Any]:
        """The counts of the source of one that has ended by itself."""
        report = loads(self.said(name)[self.said(name).index('\n{"') :])
        numbers: dict[str, Any] = report["statistics"]["stages"][0]
        return numbers

    def said(self, name: str) -> str:
        """The standard error of one."""
        return "\n" + self._errors(name).read_text(encoding="utf-8")

    def _errors(self, name: str) -> Path:
        return self._folder / f"{name}.err"

    def reap(self) -> int:
        """Record who has ended; return how many did."""
        gone = [name for name, process in self._processes.items() if process.poll() is not None]
        for name in gone:
            del self._processes[name]
            self._log.note("gone", process=name)
        return len(gone)

    # Reading the log.

    def verdict(self, *, given_up: Collection[Event] = ()) -> Verdict:
        return check(entries_of(self.path), self.sent, given_up)

    def arrived(self) -> int:
        return len(self.verdict().sunk)

    def begun(self, process: str) -> set[Event]:
        """The events that a process has begun."""
        entries = entries_of(self.path)
        return {(one.client, one.seq) for one in entries if one[1:3] == (process, "start")}

    def stale_starts(self, process: str) -> list[Event]:
        """Events that a process began after it woke, although they had arrived elsewhere before."""
        sunk: set[Event] = set()
        stale: list[Event] = []
        woken = False
        for _, who, what, client, seq in entries_of(self.path):
            if what == "sink":
                sunk.add((client, seq))
            elif who == process:
                woken = woken or what == "woken"
                if woken and what == "start" and (client, seq) in sunk:
                    stale.append((client, seq))
        return stale

    # Reading the database.

    def ask(self, question: Callable[[Store], Coroutine[Any, Any, T]], *, make: bool = False) -> T:
        async def asking() -> T:
            async with _opened(self.orders, make=make) as store:
                return await question(store)

        return asyncio.run(asking())

    def stats(self) -> QueueStats:
        return self.ask(lambda store: measure(store, 60.0))

    def has_left(self) -> bool:
        """Whether rows of a key are left in the table."""

        async def look(store: Store) -> bool:
            keys = await store.read("SELECT 1 FROM {keys} WHERE owner LIKE :left", left="% left")
            return bool(keys)

        return self.ask(look)

    def cancel_in_work(self, count: int) -> list[Event]:
        """Cancel some of the rows that are in work; returns their events."""

        async def some(store: Store) -> list[Event]:
            rows = {row.id: row for row in await peek(store, count, IN_PROCESS)}
            events = [loads(rows[id].payload or "") for id in await cancel(store, list(rows), [])]
            return [(event["client"], event["seq"]) for event in events]

        return self.ask(some)

    def dead(self) -> list[Found]:
        return self.ask(lambda store: peek(store, 100, DEAD))

    def results(self) -> list[Event]:
        """The events of the results, in the order in which these were written."""
        rows = self.ask(lambda store: store.read("SELECT client, seq FROM results ORDER BY id"))
        return [(client, seq) for client, seq in rows]

    # Waiting, and the promises.

    def until(self, true: Callable[[], bool], *, replace: bool = False) -> None:
        """Wait; with `replace` a poller that ends is replaced by another."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            gone = self.reap()
            for _ in range(gone if replace else 0):
                self.start()
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.1)

    def _story(self) -> str:
        errors = {path.name: path.read_text()[-500:] for path in self._folder.glob("*.err")}
        return f"{len(self.verdict().lost)} are missing: {self.stats()} {errors}"

    def until_done(self, *, replace: bool = False) -> None:
        """Wait until every row is processed, or has failed for good; `replace` as in `until`."""

        def done() -> bool:
            stats = self.stats()
            return stats.finished + stats.dead == sum(self.sent.values()) + len(self._bad)

        self.until(done, replace=replace)

    def check(
        self,
        *,
        dead: frozenset[Event] = frozenset(),
        repeats: bool = True,
        overlapping: bool = False,
    ) -> None:
        """Check that every event except the `dead` ones arrived, and that its result is there once;
        with `by` that clients have one at a time, in order, and so their results. Without `repeats`
        each was processed once. Pollers that could not know that they had lost their work are
        `overlapping`."""
        self.until_done()
        verdict = self.verdict(given_up=dead)
        assert verdict.lost <= dead
        if self.orders.by:
            assert verdict.misordered == []
            assert overlapping or verdict.overlaps_awake() == []
        if not repeats:
            assert set(verdict.starts.values()) == set(verdict.sunk.values()) == {1}
        stats = self.stats()
        failed = len(dead) + len(self._bad)
        assert (stats.waiting, stats.failed, stats.in_work, stats.dead) == (0, 0, 0, failed)
        if self.orders.results:
            results = self.results()
            assert len(results) == len(set(results)) == sum(self.sent.values()) - len(dead)
            # Stably, so that those of a client stay as they were written.
            by_client = sorted(results, key=lambda event: event[0])
            assert not self.orders.by or by_client == sorted(results)


def is_being_written(url: str) -> bool:
    """Whether a process has begun a transaction in a database and does not end it."""
    try:
        if url.startswith("sqlite"):
            db = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
            with closing(db):
                db.execute("BEGIN IMMEDIATE")
            return False
        with psycopg.connect(url, autocommit=True) as connection:
            # A running statement ends by itself.
            time.sleep(0.1)
            rows = connection.execute(
                "SELECT FROM pg_stat_activity WHERE application_name = 'penstock' "
                "AND state <> 'idle'"
            )
            return bool(rows.fetchall())
    except sqlite3.OperationalError:
        return True


@asynccontextmanager
async def _opened(orders: Orders, *, make: bool) -> AsyncGenerator[Store]:
    store = open_store(orders.url, beside=orders.beside)
    try:
        await store.open(Required(make=make))
        yield store
    finally:
        await store.close()
