"""Tables behind a real PgBouncer, in each of its pool modes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import collect, from_iterable, ops, read_table, write_table
from penstock.streams.base.errors import CannotOpen
from tests.helpers.until import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")

_INI = """[databases]
postgres = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 4
ignore_startup_parameters = extra_float_digits
"""
_NOBODY = 65534


@pytest.fixture
def pooled(postgres: str, tmp_path: Path) -> Generator[Callable[[str], str]]:
    """Start a PgBouncer with a pool mode, and return the URL."""
    with ExitStack() as ends:

        def start(mode: str) -> str:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port: int = free.getsockname()[1]
            server = postgres.rpartition(":")[2].partition("/")[0]
            text = _INI.format(server=server, port=port, mode=mode)
            options: dict[str, Any] = {}
            if os.geteuid() == 0:  # which it refuses
                options = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            file = tmp_path / f"{mode}.ini"
            file.write_text(text)
            with file.open() as given:
                process = subprocess.Popen(
                    [str(PROGRAM), "/dev/stdin"],
                    stdin=given,
                    stderr=subprocess.DEVNULL,
                    **options,
                )
            ends.callback(process.wait, 20)
            ends.callback(process.send_signal, signal.SIGTERM)
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            deadline = time.monotonic() + 20
            while True:
                try:
                    psycopg.connect(url).close()
                except psycopg.OperationalError:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                else:
                    return url

        yield start


async def write(url: str) -> None:
    await from_iterable([{"n": 1}, {"n": 2}]).to(write_table(url)).run()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_pools_of_transactions_and_statements_are_refused_and_nothing_is_set_there(
    pooled: Callable[[str], str], mode: str
) -> None:
    url = pooled(mode)
    for _ in range(3):
        with pytest.raises(CannotOpen, match="PgBouncer"):
            asyncio.run(read_table(url).to(collect([])).run())
        with pytest.raises(CannotOpen, match="PgBouncer"):
            asyncio.run(write(url))
    with psycopg.connect(url, autocommit=True) as other:
        assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert other.execute("SELECT to_regclass('queue')").fetchone() == (None,)


def test_a_pool_of_sessions_serves_readers_that_are_woken(pooled: Callable[[str], str]) -> None:
    url = pooled("session")

    async def story() -> list[Any]:
        values: list[Any] = []
        rows = read_table(url, poll=60.0).pipe(ops.take(4))
        reading = asyncio.ensure_future(rows.to(collect(values)).run())
        await write(url)
        await until(lambda: len(values) == 2)
        await write(url)
        async with asyncio.timeout(20):
            await reading
        return values

    assert [value["n"] for value in asyncio.run(story())] == [1, 2, 1, 2]
    with psycopg.connect(url, autocommit=True) as other:
        assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)
