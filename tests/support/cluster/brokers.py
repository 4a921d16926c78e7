"""Three real brokers in one cluster, each also a controller, whose clocks differ and whose network can be cut."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster.network import Network
from support.wait import wait_until
from tallystream_cli.servers import jars
from tallystream_cli.servers.broker import KafkaBroker

JAVA = Path(__file__).parent / "SystemTime.java"
CLOCKS_MS = (0, 90_000, -90_000)
NUMBERS = (1, 2, 3)


class Node(KafkaBroker):
    """A broker of a cluster. Its properties are set before its start."""

    def __init__(self, number: int, folder: Path, offset_ms: int, classes: Path) -> None:
        options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Dtallystream.clock.offset.ms={offset_ms}"
        super().__init__(folder, heap_mb=320, env={"JDK_JAVA_OPTIONS": options})
        self.number, self._classes = number, classes

    @property
    def ports(self) -> tuple[int, int]:
        """The ports of clients and of controllers."""
        return self._port, self._controller_port

    @property
    def quorum_state(self) -> Path:
        """The file of what the broker knows of the controllers."""
        return self._dir / "data" / "__cluster_metadata-0" / "quorum-state"

    def connect(self, clients: Mapping[int, int], controllers: Mapping[int, int]) -> None:
        """Set the addresses of all brokers: the ports of the proxies by number."""
        port, controller = self.ports
        self._properties = {
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{at}" for n, at in controllers.items()),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{clients[self.number]}",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "1",  # so its leader is the coordinator of all transactions
            "broker.session.timeout.ms": "6000",
            "initial.broker.registration.timeout.ms": "300000",  # beside other work a vote can take more than a minute
            "controlled.shutdown.enable": "true",
        }

    def classpath(self) -> list[Path]:
        """Return the jars, after the class of the clock."""
        return [self._classes, *super().classpath()]


class KafkaCluster:
    """The brokers 1, 2 and 3 with replication 3 and `min.insync.replicas` 2, and their network.

    Each of `clocks_ms` is what the clock of a broker differs by from the right time, in milliseconds.
    """

    def __init__(self, folder: Path, clocks_ms: Sequence[int] = CLOCKS_MS) -> None:
        classes = _compile(folder / "classes")
        self.nodes = {n: Node(n, folder / f"broker-{n}", clocks_ms[n - 1], classes) for n in NUMBERS}
        self.network = Network(lambda: {n: node.pid for n, node in self.nodes.items() if node.pid})
        clients = {n: self.network.proxy(n, node.ports[0]) for n, node in self.nodes.items()}
        controllers = {n: self.network.proxy(n, node.ports[1]) for n, node in self.nodes.items()}
        for node in self.nodes.values():
            node.connect(clients, controllers)
        self._clients = clients

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients: those of the proxies."""
        return ",".join(f"127.0.0.1:{port}" for port in self._clients.values())

    def start(self) -> Self:
        """Start the brokers that do not run, and return when all are in the cluster."""
        for node in self.nodes.values():
            if node.pid is None:
                node.begin()
        wait_until(self._is_complete, 180, "the three brokers are a cluster")
        return self

    def clocks_ms(self) -> dict[int, int]:
        """Return by what the clock of each broker is ahead: it appends a record to a partition that it leads."""
        new = NewTopic(
            "clocks",
            num_partitions=len(NUMBERS),
            replica_assignment=[[number] for number in NUMBERS],
            config={"message.timestamp.type": "LogAppendTime"},
        )
        admin = self._admin()
        admin.create_topics([new])["clocks"].result(60)
        found: dict[int, int] = {}

        def appended(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            found[NUMBERS[message.partition() or 0]] = message.timestamp()[1] - int(time.time() * 1000)

        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "acks": "1", "log_level": 0})
        for partition in range(len(NUMBERS)):
            producer.produce("clocks", b"", partition=partition, on_delivery=appended)
        assert producer.flush(60) == 0
        return dict(sorted(found.items()))

    def leader(self, topic: str) -> int:
        """Return the broker that leads the first partition."""
        found: list[int] = []

        def has_leader() -> bool:
            found.append(self._leaders(topic).get(0, -1))
            return found[-1] in NUMBERS

        wait_until(has_leader, 60, f"{topic} has a leader")
        return found[-1]

    def controller(self) -> int:
        """Return the active controller: the newest leader of the metadata that a broker knows."""
        states = [json.loads(path.read_text()) for node in self.nodes.values() if (path := node.quorum_state).exists()]
        return int(max((state["leaderEpoch"], state["leaderId"]) for state in states)[1])

    def wait_leaders(self, topics: Sequence[str]) -> None:
        """Wait until each partition of the topics has a leader that runs."""

        def have_leaders() -> bool:
            return all((found := self._leaders(topic)) and set(found.values()) <= {*NUMBERS} for topic in topics)

        wait_until(have_leaders, 60 * len(topics), f"{', '.join(topics)} have leaders")

    def _is_complete(self) -> bool:
        for node in self.nodes.values():
            node.became_ready(0)
        try:
            return len(self._admin().list_topics(timeout=2).brokers) == len(self.nodes)
        except KafkaException:
            return False

    def _leaders(self, topic: str) -> dict[int, int]:
        """Return partition → leader as a broker knows it, nothing while none answers."""
        try:
            partitions = self._admin().list_topics(topic, timeout=10).topics[topic].partitions
        except KafkaException:
            return {}
        return {partition: found.leader for partition, found in partitions.items()}

    def _admin(self) -> AdminClient:
        """Return a client of the brokers that are not cut off, as one that is may know of old leaders only."""
        servers = ",".join(f"127.0.0.1:{port}" for n, port in self._clients.items() if n not in self.network.cut)
        return AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
        self.network.__exit__()


def _compile(folder: Path) -> Path:
    """Compile the clock, and return the folder of its class."""
    clients = next(path for path in jars.fetch(KafkaBroker.jars) if path.name.startswith("kafka-clients"))
    command = ["javac", "--release", "11", "-cp", str(clients), "-d", str(folder), str(JAVA)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder
