"""Read topics whole, and run the aggregator's command: what the tests on real servers share."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.ending import end, with_stacks
from support.wait import wait_until
from tallystream_aggregator import sums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Read(NamedTuple):
    """A record as it was read: what the oracle takes."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    partition: int
    offset: int


def read_topic(bootstrap_servers: str, topic: str, *, timeout: float = 60.0) -> list[Read]:
    """Return every record of a topic, up to the ends as they are now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # the first ones may have been deleted
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=timeout)[1] for n in partitions}
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_partitions = set(partitions)
        records: list[Read] = []
        while open_partitions:
            message = consumer.poll(timeout)
            if message is None:
                raise TimeoutError(f"{topic}: nothing was read for {timeout:g} s")
            error = message.error()
            if error is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if partition in open_partitions:
                    records.append(Read(message.key(), message.value(), message.timestamp()[1], partition, offset))
                if offset + 1 >= ends[partition]:  # the event below may never come where records keep coming
                    open_partitions.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        return records
    finally:
        consumer.close()


Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""


def latest_sums(bootstrap_servers: str, topic: str) -> dict[Key, sums.Sum]:
    """Return the newest sum of every key of `metrics-agg`: the one with the highest (epoch, batch)."""
    newest: dict[Key, sums.Sum] = {}
    for read in read_topic(bootstrap_servers, topic):
        assert read.value is not None
        row = sums.decode(read.value)
        key = (row.app, row.name, row.type, tuple(sorted(row.tags.items())))
        if key not in newest or (row.epoch, row.batch) >= (newest[key].epoch, newest[key].batch):
            newest[key] = row
    return newest


def committed(bootstrap_servers: str, group: str, topic: str, partition: int = 0) -> int:
    """Return the group's committed offset, -1001 where there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    try:
        return consumer.committed([TopicPartition(topic, partition)], timeout=30)[0].offset
    finally:
        consumer.close()


def command(*arguments: str) -> list[str]:
    """Return the command line of `tallystream` with this interpreter."""
    return [sys.executable, "-m", "tallystream_cli.main", *arguments]


def run(
    *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 300.0, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of `tallystream` to its end, and return its exit code and what it said.

    `env` is added to ours; `folder` is the current one of the command.
    """
    return subprocess.run(
        command(*arguments),
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=folder,
    )


@contextmanager
def aggregator(
    bootstrap_servers: str, prefix: str, folder: Path, *options: str, timeout: float = 300.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tallystream aggregate` on the checkpoint in `folder` until the block ends; yields when it is processing."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    with (folder / "aggregate.log").open("ab") as log:
        process = subprocess.Popen(
            command(
                *("aggregate", "--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix),
                *("--checkpoint", str(folder / "checkpoint"), "--ready-file", str(ready), *options),
            ),
            stdout=log,
            stderr=log,
            env=with_stacks(),
        )
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, timeout, "the aggregator is processing")
        assert process.poll() is None, (folder / "aggregate.log").read_text()
        yield process
    finally:
        end(process, folder / "aggregate.log", timeout)
