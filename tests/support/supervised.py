"""`tallystream aggregate` on one checkpoint, killed and started again: what systemd and a bad day do to it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Literal, Self

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.kafka import command, committed
from support.processes import children, send, tree
from support.wait import wait_until
from tallystream_cli.servers.process import spawn

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

LEADERLESS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART}
"""What a broker says of a partition that has just been made."""

Victim = Literal["driver", "jvm", "tree"]
"""The Python process, Spark's JVM, or every process at once, as a power cut would."""


class Aggregator:
    """The command on the checkpoint in `folder`; `supervised` starts it again when it ends by itself.

    `options` follow those for the broker and the checkpoint. `restarts` counts the times that it ended by itself.
    """

    def __init__(self, bootstrap_servers: str, prefix: str, folder: Path, *options: str) -> None:
        self.servers, self.prefix, self.folder = bootstrap_servers, prefix, folder
        self.checkpoint, self.log, self._ready = folder / "checkpoint", folder / "aggregate.log", folder / "ready"
        self.restarts = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        assert self._process is not None, "it was never started"
        return self._process

    def start(self) -> Self:
        """Start it, and return at once."""
        self._ready.unlink(missing_ok=True)
        self._process = spawn(
            command(
                *("aggregate", "--bootstrap-servers", self.servers, "--topic-prefix", self.prefix, "--no-own-metrics"),
                *("--checkpoint", str(self.checkpoint), "--ready-file", str(self._ready), *self._options),
            ),
            self.log,
        )
        return self

    def wait_ready(self, timeout: float = 300.0) -> Self:
        """Return when its first batch has run."""
        wait_until(
            lambda: self._ready.exists() or self.process.poll() is not None, timeout, "the aggregator is processing"
        )
        assert self.process.poll() is None, self.said()
        return self

    def said(self) -> str:
        """What all its processes have said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def kill(self, victim: Victim) -> None:
        """End it with SIGKILL, and return when the Python process and the JVM are gone."""
        processes = tree(self.process.pid)
        victims = {"driver": processes[:1], "jvm": _named(processes, "java"), "tree": processes}[victim]
        send(victims, signal.SIGKILL)
        self.process.wait(90)  # who lost its JVM says so and ends
        psutil.wait_procs(_named(processes, "java"), timeout=60)

    def kill_worker(self) -> bool:
        """Kill one of Spark's Python workers with SIGKILL; return False where there is none just now."""
        java = _named(tree(self.process.pid), "java")
        daemons = [child for parent in java for child in children(parent)]  # and who looks at the processor, and ends
        workers = [worker for daemon in daemons for worker in children(daemon)]
        send(workers[-1:], signal.SIGKILL)
        return bool(workers)

    def flows_past(self, topic: str, ends: dict[int, int], timeout: float, what: str) -> float:
        """Return the seconds until every offset in `ends` is committed; start it again as often as it ends."""
        began = time.monotonic()

        def past() -> bool:
            if self.process.poll() is not None:
                self.restarts += 1
                self.start()
            group = self.prefix + "tallystream-aggregator"
            return all(committed(self.servers, group, topic, partition) >= end for partition, end in ends.items())

        wait_until(past, timeout, what, poll=0.25)
        return time.monotonic() - began

    def ends(self, timeout: float, what: str) -> int | None:
        """Return the exit code of a process that is to end by itself within `timeout` seconds."""
        wait_until(lambda: self.process.poll() is not None, timeout, what)
        return self.process.poll()

    def stop(self, timeout: float = 120.0) -> int:
        """End it in order, as an operator would, and return its exit code."""
        self.process.terminate()
        return self.process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill("tree")


def ends(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Return the end of each partition: the offset of the record that is appended next."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "tests-ends", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {p: _end(consumer, TopicPartition(topic, p)) for p in partitions}
    finally:
        consumer.close()


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    found: list[int] = []

    def answers() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS:
                raise
        return bool(found)

    if not answers():
        wait_until(answers, 60, f"{partition.topic}, partition {partition.partition}, has a leader")
    return found[0]


def _named(processes: list[psutil.Process], name: str) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.name() == name]
