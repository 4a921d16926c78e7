"""A producer with scripted deliveries instead of librdkafka's, and a Kafka reporter that uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tallystream import KafkaReporter, MetricRegistry
from tallystream.record import Counter, Snapshot, decode
from tallystream.testing import ManualClock


class Message:
    """A delivered record."""

    def __init__(self, append_ms: int) -> None:
        self._append_ms = append_ms

    def timestamp(self) -> tuple[int, int]:
        return 2, self._append_ms


@dataclass
class Metadata:
    """The answer to list_topics()."""

    cluster_id: str | None


class ScriptedProducer:
    """Keeps all records; each poll() serves one of `deliveries`: True delivers a record, an error fails it, None waits.

    Its cluster has the ID `cluster`; if that is None, no broker can be reached.
    """

    def __init__(self, clock: ManualClock, cluster: str | None = "c-1") -> None:
        self.clock, self.cluster = clock, cluster
        self.snapshots: list[Snapshot] = []
        self.keys: set[bytes] = set()
        self.values: list[bytes] = []
        self.deliveries: list[bool | KafkaError | None] = []
        self.refuse: Exception | None = None
        self.purged = 0
        self._waiting: list[Callable[[Any, Any], None]] = []

    def produce(self, _: str, *, key: bytes, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        """Keep a record, or raise `refuse`."""
        if self.refuse is not None:
            raise self.refuse
        self.snapshots.append(decode(value))
        self.keys.add(key)
        self.values.append(value)
        self._waiting.append(on_delivery)

    def poll(self, seconds: float) -> None:
        """Serve one delivery, or advance the clock."""
        delivery = self.deliveries.pop(0) if self._waiting and self.deliveries else None
        if delivery is None:
            self.clock.advance(seconds)
            return
        done = self._waiting.pop(0)
        done(None if delivery is True else delivery, Message(self.clock.wall_ms()))

    def list_topics(self, _: str, *, timeout: float) -> Metadata:
        """Return the cluster's ID, or advance the clock and raise."""
        if self.cluster is None:
            self.clock.advance(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return Metadata(self.cluster)

    def purge(self, *, blocking: bool) -> None:
        """Count the purge; the next flush fails the waiting records."""
        assert not blocking
        self.purged += 1

    def flush(self, _: float) -> int:
        """Fail the waiting records."""
        while self._waiting:
            self._waiting.pop(0)(KafkaError(KafkaError._PURGE_QUEUE), None)
        return 0


class KafkaBench:
    """A registry with one counter, a reporter whose producers are scripted, and the clock of both."""

    def __init__(self, **arguments: Any) -> None:
        self.clock = ManualClock()
        self.registry = MetricRegistry("app", clock=self.clock)
        self.counter = self.registry.counter("c")
        self.producers: list[ScriptedProducer] = []
        self.errors: list[Callable[[KafkaError], None]] = []
        self.clusters: dict[str, str | None] = {}
        self.reporter = self.make(**arguments)

    def make(self, **arguments: Any) -> KafkaReporter:
        wanted: dict[str, Any] = {"own_metrics": False, "bootstrap_servers": "b:9092", "instance": "i-1", **arguments}
        return KafkaReporter(self.registry, producer=self._producer, **wanted)

    def _producer(self, options: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> Any:
        self.errors.append(on_error)
        self.producers.append(ScriptedProducer(self.clock, self.clusters.get(options["bootstrap.servers"], "c-1")))
        self.producers[-1].deliveries = [True] * 100
        return self.producers[-1]

    @property
    def snapshots(self) -> list[Snapshot]:
        return [snapshot for producer in self.producers for snapshot in producer.snapshots]


def counts(snapshots: list[Snapshot]) -> list[int]:
    """Return the counts of all counters in the snapshots."""
    return [metric.count for s in snapshots for metric in s.metrics if isinstance(metric, Counter)]
