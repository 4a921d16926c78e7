"""A Kafka broker on loopback: KRaft, one node, from the jars of the lock, its data in a directory that outlives it."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator import files, jars
from tallystream_aggregator.kafka import clients
from tallystream_cli.servers.process import Server, free_port, spawn, tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLUSTER_ID = "VGFsbHlzdHJlYW0tbG9jYQ"
"""Any base64 of 16 bytes: it only has to stay the same for a data directory."""

MAX_WAIT_S = 30.0


class BrokerError(TallystreamError):
    """The broker did not start; the message ends with what it said last."""


class KafkaBroker(Server):
    """One broker; `port` 0 takes a free one and keeps it over restarts. `heap_mb` is Java's heap in MiB.

    `listeners` are further ones on loopback, protocol → port, as in {"SASL_SSL": 9093}; `properties` are added to its
    configuration: keys and certificates.

    Data in `data_dir` survives a stop, a kill and another process. The broker dies with the process that started it.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        heap_mb: int = 512,
        listeners: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir / "broker.log", max_wait_s=MAX_WAIT_S)
        self._dir = data_dir
        self._port = port
        self._heap_mb = heap_mb
        self._listeners = dict(listeners or {})
        self._properties = dict(properties or {})

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: 127.0.0.1 and the port."""
        return f"127.0.0.1:{self._port}"

    def start(self, timeout: float = 90.0) -> Self:
        """Start and return when the broker answers, `timeout` seconds at most.

        Raises:
            BrokerError: it ended, or did not answer in time.
            JarsError: its jars can't be had.
        """
        if self.pid is None:
            self.begin()
            self._wait(timeout)
        return self

    def begin(self) -> None:
        """Start without waiting for an answer; `answers` tells when it is there.

        Raises:
            BrokerError: its data directory can't be made.
            JarsError: its jars can't be had.
        """
        classpath = os.pathsep.join(str(path) for path in jars.fetch("broker"))
        files.make_folder(self._dir)
        self._port = self._port or free_port()
        properties = self._write_properties()
        java = [jars.java(), f"-Xmx{self._heap_mb}m", "-cp", classpath]
        if not (self._dir / "data" / "meta.properties").exists():
            self._format([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)])
        self._process = spawn([*java, "kafka.Kafka", str(properties)], self.log)

    def answers(self) -> bool:
        """Tell whether the broker answers now; takes up to a second."""
        admin = clients.admin({"bootstrap.servers": self.bootstrap_servers})
        try:
            return bool(admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _write_properties(self) -> Path:
        controller = free_port()
        public = {"PLAINTEXT": self._port, **self._listeners}
        advertised = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in public.items())
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": advertised,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{p}:{p}" for p in public)]),
            "log.dirs": str(self._dir / "data"),
            # One node: what Kafka keeps for itself can have one replica only.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A group begins at once, and the demonstration's consumers notice a dead one soon.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # A topic that was misspelt is an error, not a new topic.
            "auto.create.topics.enable": "false",
            **self._properties,
        }
        path = self._dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        return path

    def _format(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise BrokerError(f"broker: its data directory can't be made: {(done.stderr or done.stdout).strip()}")

    def _wait(self, timeout: float) -> None:
        began = time.monotonic()
        while time.monotonic() - began < timeout:
            if self.pid is None:
                raise BrokerError(f"broker: it ended while starting; {self.log} says:\n{tail(self.log)}")
            if self.answers():
                return
        self.kill()
        raise BrokerError(f"broker: no answer after {timeout:g} s; {self.log} says:\n{tail(self.log)}")
