"""Real brokers: Apache Kafka in KRaft mode, from the artefacts that its project publishes.

Maven fetches them once; the folder that it puts them into is used again. Needs Java 17 and Maven.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.streams.nats.client.server import free_ports
from penstock.streams.runtime.process.lifeline import bound
from tests.helpers.kafka.mock import Cluster

__all__ = ["HAS_KAFKA", "Brokers", "kafka_brokers", "three_kafka_brokers"]

HAS_KAFKA = shutil.which("java") is not None and shutil.which("mvn") is not None

VERSION = "4.1.0"

_HOME = Path(__file__).parents[3] / ".venv" / "kafka"
_READY = 120.0

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def libraries() -> str:
    """The class path of the broker; fetched if it is not there yet."""
    folder = _HOME / VERSION
    if not folder.is_dir():
        making = _HOME / f"{VERSION}-{os.getpid()}"
        making.mkdir(parents=True, exist_ok=True)
        pom = making / "pom.xml"
        pom.write_text(_POM, encoding="utf-8")
        fetch = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*fetch, "-DincludeScope=runtime", f"-DoutputDirectory={making}"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"Maven cannot fetch Kafka: {done.stdout}{done.stderr}"
        try:
            making.rename(folder)
        except OSError:
            # Another process was quicker.
            shutil.rmtree(making)
    return str(folder / "*")


class Brokers(Cluster):
    """`count` nodes, each a broker and a controller, on free ports of the loopback."""

    def __init__(self, folder: Path, count: int = 1, **settings: str) -> None:
        ports = free_ports(2 * count)
        self._ports, self._controllers = ports[:count], ports[count:]
        super().__init__(",".join(f"127.0.0.1:{port}" for port in self._ports))
        self.count = count
        self.id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=").replace("-", "A")
        """The id of the cluster."""
        self._folder = folder
        self._settings = settings
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def __enter__(self) -> Brokers:
        libraries()
        for number in range(self.count):
            self._configuration(number).write_text(self._properties(number), encoding="utf-8")
            subprocess.run(
                self._java(number, "kafka.tools.StorageTool", "format", "-t", self.id, "-c"),
                check=True,
                capture_output=True,
            )
        for number in range(self.count):
            self.start(number)
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(self.count):
            self.stop(number, signal.SIGKILL)

    def _properties(self, number: int) -> str:
        voters = ",".join(
            f"{one + 1}@127.0.0.1:{port}" for one, port in enumerate(self._controllers)
        )
        copies = str(min(3, self.count))
        in_sync = str(min(2, self.count))
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(number + 1),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[number]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ports[number]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / f"data{number}"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "4",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "log.cleaner.backoff.ms": "300",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # Of groups whose protocol is KIP-848, where members do not choose these.
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "3000",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "500",
            **self._settings,
            **self._more(number),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _more(self, number: int) -> dict[str, str]:
        """Settings of a node that differ from those of others."""
        return {}

    def _configuration(self, number: int) -> Path:
        return self._folder / f"server{number}.properties"

    def _java(self, number: int, *words: str) -> list[str]:
        # Tests want a broker that starts soon, not one that is fast after an hour.
        small = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *small, "-cp", libraries(), *words, str(self._configuration(number))]

    def start(self, number: int) -> None:
        """Start one of the nodes."""
        with open(self._folder / f"server{number}.log", "ab") as log:
            self._processes[number] = subprocess.Popen(
                bound(self._java(number, "kafka.Kafka")),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> None:
        """Send one node a signal, and wait until it has ended."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def wait(self) -> None:
        """Wait until all nodes that were started answer.

        One that has ended meanwhile is started again: a client may have had its port.
        """
        until = time.monotonic() + _READY
        alive = sum(process is not None for process in self._processes)
        asking = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        while True:
            try:
                if len(asking.list_topics(timeout=1).brokers) >= alive:
                    break
            except KafkaException:
                pass
            for number, process in enumerate(self._processes):
                if process is not None and process.poll() is not None:
                    self.start(number)
            logs = [path.read_text()[-1000:] for path in self._folder.glob("server*.log")]
            assert time.monotonic() < until, f"no Kafka within {_READY:g} s: {logs}"
        asking.close()

    def start_all(self) -> None:
        """Start the nodes that do not run, and wait until all answer."""
        for number, process in enumerate(self._processes):
            if process is None:
                self.start(number)
        self.wait()

    def config(self, topic: str) -> dict[str, str]:
        """The settings of a topic."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(30)
        return {name: entry.value for name, entry in found.items()}

    def assigned(self, group: str) -> dict[str, int]:
        """How many partitions each member of a group has, by the name of its client."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        try:
            # A request may never be answered while the group finds its coordinator, so callers
            # repeat it.
            asked = admin.describe_consumer_groups([group], request_timeout=5)
            members = asked[group].result(30).members
        except KafkaException:
            # No member has come yet, the group is being loaded, or there was no answer.
            return {}
        return {one.client_id: len(one.assignment.topic_partitions) for one in members}

    def topic(self, partitions: int = 1, **config: str) -> str:
        """The name of a new topic."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while True:
            self._count += 1
            name = f"topic-{self._count}"
            new = NewTopic(name, partitions, min(3, self.count), config=config)
            try:
                admin.create_topics([new])[name].result(30)
            except KafkaException as error:
                # The request was with a connection that the client replaced when it had learned
                # which brokers there are.
                if error.args[0].code() != KafkaError._DESTROY_BROKER:
                    raise
            else:
                return name


@pytest.fixture(scope="session")
def kafka_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """One broker that no test may disturb."""
    with Brokers(tmp_path_factory.mktemp("kafka")) as brokers:
        yield brokers


@pytest.fixture
def three_kafka_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers, of which a test may kill some."""
    with Brokers(tmp_path_factory.mktemp("kafka-three"), 3) as brokers:
        yield brokers
