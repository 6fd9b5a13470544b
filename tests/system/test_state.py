"""A pipeline with states that is killed again and again, at any instant."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.base.errors import CannotOpen
from penstock.streams.nats.client.server import Servers
from penstock.streams.state.backend import Backend
from penstock.streams.state.codec import key_in
from penstock.streams.state.store import backend_at
from tests.helpers.servers.postgres import Postgres
from tests.system.test_position import Rotating

KEYS = 7
LINES = 4_000
STOPS = 5

STARTED: list[subprocess.Popen[bytes]] = []

PIPELINE = """
import asyncio
import json
import random
import sys

from penstock import Fixed, Store, adaptive_flat_map, group_by, read_kafka, read_lines, spread
from penstock import stateful, write_jsonl

OPTIONS = json.loads(sys.argv[1])
KEYS = OPTIONS["keys"]
store = Store(
    OPTIONS["store"], local=OPTIONS["local"], every=OPTIONS["every"], cache=OPTIONS["cache"]
)


def visit(state, text, ctx):
    number = int(text)
    if OPTIONS["in place"]:
        state["n"] += 1
    else:
        state = {**state, "n": state["n"] + 1}
    if OPTIONS["alarms"] and number % 50 == 7:
        ctx.timer(f"of {number}", after=0.1)
    line = {"key": number % KEYS, "n": state["n"]}
    parts = number % 3 if OPTIONS["several"] else 1
    return state, [{**line, "part": part} for part in range(parts)]


def alarm(state, timer, ctx):
    return {**state, "alarms": state["alarms"] + 1}, [{"key": ctx.key, "alarm": timer}]


async def work(line):
    await asyncio.sleep(random.random() / 250)
    return line


def total(count, line):
    return count + ("n" in line), [line]


stages = [
    stateful(
        visit,
        lambda text: int(text) % KEYS,
        start={"n": 0, "alarms": 0},
        on_timer=alarm,
        ttl=OPTIONS["ttl"],
        name="visits",
        store=store,
    )
]
if OPTIONS["keyed"]:
    stages += [group_by("key"), spread()]
stages.append(adaptive_flat_map(work, Fixed(16)))
if OPTIONS["second"]:
    stages.append(stateful(total, lambda line: line["key"] % 2, start=0, name="two", store=store))
if OPTIONS["servers"]:
    source = read_kafka(
        OPTIONS["topic"],
        OPTIONS["topic"],
        OPTIONS["servers"],
        decode=lambda data: data.decode(),
        follow=OPTIONS["follow"],
        config=OPTIONS["config"],
        offsets=store,
    )
else:
    source = read_lines(OPTIONS["file"], follow=OPTIONS["follow"], position=store)
