"""How long one round of the lag collector takes, and what memory: many groups on a real broker, everything moving.

Makes the topics and the groups (each has committed in every partition of its topic), lets a producer append and the
groups commit between rounds, and runs the collector's own parts, one round after another, into a local store:

    .venv/bin/python benchmarks/lag.py --groups 2000 --partitions 50
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tallystream_aggregator.sinks.sqlite.reader import LocalReader
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_cli.servers.broker import KafkaBroker
from tallystream_dashboards.lag.collector.kafka_admin import OffsetFetcher
from tallystream_dashboards.lag.collector.recorder import Recorder
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker
from tallystream_dashboards.lag.exposition import exposition
from tallystream_dashboards.lag.reader import read_group, read_groups
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = 200
RECORDS = 20


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "broker", heap_mb=768) as broker:
        _run(broker.bootstrap_servers, Path(folder), asked)


def _run(servers: str, folder: Path, asked: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [f"topic-{number}" for number in range(asked.topics)]
    for future in admin.create_topics([NewTopic(name, asked.partitions, 1) for name in topics]).values():
        future.result(120)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    print(f"{asked.groups:,} groups of {asked.partitions} partitions, {asked.topics} topics, rounds into a local store")
    _append(producer, topics, asked.partitions)
    store = LocalStore(folder / "store.db")
    store.setup()
    tracker = LagTracker(
        OffsetFetcher(admin, timeout=60, stopping=lambda: False), Patterns(("group-*",)), Rules(), clock=time.time
    )
    recorder, took = Recorder(Rules()), []
    for number in range(asked.rounds):
        _commit(admin, topics, asked.groups, asked.partitions, number + 1)
        _append(producer, topics, asked.partitions)
        cpu, began = time.process_time(), time.monotonic()
        found = tracker.round()
        looked = time.monotonic()
        points = recorder.points(found)
        store.write(points)
        done = time.monotonic()
        took.append(done - began)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"round {number + 1}: {done - began:5.1f} s (asked and judged {looked - began:.1f}, "
            f"written {done - looked:.1f}; CPU {time.process_time() - cpu:.1f}), {len(points):,} points, "
            f"lag of {sum(one.lag or 0 for one in found.states):,}, at most {memory:.0f} MiB"
        )
    print(f"median round: {statistics.median(took):.1f} s")
    began = time.monotonic()
    text = exposition(found.states, found.bounds, found.ts_ms)
    print(f"/metrics: {len(text) / 2**20:.1f} MiB in {time.monotonic() - began:.1f} s")
    reader = LocalReader(folder / "store.db")
    began = time.monotonic()
    known = read_groups(reader, at_ms=found.ts_ms)
    print(f"tallystream lag: {len(known):,} groups read in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    one = read_group(reader, known[0].group, at_ms=found.ts_ms)
    print(f"tallystream lag GROUP: {len(one.partitions) if one else 0} partitions in {time.monotonic() - began:.2f} s")
    size = (folder / "store.db").stat().st_size / 2**20
    print(f"store: {size:.0f} MiB after {asked.rounds} rounds in which everything moved")
    store.close()
    reader.close()


def _append(producer: Producer, topics: Sequence[str], partitions: int) -> None:
    for topic in topics:
        for partition in range(partitions):
            for _ in range(RECORDS):
                producer.produce(topic, b"x", partition=partition)
        producer.poll(0)
    producer.flush(120)


def _commit(admin: AdminClient, topics: Sequence[str], groups: int, partitions: int, offset: int) -> None:
    """Let every group commit in each partition of its topic, a few records further each time."""
    for at in range(0, groups, AT_ONCE):
        asked = {}
        for number in range(at, min(groups, at + AT_ONCE)):
            topic = topics[number % len(topics)]
            moved = [TopicPartition(topic, partition, offset + number % 7) for partition in range(partitions)]
            wanted = [ConsumerGroupTopicPartitions(f"group-{number}", moved)]
            asked |= admin.alter_consumer_group_offsets(wanted, request_timeout=60)
        for future in asked.values():
            future.result(120)


if __name__ == "__main__":
    main()
