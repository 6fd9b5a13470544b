"""What happens to the rows of a table, and to their order, while readers and the server fail."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from orjson import dumps

from streams.table import open_store
from tests.servers.postgres import Postgres
from tests.system.checker import Verdict, check
from tests.system.log import Log, entries_of

CLIENTS, EVENTS, LEASE, ATTEMPTS = 20, 30, 1.5, 3
PATIENCE = 90.0

PIPELINE = """
import asyncio
import os
import random
import sys
import time

from operators import adaptive_flat_map, group_by, spread
from sinks import for_each
from sources import read_table
from streams.faults import Backoff
from tests.system.log import Log

URL, LEASE, ATTEMPTS = sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
log = Log(sys.argv[1], sys.argv[2])


async def handler(event):
    with log.working(event["client"], event["seq"]):
        if event.get("kills"):
            os._exit(7)
        if event.get("blocks"):
            time.sleep(2.5 * LEASE)
        await asyncio.sleep(random.uniform(0, 0.03))
    return event


pipeline = (
    read_table(URL, by="client", lease=LEASE, attempts=ATTEMPTS, batch=100, poll=0.1)
    .pipe(group_by("client"), spread(), adaptive_flat_map(handler))
    .to(for_each(lambda event: log.sink(event["client"], event["seq"])))
)
"""
"""Its arguments: the log, the poller's name, the URL, the lease and the attempts."""


class Pollers:
    """Processes that read one table; killed at the end."""

    def __init__(self, url: str, folder: Path) -> None:
        self.sent = {f"client {n}": EVENTS for n in range(CLIENTS)}
        self.url = url
        self._folder = folder
        self._file = folder / "pollers.py"
        self._file.write_text(PIPELINE, encoding="utf-8")
        self.path = folder / "log"
        self._log = Log(self.path, "pollers")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0

    def start(self) -> str:
        self._count += 1
        name = f"poller {self._count}"
        with open(self._folder / f"{name}.err", "wb") as errors:
            self._processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "penstock", "run", str(self._file), "--"),
                    *(str(self.path), name, self.url, str(LEASE), str(ATTEMPTS)),
                ],
                stderr=errors,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        return name

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()
        self.reap()

    def freeze(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)
        self._log.note("frozen", process=name)

    def wake(self, name: str) -> None:
        self._log.note("woken", process=name)
        self._processes[name].send_signal(signal.SIGCONT)

    def reap(self) -> int:
        """Write down who has ended; how many did."""
        gone = [name for name, process in self._processes.items() if process.poll() is not None]
        for name in gone:
            del self._processes[name]
            self._log.note("gone", process=name)
        return len(gone)

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self._log.close()

    def verdict(self) -> Verdict:
        return check(entries_of(self.path), self.sent)

    def stale_starts(self, process: str) -> list[tuple[str, int]]:
        """What a process began after it woke, though it had arrived elsewhere before."""
        sunk: set[tuple[str, int]] = set()
        stale: list[tuple[str, int]] = []
        woken = False
        for _, who, what, client, seq in entries_of(self.path):
            if what == "sink":
                sunk.add((client, seq))
            elif who == process:
                woken = woken or what == "woken"
                if woken and what == "start" and (client, seq) in sunk:
                    stale.append((client, seq))
        return stale

    def arrived(self) -> int:
        return len(self.verdict().sunk)

    def until(self, true: Callable[[], bool], *, replace: bool = False) -> None:
        """Wait; with `replace` a poller that ends is followed by another."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            for _ in range(self.reap() if replace else 0):
                self.start()
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.1)

    def _story(self) -> str:
        errors = {path.name: path.read_text()[-500:] for path in self._folder.glob("*.err")}
        return f"{len(self.verdict().lost)} are missing: {asyncio.run(self.rows())} {errors}"

    async def fill(self, special: dict[tuple[str, int], dict[str, Any]]) -> None:
        store = open_store(self.url)
        await store.open()
        await store.put(
            [
                dumps({"client": client, "seq": seq, **special.get((client, seq), {})})
                for seq in range(1, EVENTS + 1)
                for client in self.sent
            ]
        )
        await store.close()

    async def rows(self) -> Counter[int]:
        """How many rows there are of each status."""
        store = open_store(self.url)
        await store.open()
        found = await store.read("SELECT {status} FROM {table}")
        await store.close()
        return Counter(status for (status,) in found)


@contextmanager
def two(
    url: str, folder: Path, special: dict[tuple[str, int], dict[str, Any]] | None = None
) -> Generator[tuple[Pollers, str, str]]:
    pollers = Pollers(url, folder)
    asyncio.run(pollers.fill(special or {}))
    try:
        first, second = pollers.start(), pollers.start()
        pollers.until(lambda: pollers.path.exists() and pollers.arrived() > CLIENTS)
        yield pollers, first, second
    finally:
        pollers.close()


def check_all(pollers: Pollers, but: frozenset[tuple[str, int]] = frozenset()) -> None:
    pollers.until(lambda: pollers.verdict().lost <= but)
    verdict = pollers.verdict()
    assert verdict.lost == but
    assert verdict.misordered == [(client, seq + 1) for client, seq in but]
    assert verdict.overlaps_awake() == []


@pytest.mark.parametrize("frozen", [False, True])
def test_a_reader_that_is_killed_or_frozen_loses_nothing_and_wakes_beside_nobody(
    database: str, tmp_path: Path, run_seed: int, frozen: bool
) -> None:
    random_ = random.Random(run_seed)
    with two(database, tmp_path) as (pollers, first, _):
        time.sleep(random_.uniform(0, 0.5))
        if frozen:
            pollers.freeze(first)
            time.sleep(random_.uniform(1.5, 3.0) * LEASE)
            pollers.wake(first)
            # It has time to do what it must not.
            time.sleep(LEASE)
        else:
            pollers.kill(first)
        check_all(pollers)
        assert pollers.stale_starts(first) == []


@pytest.mark.parametrize("what", ["kills", "blocks"])
def test_a_row_that_kills_or_blocks_its_readers_is_dead_and_takes_no_other_with_it(
    database: str, tmp_path: Path, run_seed: int, what: str
) -> None:
    random_ = random.Random(run_seed)
    poison = (f"client {random_.randrange(CLIENTS)}", random_.randrange(10, EVENTS))
    with two(database, tmp_path, {poison: {what: True}}) as (pollers, _, _):
        if what == "kills":
            pollers.until(lambda: pollers.verdict().lost == {poison}, replace=True)
            rows = Counter({1: CLIENTS * EVENTS - 1, -1: 1})
            pollers.until(lambda: asyncio.run(pollers.rows()) == rows, replace=True)
            check_all(pollers, frozenset({poison}))
            assert pollers.verdict().starts[poison] == ATTEMPTS
        else:
            # Whoever was blocked may still finish it when nobody else had taken it.
            pollers.until(lambda: pollers.verdict().lost <= {poison})
            pollers.until(lambda: 9 not in (rows := asyncio.run(pollers.rows())) and 0 not in rows)
            assert asyncio.run(pollers.rows())[1] >= CLIENTS * EVENTS - 1
            assert pollers.verdict().starts[poison] <= ATTEMPTS


@pytest.fixture
def mortal() -> Generator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


def test_a_server_that_is_killed_and_comes_back_gives_no_key_to_two_readers(
    mortal: Postgres, tmp_path: Path, run_seed: int
) -> None:
    random_ = random.Random(run_seed)
    with two(mortal.url, tmp_path) as (pollers, _, _):
        for _ in range(2):
            time.sleep(random_.uniform(0, 0.4))
            mortal.kill()
            mortal.start()
        check_all(pollers)