pipeline = source.pipe(*stages).to(write_jsonl(OPTIONS["out"], append=True))
"""


class Job:
    """A random pipeline, and what it has left behind between two runs."""

    def __init__(
        self,
        folder: Path,
        draw: random.Random,
        *,
        follow: bool,
        store: str | None = None,
        **source: Any,
    ) -> None:
        self._draw = draw
        self._program, self._out = folder / "job.py", folder / "out.jsonl"
        self._store = store or str(folder / "some.state")
        self.file = folder / "in.log"
        self._program.write_text(PIPELINE)
        self.alarms = follow and draw.random() < 0.7
        self.several = draw.random() < 0.5
        self.second = draw.random() < 0.5
        self._options = {
            "file": str(self.file),
            "store": self._store,
            "local": str(folder / "local") if self._is_copied(draw) else None,
            "out": str(self._out),
            "keys": KEYS,
            "follow": follow,
            "alarms": self.alarms,
            "several": self.several,
            "second": self.second,
            "every": draw.choice([0.0, 0.02, 0.2]),
            "cache": draw.choice([1, 4, 1000]),
            "in place": draw.random() < 0.5,
            "keyed": draw.random() < 0.5,
            "ttl": None,
            "servers": "",
            **source,
        }
        self._workers = ["--workers", "2"] if draw.random() < 0.3 else []
        self.running: subprocess.Popen[bytes] | None = None
        self._before: dict[Any, Any] = {}
        self._lines = 0

    def _is_copied(self, draw: random.Random) -> bool:
        return self._store.startswith("nats:") and draw.random() < 0.7

    def __repr__(self) -> str:
        return f"{self._options} {self._workers}"

    def start(self, **options: Any) -> None:
        self._options |= options
        self._before, self._lines = self.states("visits"), self._count()
        self.running = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock", "run", str(self._program)),
                *("--report", "none", *self._workers, "--", json.dumps(self._options)),
            ]
        )
        STARTED.append(self.running)

    def wait_for_lines(self, count: float, patience: float = 5) -> None:
        """Wait until it has written so many, or has ended, or has perhaps no more to write."""
        assert self.running is not None
        deadline = time.monotonic() + patience
        while self._count() < self._lines + count and time.monotonic() < deadline:
            if self.running.poll() is not None:
                break
            time.sleep(0.002)

    def stop(self, *, drained: bool) -> None:
        """End the run, and hold what it has left against the rule."""
        assert self.running is not None
        self.running.send_signal(signal.SIGTERM if drained else signal.SIGKILL)
        code = self.running.wait(60)
        # It had not begun, or Python had not; or, on a busy machine, it was not done in time.
        is_cut_off = code in (143, -signal.SIGTERM, 5)
        assert not drained or is_cut_off or code in (0, 4), self
        self.check(drained=drained and not is_cut_off)

    def check(self, *, drained: bool) -> None:
        lines, states = self.lines(), self.states("visits")
        numbered = [line for line in lines if "n" in line]
        own = [line for line in lines[self._lines :] if "n" in line]
        for line in own:
            done = self._before.get(line["key"], {"n": 0})["n"]
            assert line["n"] > done, ("repeated though it was committed", line, self)
        committed = Counter({key: state["n"] for key, state in states.items()})
        assert not self.expected(committed) - {text(line) for line in numbered}, self
        if drained:
            assert all(line["n"] <= committed[line["key"]] for line in own), self

    def expected(self, counts: dict[int, int]) -> set[str]:
        """The results of the first visits of each key."""
        return {
            text({"key": key, "n": n, "part": part})
            for key, count in counts.items()
            for n in range(1, count + 1)
            for part in range((key + (n - 1) * KEYS) % 3 if self.several else 1)
        }

    def wait_until_begun(self) -> None:
        """Wait until the place in the file is stored, by which the next run finds rotated files."""
        deadline = time.monotonic() + 60
        while True:
            with self._backend() as backend:
                if backend is not None and backend.marks():
                    return
            assert time.monotonic() < deadline, self
            time.sleep(0.02)

    def states(self, stage: str) -> dict[Any, Any]:
        with self._backend() as backend:
            if backend is None or stage not in [kept.name for kept in backend.stages()]:
                return {}
            return {key_in(row.key): json.loads(row.state) for row in backend.scan(stage)}

    @contextmanager
    def _backend(self) -> Iterator[Backend | None]:
        """The store; None before the first run has made it."""
        backend = backend_at(self._store)
        try:
            backend.open_to_read()
        except CannotOpen as error:
            if not re.search("no store|not a store yet", str(error)):
                raise
            yield None
        else:
            yield backend
        finally:
            backend.close()

    def _written(self) -> bytes:
        return self._out.read_bytes() if self._out.exists() else b""

    def _count(self) -> int:
        return self._written().count(b"\n")

    def lines(self) -> list[dict[str, Any]]:
        """The results, in order; a kill may cut off the last one."""
        return [json.loads(line) for line in self._written().split(b"\n")[:-1]]

    def is_done(self, written: int) -> bool:
        """Whether all is committed that so many lines make."""
        states = self.states("visits")
        return sum(state["n"] for state in states.values()) == written and (
            not self.alarms
            or sum(state["alarms"] for state in states.values()) == len(alarms(written))
        )

    def check_end(self, written: int) -> None:
        counts = Counter(number % KEYS for number in range(written))
        states = self.states("visits")
        assert {key: state["n"] for key, state in states.items()} == counts, self
        lines = self.lines()
        wanted = self.expected(counts)
        assert {text(line) for line in lines if "n" in line} == wanted, self
        if self.second:
            totals = Counter(json.loads(line)["key"] % 2 for line in wanted)
            assert Counter(self.states("two")) == totals, self
        if self.alarms:
            of_key = Counter(number % KEYS for number in alarms(written))
            assert Counter({key: state["alarms"] for key, state in states.items()}) == of_key, self
            fired = {line["alarm"] for line in lines if "alarm" in line}
            assert fired == {f"of {number}" for number in alarms(written)}, self


def alarms(written: int) -> range:
    return range(7, written, 50)


def text(line: dict[str, Any]) -> str:
    return json.dumps(line, sort_keys=True)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Kill what a test that has failed left running."""
    yield
    for process in STARTED:
        process.kill()
        process.wait()
    STARTED.clear()


