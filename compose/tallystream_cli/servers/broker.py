"""A Kafka broker on loopback: one KRaft node, run from the jars that the lock file names."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator import files, java
from tallystream_aggregator.kafka import clients
from tallystream_cli.servers import jars
from tallystream_cli.servers.process import Server, StartError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CLUSTER_ID = "VGFsbHlzdHJlYW0tbG9jYQ"
"""The base64 of any 16 bytes; it must not change for an existing data directory."""


class KafkaBroker(Server):
    """A broker, also a component of the local system.

    Its data stays in `data_dir`, so another process can use it later. The broker is killed when the process that
    started it ends.

    Args:
        data_dir: holds data, configuration and log.
        port: 0 selects a free port, which the broker keeps over restarts.
        heap_mb: the size of Java's heap, in MiB.
        java_options: further options of Java.
        listeners: the ports of further listeners on loopback by protocol, as in {"SASL_SSL": 9093}.
        properties: added to the broker's configuration.
        env: added to the environment of the broker's process.
    """

    jars = "broker"
    """The set of jars that it runs from. Tests also run another version."""
    start_timeout_s = 90.0

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        heap_mb: int = 512,
        java_options: Sequence[str] = (),
        listeners: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("broker", data_dir / "broker.log")
        self._dir = data_dir.absolute()
        self._port, self._controller_port = port or free_port(), free_port()
        self._java_options = (f"-Xmx{heap_mb}m", *java_options)
        self._listeners = dict(listeners or {})
        self._properties = dict(properties or {})
        self._env = env

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: 127.0.0.1 and the port."""
        return f"127.0.0.1:{self._port}"

    def begin(self) -> None:
        """Start the process and return at once.

        Raises:
            StartError: its data directory can't be formatted.
            JarsError: its jars can't be downloaded.
        """
        classpath = os.pathsep.join(str(path.absolute()) for path in self.classpath())
        files.make_folder(self._dir)
        properties = self._write_properties()
        command = [java.launcher(), *self._java_options, "-cp", classpath]
        if not (self._dir / "data" / "meta.properties").exists():
            self._format([*command, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)])
        self._spawn([*command, "kafka.Kafka", str(properties)], self._env, cwd=self._dir)

    def classpath(self) -> list[Path]:
        """Return its jars; downloads those that are missing."""
        return jars.fetch(self.jars)

    def ready(self) -> bool:
        """Return whether the broker answers; takes up to a second."""
        admin = clients.admin({"bootstrap.servers": self.bootstrap_servers})
        try:
            return bool(admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _write_properties(self) -> Path:
        controller = self._controller_port
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
            # Relative to the working directory: Kafka splits a path at commas, and reads the file as ISO-8859-1.
            "log.dirs": "data",
            # With one node, internal topics can have only one replica.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A group starts at once, and the consumers of the demonstration detect a dead member soon.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # A misspelt topic is an error instead of a new topic.
            "auto.create.topics.enable": "false",
            **self._properties,
        }
        path = self._dir / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        return path

    def _format(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=self._dir)
        if done.returncode:
            raise StartError(f"broker: its data directory can't be formatted: {(done.stderr or done.stdout).strip()}")
