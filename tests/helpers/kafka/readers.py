"""Reader processes of one group, and the log that their handlers write."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from orjson import dumps

from tests.helpers.kafka.broker import Brokers
from tests.helpers.system.checker import Verdict, check
from tests.helpers.system.children import freeze
from tests.helpers.system.log import Entry, Log, entries_of

__all__ = ["POISON", "SLOW", "TRANSACTIONAL", "Readers"]

PATIENCE = 90.0
"""Seconds after which something will not happen any more, even on a slow machine."""

_PIPELINE = """
import asyncio
import sys

from penstock import adaptive_flat_map, for_each, group_by, read_kafka, spread
from tests.helpers.system.log import Log

servers, topic, protocol = sys.argv[3:6]
log = Log(sys.argv[1], sys.argv[2])
log.note("there")


async def handler(event):
    with log.working(event["client"], event["seq"]):
        await asyncio.sleep(0.003)
    return event


SOON = {"session.timeout.ms": 3000, "group.protocol": protocol}
if protocol == "classic":
    SOON["heartbeat.interval.ms"] = 500

pipeline = (
    read_kafka(topic, topic, servers, handover=20, config=SOON)
    .pipe(group_by("client"), spread(), adaptive_flat_map(handler))
    .to(for_each(lambda event: log.sink(event["client"], event["seq"])))
)
"""

# Transactions follow each other without a pause, so that one is open whenever a process is killed.
TRANSACTIONAL = """
import asyncio
import sys

from penstock import adaptive_flat_map, group_by, ops, read_kafka, spread, write_kafka
from tests.helpers.system.log import Log

servers, topic, protocol, results = sys.argv[3:7]
log = Log(sys.argv[1], sys.argv[2])
log.note("there")


async def handler(event):
    with log.working(event["client"], event["seq"]):
        await asyncio.sleep(0.003)
    return event


# None for every fifth, two for every seventh.
def results_of(event):
    seq = event["seq"]
    return [{**event, "part": part} for part in range(0 if seq % 5 == 0 else 1 + (seq % 7 == 0))]


SOON = {"session.timeout.ms": 3000, "group.protocol": protocol}
if protocol == "classic":
    SOON["heartbeat.interval.ms"] = 500
TIMEOUT = {"transaction.timeout.ms": 3000}

pipeline = (
    read_kafka(topic, topic, servers, handover=20, config=SOON)
    .pipe(group_by("client"), spread(), adaptive_flat_map(handler), ops.flat_map(results_of))
    .to(
        write_kafka(
            results, servers, key="client", transactional=True, commit_every=0, config=TIMEOUT
        )
    )
)
"""

# One event kills its process, while others are worked on.
POISON = _PIPELINE.replace(
    "    with log.working",
    """\
    if (event["client"], event["seq"]) == ("c7", 5):
        await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    with log.working""",
).replace("import sys\n", "import os\nimport signal\nimport sys\n")

# Events of one client take long, so that the floor is far behind what is finished; and a reader
# that was killed keeps its partitions for long enough to look at what it had committed.
SLOW = _PIPELINE.replace(
    "sleep(0.003)", 'sleep(0.5 if event["client"] == "c0" else 0.003)'
).replace('"session.timeout.ms": 3000', '"session.timeout.ms": 15000')

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


class Readers:
    """The readers, each a process, killed at the end of the block; and a producer of events.

    `sent` counts the events of each client, which are numbered from 1. `pace` is how many events
    per second are written. With `on` the command gives the same file its source. `protocol` is that
    of the group.
    """

    def __init__(
        self,
        brokers: Brokers,
        folder: Path,
        partitions: int = 6,
        *,
        on: bool = False,
        pipeline: str = _PIPELINE,
        protocol: str = "classic",
    ) -> None:
        self.brokers = brokers
        self.topic = brokers.topic(partitions)
        self.results = brokers.topic(2) if pipeline == TRANSACTIONAL else ""
        self.log = folder / "log"
        self.log.touch()
        self.sent: Counter[str] = Counter()
        self._folder = folder
        self._file = folder / "reader.py"
        self._file.write_text(pipeline, encoding="utf-8")
        self.address = f"kafka://{brokers.servers}/{self.topic}"
        self._words = ["--on", self.address, "--name", "readers", "--lease", "3"] if on else []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._there: set[str] = set()
        self._protocol = protocol
        self._hand = Log(self.log, "readers")
        self._producer = Producer(
            {
                "bootstrap.servers": brokers.servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self._hand.close()
        self._producer.purge()
        self._producer.close()

    def start(self, *names: str) -> None:
        self._reap()
        for name in names:
            with open(self._folder / f"{name}.err", "ab") as errors:
                self._processes[name] = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "penstock", "run", str(self._file)),
                        *self._words,
                        *(("--worker", name) if self._words else ()),
                        *("--", str(self.log), name, self.brokers.servers),
                        *(self.topic, self._protocol, self.results),
                    ],
                    stderr=errors,
                    env=_ENVIRONMENT,
                )
            self._there.add(name)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()
        self._reap()

    def drain(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGTERM)

    def freeze(self, name: str) -> None:
        freeze(self._processes[name])
        self._hand.note("frozen", process=name)

    def wake(self, name: str) -> None:
        self._hand.note("woken", process=name)
        self._processes[name].send_signal(signal.SIGCONT)

    async def freeze_for(self, name: str, seconds: float) -> None:
        self.freeze(name)
        await asyncio.sleep(seconds)
        self.wake(name)

    async def storm(self, drawn: random.Random) -> None:
        """Three join, each a second or two after the other, and are killed or drained."""
        for name in ("m0", "m1", "m2"):
            self.start(name)
            await asyncio.sleep(1 + drawn.random())
            if drawn.random() < 0.5:
                self.kill(name)
            else:
                self.drain(name)

    async def without_broker(self, number: int, seconds: float) -> None:
        """Kill one of the brokers, and start it again after a while."""
        self.brokers.stop(number, signal.SIGKILL)
        await asyncio.sleep(seconds)
        self.brokers.start(number)

    def is_there(self, name: str) -> bool:
        """Whether this process runs."""
        self._reap()
        return name in self._there

    def status(self, name: str) -> int:
        """Wait for the end of a process that was drained."""
        status = self._processes[name].wait(PATIENCE)
        self._reap()
        return status

    def errors(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text(encoding="utf-8")

    def _reap(self) -> None:
        for name in [one for one in self._there if self._processes[one].poll() is not None]:
            self._there.remove(name)
            self._hand.note("gone", process=name)

    async def write(self, clients: int, rate: float, seconds: float) -> None:
        """Write events of the clients in rotation."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        count = 0
        while loop.time() < began + seconds:
            while count < (loop.time() - began) * rate:
                client = f"c{count % clients}"
                self.sent[client] += 1
                event = {"client": client, "seq": self.sent[client]}
                self._producer.produce(self.topic, dumps(event), key=client)
                count += 1
            self._producer.poll(0)
            await asyncio.sleep(0.01)
        left = await asyncio.to_thread(self._producer.flush, PATIENCE)
        assert left == 0, f"{left} events are not stored"

    def entries(self) -> list[Entry]:
        return entries_of(self.log)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                if true():
                    return
                self._reap()
                await asyncio.sleep(0.1)

    def begun(self, name: str) -> bool:
        """Whether this process has begun an event."""
        return any(e.process == name and e.what == "start" for e in self.entries())

    def verdict(self) -> Verdict:
        self._reap()
        return check(self.entries(), self.sent)

    async def until_all_arrived(self) -> Verdict:
        await self.until(lambda: not self.verdict().lost)
        return self.verdict()
