"""Sums on `metrics-agg`, the points that a store must have after them, and `tallystream ship` as a process."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer

from support.commands import running
from support.levels import Contents
from support.malformed import UNDECODABLE
from support.stores import NOW_MS, Content, content
from support.wait import wait_until
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.http import OTLP_EXPONENTIAL, OTLP_HISTOGRAMS
from tallystream_aggregator.sinks.stores import StoreSettings

FIELDS = ["count", "sum", "min", "max", "mean", "number", "lives", "instances", "retired"]


class Sums:
    """Publishes the output of an aggregator from a fixed seed: counters and gauges of a few series.

    Each row has its own time. `padding` spaces follow each row, to make it larger. `points` has the points that the
    store must have, by measurement. They are not created by the shipper's code.
    """

    SERIES: ClassVar[list[tuple[str, str, dict[str, str]]]] = [
        ("flights.processed", "counter", {"topic": "flights"}),
        ("flights.processed", "counter", {"topic": 'a, b="c"\nd\\'}),
        ("flights in flight", "gauge", {}),
    ]

    def __init__(self, bootstrap_servers: str, topic: str, *, padding: int = 0, begin_ms: int = NOW_MS) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._servers = bootstrap_servers
        self._padding = b" " * padding
        self._topic, self._begin_ms = topic, begin_ms
        self._random = random.Random(11)
        self._counts = [0] * len(self.SERIES)
        self.rows = 0
        self.points: dict[str, Content] = {name: {} for name, _, _ in self.SERIES}

    def publish(self, rows: int) -> None:
        for _ in range(rows):
            number = self._random.randrange(len(self.SERIES))
            name, kind, tags = self.SERIES[number]
            self._counts[number] += self._random.randrange(2**40)
            count, ts_ms = self._counts[number], self._begin_ms + self.rows
            values: dict[str, Any] = {"count": count}
            if kind == "gauge":
                values = {"sum": 1.5 * count, "min": 0.5, "max": 1.0 * count, "mean": 0.75, "number": 2}
            row = sums.Sum(
                app="orders",
                name=name,
                type=kind,
                tags=tags,
                lives=2,
                instances=1,
                ts=ts_ms,
                **values,
            )
            self._send(row.key(), row.value() + self._padding)
            series = tuple(sorted({**tags, "app": "orders", "metric_type": kind}.items()))
            fields = {**values, "lives": 2, "instances": 1, "retired": 0}
            self.points[name].setdefault(series, {})[ts_ms] = fields
        assert self._producer.flush(60) == 0

    def publish_aborted(self, rows: int) -> None:
        """Publish rows in a transaction that is aborted, which must not be shipped."""
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": f"aborted-{self._topic}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for _ in range(rows):
            row = sums.Sum(app="orders", name="aborted", type="counter", count=1, ts=NOW_MS)
            producer.produce(self._topic, key=b"aborted", value=row.value())
        producer.flush(60)
        producer.abort_transaction(60)
        self.rows += rows + 1  # and the marker

    def publish_noise(self) -> None:
        """Publish records that are not sums, which the shipper must skip."""
        for value in (None, *UNDECODABLE.values(), b'{"v":1}'):
            self._send(b"noise", value)
        assert self._producer.flush(60) == 0

    def publish_rejected(self) -> None:
        """Publish a sum that every store rejects: its count exceeds 64 bits."""
        row = sums.Sum(app="orders", name="too.large", type="counter", count=2**63, ts=NOW_MS)
        self._send(row.key(), row.value())
        assert self._producer.flush(60) == 0

    def _send(self, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self._topic, key=key, value=value)
        self._producer.poll(0)
        self.rows += 1

    def publish_events_and_rows(self, topics: Topics) -> dict[str, Content]:
        """Publish an event, rows of a life, and records without a point; return the points by measurement."""
        event = {"v": 1, "kind": "restart", "app": "orders", "instance": "i-1", "life": "L2", "ts": NOW_MS}
        event |= {"topic": "metrics", "partition": 0, "offset": 17}
        for _ in range(2):  # it is one point
            self._producer.produce(topics.events, key=b"k", value=json.dumps(event).encode())
        for count in (7, 9):
            row = {"v": 1, "app": "orders", "instance": "i-1", "life": "L2", "part": 0, "seq": 3, "topic": "metrics"}
            row |= {"partition": 0, "offset": 17, "last_seen_ms": NOW_MS + count, "every_ms": 1000, "keep_ms": 0}
            row |= {"metrics": [{"name": "n", "type": "counter", "count": count}]}
            self._producer.produce(topics.table, key=b'["life","orders","i-1","L2",0]', value=json.dumps(row).encode())
        self._producer.produce(topics.table, key=b'["forgotten",0,"a","counter","n",[]]', value=b'{"v":1,"lives":1}')
        self._producer.produce(topics.table, key=b'["life","orders","i-0","L1",0]', value=None)
        assert self._producer.flush(60) == 0
        event_series = (("app", "orders"), ("instance", "i-1"), ("kind", "restart"))
        row_series = (("app", "orders"), ("instance", "i-1"), ("metric_type", "counter"))
        return {
            "tallystream.events": {
                event_series: {NOW_MS: {"text": "restart: i-1", "life": "L2", "partition": 0, "offset": 17}}
            },
            "instance:n": {row_series: {NOW_MS + count: {"count": count, "life": "L2"} for count in (7, 9)}},
        }

    def latest(self) -> Contents:
        """Return the newest point of each series, which a store of the latest sums must have."""
        return {
            (name, series): {max(points): points[max(points)]}
            for name, found in self.points.items()
            for series, points in found.items()
        }

    def missing(self, store: StoreSettings) -> int:
        """Return how many points the store lacks. Fail if it has an unwanted point, or another value.

        A point without some of its fields counts as missing, because a read during a write may return it incomplete.
        """
        missing = 0
        for measurement, wanted in self.points.items():
            found = content(store, measurement, FIELDS)
            for series, points in found.items():
                for ts_ms, fields in points.items():
                    due = wanted.get(series, {}).get(ts_ms, {})
                    assert fields.items() <= due.items(), (measurement, series, ts_ms)
                    missing += fields.keys() < due.keys()
            missing += sum(len(points) for points in wanted.values()) - sum(len(points) for points in found.values())
        return missing


@contextmanager
def shipper(
    bootstrap_servers: str, prefix: str, folder: Path, store: StoreSettings, *options: str, timeout: float = 300.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tallystream ship` until the block ends. Yield as soon as it is started. `folder` has its log."""
    with running(
        folder / "ship.log",
        *("ship", "--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix),
        *("--ready-file", str(folder / "ready")),
        *("--store", store.spec, *options),
        env={"INFLUXDB_TOKEN": store.token, "INFLUXDB_ORG": store.org, "INFLUXDB_BUCKET": store.bucket}
        | ({OTLP_HISTOGRAMS: OTLP_EXPONENTIAL} if store.buckets else {}),
        timeout=timeout,
    ) as process:
        yield process


def wait_shipped(process: subprocess.Popen[bytes], folder: Path, wanted: Sums, store: StoreSettings) -> None:
    """Wait until the store has exactly the wanted points."""

    def shipped() -> bool:
        assert process.poll() is None, (folder / "ship.log").read_text()
        return wanted.missing(store) == 0

    wait_until(shipped, 300, f"{wanted.rows} rows are shipped")
