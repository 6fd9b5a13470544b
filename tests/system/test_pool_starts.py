"""Masters and workers of work pools that start all at once, while servers stall."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.streams.nats.client.server import Servers
from tests.helpers.system.checker import check
from tests.helpers.system.fleet import ENVIRONMENT, PATIENCE
from tests.helpers.system.log import entries_of

CLIENTS, EVENTS = 5, 8

MEMBER = """
import sys

from penstock import Fixed, WorkPool, for_each, from_iterable, group_by, run, spread
from tests.helpers.system.log import Log

role, urls, name, path, me, clients, events = sys.argv[1:]
log = Log(path, me)
pool = WorkPool(urls.split(","), name, lease=30.0)


async def handler(job):
    with log.working(job["client"], job["seq"]):
        return job


if role == "worker":
    run(pool.work(handler, Fixed(4)))
else:
    jobs = [
        {"client": f"{me} {client}", "seq": seq}
        for seq in range(1, int(events) + 1)
        for client in range(int(clients))
    ]
    epic = from_iterable(jobs).pipe(group_by("client"), spread())
    done = pool.offer(epic, when_busy="wait")
    run(done.to(for_each(lambda job: log.sink(job["client"], job["seq"]))))
"""


def test_masters_and_workers_that_start_at_once_end_by_no_error_and_all_epics_complete(
    cluster: Servers, tmp_path: Path, run_seed: int
) -> None:
    chance = random.Random(run_seed)
    file, log = tmp_path / "member.py", tmp_path / "log"
    file.write_text(MEMBER, encoding="utf-8")
    # At least one of each role in each pool.
    pools = [f"starts-{run_seed}-{n}" for n in range(chance.randint(1, 3))]
    roles = [(role, pool) for role in ("master", "worker") for pool in pools]
    more = chance.randint(1, 4)
    roles += [(chance.choice(["master", "worker"]), chance.choice(pools)) for _ in range(more)]
    chance.shuffle(roles)
    members: dict[str, subprocess.Popen[bytes]] = {}
    urls = ",".join(cluster.urls)
    try:
        for number, (role, pool) in enumerate(roles):
            me = f"{role} {number}"
            with open(tmp_path / f"{me}.err", "wb") as errors:
                members[me] = subprocess.Popen(
                    [
                        *(sys.executable, str(file), role, urls, pool, str(log), me),
                        *(str(CLIENTS), str(EVENTS)),
                    ],
                    stderr=errors,
                    env=ENVIRONMENT,
                )
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.3)]))
        masters = [me for me in members if me.startswith("master")]
        deadline = time.monotonic() + PATIENCE
        while any(members[me].poll() is None for me in masters) and time.monotonic() < deadline:
            stalled = chance.sample(range(3), chance.randint(1, 3))
            for number in stalled:
                cluster.signal(number, signal.SIGSTOP)
            time.sleep(chance.uniform(0, 0.3))
            for number in stalled:
                cluster.signal(number, signal.SIGCONT)
            time.sleep(chance.uniform(0, 0.3))

        def said() -> dict[str, str]:
            return {me: (tmp_path / f"{me}.err").read_text()[-2000:] for me in members}

        statuses = {me: members[me].poll() for me in masters}
        assert set(statuses.values()) == {0}, said()
        # Only a process that is stopped ends.
        workers = [one for me, one in members.items() if me not in masters]
        assert [one.poll() for one in workers] == [None] * len(workers), said()
        assert not any("Traceback" in text or "nats:" in text for text in said().values()), said()
    finally:
        for one in members.values():
            one.kill()
            one.wait()
    sent = {f"{me} {client}": EVENTS for me in masters for client in range(CLIENTS)}
    verdict = check(entries_of(log), sent)
    assert (verdict.lost, verdict.misordered, verdict.overlaps) == (set(), [], [])
    assert verdict.repeated == 0
