"""Measure how fast `tallystream verify` replays a topic, compared with reading it and with summing it in the table.

.venv/bin/python benchmarks/verify.py
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tallystream import record
from tallystream.metrics.sketch import Sketch
from tallystream.ulid import new_ulid
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker as StreamBroker
from tallystream_aggregator.stream.reading import read_range
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.verify.replay import Replay
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import RawRecord

BATCH = 10_000


def main() -> None:
    """Publish `--records` snapshots of `--instances` instances. Then read, replay and sum them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000, help="the number of records")
    parser.add_argument("--instances", type=int, default=100, help="the number of instances")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder)) as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        for metrics in (1, 50):
            topics = Topics(f"m{metrics}-")
            create_topics(AdminClient(kafka), topics)
            place = Place(topics.metrics, 0)
            size = publish(kafka, topics.metrics, options.records, options.instances, metrics)
            print(f"{options.records:,} records of {metrics} metrics, {size:,.0f} bytes a record")
            for name, measured in (("only read", read), ("replayed by verify", replay), ("summed by the table", table)):
                began, cpu = time.perf_counter(), time.process_time()
                reading = StreamBroker(kafka, Selection(topics.metrics), "benchmark")
                count = measured(read_range(reading, place, reading.bounds([place])[place], committed=False))
                took, cpu = time.perf_counter() - began, time.process_time() - cpu
                assert count == options.records
                print(
                    f"  {name}: {count / took:,.0f} records/s, {metrics * count / took:,.0f} metrics/s, {cpu:.2f} CPU-s"
                )
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


def publish(kafka: dict[str, str], topic: str, records: int, instances: int, metrics: int) -> float:
    """Publish the records and return their mean size in bytes. One metric of ten is a histogram with a sketch."""
    producer = Producer({**kafka, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    lives = [new_ulid(int(time.time() * 1000)) for _ in range(instances)]
    sketch = Sketch()
    sketch.add([1.01**n for n in range(1, 200)])
    encoded, total = sketch.encode(), 0
    for number in range(records):
        instance, seq = number % instances, number // instances + 1
        listed: list[record.Metric] = [
            record.Histogram(name=f"size.{n}", count=199, sum=1234.5, min=1.0, max=7.0, sketch=encoded)
            if n % 10 == 9
            else record.Counter(name=f"records.processed.{n}", tags={"topic": "orders"}, count=seq)
            for n in range(metrics)
        ]
        header: dict[str, Any] = {"life": lives[instance], "part": 0, "seq": seq, "ts": 0, "every_ms": 1000}
        value = record.encode(record.Snapshot(app="orders", final=False, metrics=listed, **header))
        total += len(value)
        producer.produce(topic, key=f"orders-{instance}".encode(), value=value)
        producer.poll(0)
    producer.flush(120)
    return total / records


def read(records: Iterator[RawRecord]) -> int:
    """Count the records."""
    return sum(1 for _ in records)


def replay(records: Iterator[RawRecord]) -> int:
    """Replay the records as `tallystream verify` does."""
    replayed = Replay()

    def apply(batch: list[RawRecord]) -> None:
        for _, timestamp_ms, key, value in batch:
            assert not replayed.apply("metrics:0", timestamp_ms, key, value)

    count = _in_batches(records, apply)
    replayed.sums()
    return count


def table(records: Iterator[RawRecord]) -> int:
    """Apply the records to the table of the aggregator, in this process and without Spark."""
    summed = Table(State())

    def apply(batch: list[RawRecord]) -> None:
        for offset, timestamp_ms, key, value in batch:
            summed.apply_record(Record("metrics", 0, offset, timestamp_ms, key, value, clock_ms=timestamp_ms))
        assert not summed.outputs().dead

    return _in_batches(records, apply)


def _in_batches(records: Iterator[RawRecord], apply: Callable[[list[RawRecord]], None]) -> int:
    count, batch = 0, []
    for raw in records:
        batch.append(raw)
        if len(batch) == BATCH:
            apply(batch)
            count, batch = count + len(batch), []
    apply(batch)
    return count + len(batch)


if __name__ == "__main__":
    main()
