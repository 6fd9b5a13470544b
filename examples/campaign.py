"""A mail campaign by work pulling: a coordinator, creators of mails, and senders.

    python examples/campaign.py --recipients 20000 --kill

The recipients are rows of a SQLite table, the mails go to a real SMTP server on this machine.
Creators and senders are processes that join and leave while it runs; `--kill` also kills one of
them with -9. Every recipient is mailed; only those that the killed process held may be mailed
twice.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from smtplib import SMTP
from socket import IPPROTO_TCP, TCP_NODELAY
from string import Template
from typing import Any

from penstock import Fixed, Pipeline, WorkPool, for_each, run
from penstock.streams.nats.client.server import Servers
from penstock.streams.pipelines.pipeline import new_event_loop

FROM = "penstock@example.org"
MAIL = Template(f"""\
From: {FROM}
To: $email
Subject: A word to $name

Dear $name,

you are number $id of all the people we write to.
""")
LEASE = 5.0


def creation(url: str) -> WorkPool:
    return WorkPool(url, "creation", lease=LEASE)


def sending(url: str) -> WorkPool:
    return WorkPool(url, "sending", lease=LEASE)


# The roles: each is a pipeline.


def coordinator(url: str, database: Path) -> Pipeline:
    """Offer the recipients to the creators, and their mails to the senders; record the result."""
    table = sqlite3.connect(database, isolation_level=None)
    # A crash of the machine may lose the last records; waiting for the disk with each would take
    # longer than the mail.
    table.execute("pragma synchronous = normal")
    mails = creation(url).offer(lambda: recipients(database))
    return sending(url).offer(mails).to(for_each(lambda id: note(table, id)))


def creator(url: str) -> Pipeline:
    """Make a mail from a recipient and the template."""
    return creation(url).work(create)


def sender(url: str, port: int) -> Pipeline:
    """Send mails over one connection, one after the other. For more at once start more senders, or
    wrap `send` in `in_threads`, which costs more than one of these mails."""
    smtp = SMTP("127.0.0.1", port)
    # Otherwise the system would wait for more to send, 40 ms per mail.
    smtp.sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)

    def send(mail: dict[str, Any]) -> int:
        smtp.sendmail(FROM, mail["to"], mail["text"])
        return int(mail["id"])

    return sending(url).work(send, Fixed(1))


def create(recipient: dict[str, Any]) -> dict[str, Any]:
    text = MAIL.substitute(recipient)
    return {"id": recipient["id"], "to": recipient["email"], "text": text}


# The table of recipients.


def fill(database: Path, count: int) -> None:
    rows = ((n, f"Person {n}", f"{n}@example.com") for n in range(count))
    with closing(sqlite3.connect(database)) as table, table:
        table.execute("pragma journal_mode = wal")
        table.execute("create table recipient (id integer primary key, name, email, mailed)")
        table.executemany("insert into recipient values (?, ?, ?, 0)", rows)


def recipients(database: Path) -> Iterator[dict[str, Any]]:
    """The recipients not mailed yet, one row at a time."""
    rows = "select id, name, email from recipient where mailed = 0"
    with closing(sqlite3.connect(database)) as table:
        for id, name, email in table.execute(rows):
            yield {"id": id, "name": name, "email": email}


def note(table: sqlite3.Connection, id: int) -> None:
    table.execute("update recipient set mailed = 1 where id = ?", (id,))


# The SMTP server, which counts the mails to each recipient.


async def post_office(file: Path, count: int) -> None:
    from aiosmtpd.smtp import SMTP as Server

    got = bytearray(count)

    class Letterbox:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            for address in envelope.rcpt_tos:
                got[int(address.partition("@")[0])] += 1
            return "250 OK"

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(Letterbox(), loop=loop), "127.0.0.1", 0)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    write(file, str(server.sockets[0].getsockname()[1]))
    await stop.wait()
    server.close()
    write(file, f"{count - got.count(0)} {sum(n - 1 for n in got if n > 1)}")


def write(file: Path, text: str) -> None:
    """Print at once."""
    beside = file.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


# All of it on one machine.


class Campaign:
    """The processes, and the events of the story: join, leave, kill."""

    def __init__(self, folder: Path, url: str, count: int, kill: bool) -> None:
        self.count = count
        self.url = url
        self.database = folder / "recipients.db"
        self.office = folder / "office"
        self.kill = kill
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: object) -> None:
        command = [sys.executable, __file__, *map(str, words)]
        self.processes[name] = subprocess.Popen(command)

    def join(self, *names: str) -> None:
        for name in names:
            role = name.split()[0]
            self.start(name, role, self.url, *([self.port] if role == "sender" else []))

    def open_office(self) -> None:
        self.start("post office", "post-office", self.office, self.count)
        while not self.office.exists():
            time.sleep(0.02)
        self.port = self.office.read_text(encoding="utf-8")

    def close_office(self) -> tuple[int, int]:
        self.processes["post office"].terminate()
        self.processes["post office"].wait()
        mailed, again = self.office.read_text(encoding="utf-8").split()
        return int(mailed), int(again)

    def memory(self) -> dict[str, int]:
        """MiB of each process that is running."""
        alive = {name: its.pid for name, its in self.processes.items() if its.poll() is None}
        return {name: resident(pid) for name, pid in {"coordinator": os.getpid(), **alive}.items()}

    async def unfold(self) -> None:
        """Let workers come and go as the campaign proceeds."""
        running = coordinator(self.url, self.database).start()
        self.join("creator 1", "sender 1", "sender 2")
        finished = 0
        early: dict[str, int] = {}
        plan = [(0.2, self.remember), (0.3, self.reinforce), (0.5, self.lose), (0.7, self.dismiss)]
        while finished < self.count:
            await asyncio.sleep(0.05)
            finished = running.statistics()["finished"]
            while plan and finished >= plan[0][0] * self.count:
                early |= plan.pop(0)[1]()
            if running.report().outcome != "running":
                break
        report = await running.wait()
        print(f"coordinator: {report.statistics['finished']:,} of {self.count:,} done")
        for name, late in self.memory().items():
            print(f"memory of {name}: {late} MiB, {early.get(name, late)} MiB early on")

    def remember(self) -> dict[str, int]:
        return self.memory()

    def reinforce(self) -> dict[str, int]:
        print("sender 3 and creator 2 join")
        self.join("sender 3", "creator 2")
        return {}

    def lose(self) -> dict[str, int]:
        if self.kill:
            print("sender 1 is killed")
            self.processes["sender 1"].kill()
        return {}

    def dismiss(self) -> dict[str, int]:
        print("creator 1 leaves")
        self.processes["creator 1"].terminate()
        return {}

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


def resident(pid: int) -> int:
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(told.stdout or 0) // 1024


def campaign(count: int, kill: bool) -> None:
    with tempfile.TemporaryDirectory() as place, Servers(Path(place) / "nats") as servers:
        it = Campaign(Path(place), servers.urls[0], count, kill)
        fill(it.database, count)
        try:
            it.open_office()
            began = time.perf_counter()
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(it.unfold())
            seconds = time.perf_counter() - began
            mailed, again = it.close_office()
        finally:
            it.end()
    print(f"mailed: {mailed:,} of {count:,}, mailed again: {again:,}")
    print(f"{count / seconds:,.0f} mails per second")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", nargs="*", help="one role and its arguments; without, all roles")
    parser.add_argument("--recipients", type=int, default=20_000)
    parser.add_argument("--kill", action="store_true", help="kill a sender half-way")
    options = parser.parse_args()
    match options.role:
        case []:
            campaign(options.recipients, options.kill)
        case ["creator", url]:
            run(creator(url))
        case ["sender", url, port]:
            run(sender(url, int(port)))
        case ["coordinator", url, database]:
            run(coordinator(url, Path(database)))
        case ["post-office", file, count]:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(post_office(Path(file), int(count)))
        case _:
            parser.error("creator URL, sender URL PORT, coordinator URL FILE, or nothing")


if __name__ == "__main__":
    main()
