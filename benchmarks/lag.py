"""Measure the time and memory of a round of the lag collector, with many groups on a real broker.

The command creates topics and groups. Each group has a committed offset in every partition of its topic. Before each
round, a producer appends records and the groups commit. Then the parts of the collector run a round and write to a
local store:

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

GROUPS_PER_REQUEST = 200
RECORDS_PER_PARTITION = 20


def main() -> None:
    """Run the benchmark and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=2000, help="the number of consumer groups")
    parser.add_argument("--partitions", type=int, default=50, help="the partitions of each topic")
    parser.add_argument("--topics", type=int, default=20, help="the number of topics")
    parser.add_argument("--rounds", type=int, default=6, help="the number of rounds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, KafkaBroker(Path(folder) / "broker", heap_mb=768) as broker:
        _run(broker.bootstrap_servers, Path(folder), options)


def _run(servers: str, folder: Path, options: argparse.Namespace) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [f"topic-{number}" for number in range(options.topics)]
    for future in admin.create_topics([NewTopic(name, options.partitions, 1) for name in topics]).values():
        future.result(120)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    print(f"{options.groups:,} groups of {options.partitions} partitions, {options.topics} topics, a local store")
    _append(producer, topics, options.partitions)
    store = LocalStore(folder / "store.db")
    store.setup()
    tracker = LagTracker(
        OffsetFetcher(lambda: admin, timeout=60, stopping=lambda: False),
        Patterns(("group-*",)),
        Rules(),
        clock=time.time,
    )
    recorder, took = Recorder(), []
    for number in range(options.rounds):
        _commit(admin, topics, options.groups, options.partitions, number + 1)
        _append(producer, topics, options.partitions)
        cpu, began = time.process_time(), time.monotonic()
        found = tracker.round()
        evaluated = time.monotonic()
        points = recorder.points(found)
        store.write(points)
        done = time.monotonic()
        took.append(done - began)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"round {number + 1}: {done - began:5.1f} s (fetched and evaluated {evaluated - began:.1f}, "
            f"written {done - evaluated:.1f}; CPU {time.process_time() - cpu:.1f}), {len(points):,} points, "
            f"lag of {sum(one.lag or 0 for one in found.states):,}, peak memory {memory:.0f} MiB"
        )
    print(f"median round: {statistics.median(took):.1f} s")
    began = time.monotonic()
    text = exposition(found.states, found.bounds, found.ts_ms).text
    print(f"/metrics: {len(text) / 2**20:.1f} MiB in {time.monotonic() - began:.1f} s")
    reader = LocalStore(folder / "store.db")
    began = time.monotonic()
    known = read_groups(reader, at_ms=found.ts_ms)
    print(f"tallystream lag: {len(known):,} groups read in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    one = read_group(reader, known[0].group, at_ms=found.ts_ms)
    print(f"tallystream lag GROUP: {len(one.partitions) if one else 0} partitions in {time.monotonic() - began:.2f} s")
    size = (folder / "store.db").stat().st_size / 2**20
    print(f"store: {size:.0f} MiB after {options.rounds} rounds in which all offsets changed")
    store.close()
    reader.close()


def _append(producer: Producer, topics: Sequence[str], partitions: int) -> None:
    for topic in topics:
        for partition in range(partitions):
            for _ in range(RECORDS_PER_PARTITION):
                producer.produce(topic, b"x", partition=partition)
        producer.poll(0)
    producer.flush(120)


def _commit(admin: AdminClient, topics: Sequence[str], groups: int, partitions: int, offset: int) -> None:
    """Commit higher offsets for every group in each partition of its topic."""
    for at in range(0, groups, GROUPS_PER_REQUEST):
        futures = {}
        for number in range(at, min(groups, at + GROUPS_PER_REQUEST)):
            topic = topics[number % len(topics)]
            moved = [TopicPartition(topic, partition, offset + number % 7) for partition in range(partitions)]
            wanted = [ConsumerGroupTopicPartitions(f"group-{number}", moved)]
            futures |= admin.alter_consumer_group_offsets(wanted, request_timeout=60)
        for future in futures.values():
            future.result(120)


if __name__ == "__main__":
    main()
