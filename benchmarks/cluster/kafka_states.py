"""States in a changelog of Kafka: events per second of a core, and the take-over of a member's."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.cluster.kafka import filled
from penstock import Store, for_each, ops, read_kafka, run, stateful
from penstock.streams.state.backend import KeptStage, Unit
from penstock.streams.state.kafka.backend import Kafka
from tests.helpers.kafka.broker import HAS_KAFKA, Brokers

__all__ = ["main"]

EVENTS, RESTORED = 100_000, 1_000_000


def nothing(_: Any) -> None: ...


def number(event: dict[str, Any]) -> int:
    found: int = event["n"]
    return found


def count(before: int, event: dict[str, Any]) -> tuple[int, list[int]]:
    return before + 1, [before + 1]


def per_core(brokers: Brokers, topic: str, store: Store | None) -> tuple[float, float]:
    """Events per second of processor time, and of time."""
    options: dict[str, Any] = {} if store is None else {"offsets": store}
    group = "plain" if store is None else "counts"
    read: Any = read_kafka
    source = read(topic, group, brokers.servers, follow=False, **options)
    stage: Any = ops.map(number)
    if store is not None:
        stage = stateful(count, "key", start=0, name="counts", store=store)
    began, used = time.monotonic(), time.process_time()
    run(source.pipe(stage).to(for_each(nothing)))
    used, took = time.process_time() - used, time.monotonic() - began
    return EVENTS / used, EVENTS / took


class _Member(Kafka):
    """A backend whose commits the brokers accept as those of a member."""

    proof: Any = None

    def commit(self, unit: Unit) -> None:
        unit.fences.append(self.proof)
        super().commit(unit)


@contextmanager
def member(
    brokers: Brokers, folder: Path, proof: Any, *, standby: bool = False
) -> Generator[_Member]:
    backend = _Member(brokers.servers, "many-states", str(folder), standby=standby)
    backend.proof = proof
    backend.open()
    backend.declare([KeptStage("counts", "key", 1)])
    try:
        yield backend
    finally:
        backend.close()


def take_overs(brokers: Brokers, folder: Path) -> None:
    topic = brokers.topic()
    consumer = Consumer({"bootstrap.servers": brokers.servers, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    proof = consumer.consumer_group_metadata(), [TopicPartition(topic, 0, 0)]
    with member(brokers, folder / "standby", proof, standby=True) as warm:
        warm.adopt(1, 2)
        with member(brokers, folder / "own", proof) as own:
            own.adopt(0, 2)
            began = time.monotonic()
            for first in range(0, RESTORED, 1_000):
                keys = range(first, first + 1_000)
                rows = [(b'"user %d"' % key, b"%d" % key, 1, b"", None) for key in keys]
                own.commit(Unit(partitions={0: Unit({"counts": rows})}))
            took = time.monotonic() - began
            print(f"commits of 1,000 keys: {RESTORED / took:,.0f} keys/s, beside a standby")
        while (warm.standby_lag() or 0) > 0:
            time.sleep(0.1)
        report("with a standby copy", warm)
    for name, where in (("with its local copy", "own"), ("without a copy", "new")):
        with member(brokers, folder / where, proof) as backend:
            report(name, backend)
    consumer.close()


def report(name: str, backend: Kafka) -> None:
    """Take partition 0 over, and say how long that took."""
    began = time.monotonic()
    backend.adopt(0, 2)
    took = time.monotonic() - began
    assert backend.size("counts")[0] == RESTORED
    print(f"take-over of {RESTORED:,} keys {name}: {took:.2f} s")


def main() -> None:
    if not HAS_KAFKA:
        sys.exit("Kafka needs Java 17 and Maven")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "brokers").mkdir()
        with Brokers(folder / "brokers") as brokers:
            topic = filled(brokers, EVENTS)
            store = Store(f"kafka://{brokers.servers}/counts-states", local=folder / "counts")
            for name, kept in (("without", None), ("with", store)):
                core, all_ = per_core(brokers, topic, kept)
                print(f"{name} states: {core:,.0f} events/s of a core, {all_:,.0f} events/s")
            take_overs(brokers, folder)