@pytest.fixture(params=["file", "rocks", "postgresql", "nats"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for states, of each kind."""
    if request.param == "file":
        return str(tmp_path / "some.state")
    if request.param == "rocks":
        return f"rocks:///{tmp_path}/some"
    if request.param == "nats":
        servers: Servers = request.getfixturevalue("server")
        return f"{servers.urls[0]}/{tmp_path.name}"
    url: str = request.getfixturevalue("postgres")
    return url


def test_kills_leave_each_event_in_the_states_once_and_repeat_no_result_that_was_committed(
    tmp_path: Path, store: str, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    job = Job(tmp_path, draw, follow=False, store=store)
    job.file.write_text("".join(f"{number}\n" for number in range(LINES)))
    for _ in range(STOPS):
        job.start()
        # On a busy machine a run takes seconds to begin.
        job.wait_for_lines(draw.randrange(1, LINES // STOPS), patience=draw.uniform(0, 30))
        job.stop(drained=draw.random() < 0.25)
    job.start()
    assert job.running is not None
    assert job.running.wait(120) == 0, job
    job.check(drained=True)
    job.check_end(LINES)


def test_kills_of_the_database_leave_each_event_in_the_states_once(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    server = Postgres()
    try:
        job = Job(tmp_path, draw, follow=False, store=server.url)
        job.file.write_text("".join(f"{number}\n" for number in range(LINES)))
        job.start()
        for stop in range(STOPS):
            # A run that has begun waits for the database.
            job.wait_for_lines((stop + draw.uniform(0.01, 1)) * LINES // STOPS, patience=60)
            server.kill()
            time.sleep(draw.choice([0, 0.5]))
            server.start()
        assert job.running is not None
        assert job.running.wait(120) == 0, job
        job.check(drained=True)
        job.check_end(LINES)
    finally:
        server.stop()


@pytest.mark.parametrize("count", [1, 3])
def test_kills_of_nats_servers_leave_each_event_in_the_states_once(
    tmp_path: Path, run_seed: int, count: int
) -> None:
    draw = random.Random(run_seed)
    with Servers(tmp_path / "servers", count) as servers:
        job = Job(tmp_path, draw, follow=False, store=f"{','.join(servers.urls)}/counts")
        job.file.write_text("".join(f"{number}\n" for number in range(LINES)))
        job.start()
        for stop in range(STOPS):
            # A run that has begun waits for the servers.
            job.wait_for_lines((stop + draw.uniform(0.01, 1)) * LINES // STOPS, patience=60)
            one = draw.randrange(count)
            servers.stop(one, signal.SIGKILL)
            time.sleep(draw.choice([0, 0.5]))
            servers.start(one)
            servers.wait()
        assert job.running is not None
        assert job.running.wait(120) == 0, job
        job.check(drained=True)
        job.check_end(LINES)


def test_kills_around_rotations_and_timers_leave_each_event_and_alarm_in_the_states_once(
    tmp_path: Path, store: str, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    job = Job(tmp_path, draw, follow=True, store=store)
    program = Rotating(job.file, draw)
    program.write()
    for _ in range(STOPS - 1):
        job.start()
        job.wait_until_begun()
        program.write()
        job.wait_for_lines(draw.randrange(1, 60))
        program.write()
        if draw.random() < 0.5:
            program.rotate()
        time.sleep(draw.choice([0, 0.1, 0.3]))
        job.stop(drained=draw.random() < 0.25)
        if draw.random() < 0.5:
            program.rotate()
    job.start()
    deadline = time.monotonic() + 60 + 6 * program.rotations
    while not job.is_done(program.written):
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    job.stop(drained=True)
    program.close()
    job.check_end(program.written)


def test_kills_keep_no_state_beyond_its_ttl_and_lose_no_event(
    tmp_path: Path, store: str, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    job = Job(tmp_path, draw, follow=True, store=store)
    file = job.file.open("a")
    for number in range(STOPS):
        file.write("".join(f"{number * 100 + one}\n" for one in range(100)))
        file.flush()
        job.start(ttl=1.0, alarms=False, several=False)
        job.wait_for_lines(draw.randrange(1, 100))
        assert job.running is not None
        job.running.kill()
        job.running.wait()
    job.start()
    deadline = time.monotonic() + 180
    while job.states("visits") or not (
        Counter(line["key"] for line in job.lines())
        >= Counter(number % KEYS for number in range(STOPS * 100))
    ):
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    assert job.running is not None
    job.running.terminate()
    assert job.running.wait(30) == 4, job
    file.close()
