"""Two aggregators on a real broker and real Spark: a stopped one that continues after a takeover changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from support.aggregator import running_aggregator
from support.commands import command, run
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import TopicRecord, committed, read_topic
from support.processes import send, tree
from support.wait import wait_until
from tallystream import record
from tallystream.ulid import new_ulid

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

FORGED = 2**62
"""An epoch that no aggregator has."""


Replaced = dict[str, dict[bytes, bytes | None]]
"""Topic → key → value"""


def _compact(admin: AdminClient, servers: str, replaced: Replaced) -> None:
    """Wait until the broker has compacted the output topics, so that only the last record of each key remains."""
    before = {topic: read_topic(servers, topic) for topic in replaced}
    for topic in replaced:
        _compact_soon(admin, topic)
    producer = Producer({"bootstrap.servers": servers})

    def compacted() -> bool:
        for topic, records in replaced.items():  # a new segment starts only when a record is appended
            key, value = next(iter(records.items()))
            producer.produce(topic, key=key, value=value)
        assert producer.flush(60) == 0
        return all(len(left(topic)) <= len({read.key for read in before[topic]}) for topic in replaced)

    def left(topic: str) -> list[TopicRecord]:
        return [read for read in read_topic(servers, topic) if read.offset <= before[topic][-1].offset]

    wait_until(compacted, 240, "the broker has compacted the outputs")


def _compact_soon(admin: AdminClient, topic: str) -> None:
    """Make the broker compact all but the newest segment, and start a new segment twice a second."""
    settings = {
        "min.compaction.lag.ms": "0",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "0",
    }
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


def test_a_stopped_writer_is_replaced_and_changes_nothing(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """A second aggregator is refused; a standby takes over from a stopped one, which ends when it continues.

    Keys that the stopped one overwrites afterwards are published again, and so is a key with an epoch that no
    aggregator has. The same holds at the next start, after compaction kept only the overwriting records. A rebuild
    is exact.
    """
    servers, prefix = broker.bootstrap_servers, topic_prefix
    fleet = Fleet(servers, topics.metrics, seed=21)
    fleet.publish(400)
    _publish_single_record(broker, topics)
    group = prefix + "tallystream-aggregator"
    second, ready = tmp_path / "second.log", tmp_path / "second.ready"
    options = ("--bootstrap-servers", servers, "--topic-prefix", prefix, "--checkpoint", str(tmp_path / "checkpoint"))
    with running_aggregator(servers, prefix, tmp_path) as first, second.open("wb") as log:
        refused = subprocess.Popen(command("aggregate", *options), stdout=log, stderr=log)
        standby = subprocess.Popen(
            command("aggregate", *options, "--standby", "--ready-file", str(ready)), stdout=log, stderr=log
        )
        try:
            assert refused.wait(240) == 1
            assert "another aggregator still has it" in second.read_text()
            wait_until(lambda: second.read_text().count("waiting for the lease") == 2, 120, "the second is a standby")
            assert first.poll() is None
            fleet.publish(300)
            stopped = tree(first.pid)
            send(stopped, signal.SIGSTOP)
            try:
                fleet.publish(300)
                wait_until(ready.exists, 240, "the second has processed its first batch")
            finally:
                send(stopped, signal.SIGCONT)
            assert first.wait(120) == 1
            assert "took over with epoch 2, ours was 1" in (tmp_path / "aggregate.log").read_text()
            fleet.publish(200)
            assert_exact(broker, topics)
            replaced = _last_of_first_epoch(broker, topics)
            _append_replaced(broker, replaced)
            wait_until(lambda: _last_is_newest(servers, topics), 120, "the newest values are published again")
        finally:
            standby.terminate()
            assert standby.wait(120) == 0, second.read_text()
    _append_replaced(broker, replaced)
    _compact(admin, servers, replaced)
    with running_aggregator(servers, prefix, tmp_path):
        wait_until(
            lambda: _all_have_epoch(servers, replaced, epoch=3), 120, "what compaction removed is published again"
        )
        assert_exact(broker, topics)
    shutil.rmtree(tmp_path / "checkpoint")
    end = committed(servers, group, topics.metrics)
    rebuilt = run("rebuild", *options)
    assert rebuilt.returncode == 0, rebuilt.stderr
    with running_aggregator(servers, prefix, tmp_path):
        fleet.publish(100)
        assert_exact(broker, topics)
    assert committed(servers, group, topics.metrics) > end


def _publish_single_record(broker: KafkaBroker, topics: Topics) -> None:
    """Publish the only record of a life and of its sum: neither is published a second time."""
    snapshot = record.Snapshot(
        app="once",
        life=new_ulid(int(time.time() * 1000)),
        part=0,
        seq=1,
        ts=0,
        every_ms=3_600_000,
        final=False,
        metrics=[record.Counter(name="runs", count=3)],
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topics.metrics, key=b"once-1", value=record.encode(snapshot))
    assert producer.flush(60) == 0


def _last_of_first_epoch(broker: KafkaBroker, topics: Topics) -> Replaced:
    """Return the last record of each key that the writer of the first epoch wrote."""
    found: Replaced = {}
    for topic in (topics.agg, topics.table):
        records = read_topic(broker.bootstrap_servers, topic)
        found[topic] = {read.key: read.value for read in records if read.key and _version(read.value)[0] == 1}
        assert found[topic]
    return found


def _append_replaced(broker: KafkaBroker, replaced: Replaced) -> None:
    """Append old sums, old rows and deleted rows, as a stopped writer of the first epoch could.

    The last record of each topic has an epoch that no aggregator has, and the key of the single record.
    """
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for topic, records in replaced.items():
        for key, value in records.items():
            producer.produce(topic, key=key, value=value)
        (once,) = [key for key in records if b'"once"' in key]
        forged = re.sub(rb'"count":\d+', b'"count":999', records[once] or b"")
        producer.produce(topic, key=once, value=re.sub(rb'"epoch":1\b', b'"epoch":%d' % FORGED, forged))
    assert producer.flush(60) == 0


def _all_have_epoch(servers: str, replaced: Replaced, *, epoch: int) -> bool:
    """Return whether the last record of each of these keys has the epoch, or is a deletion."""
    for topic, records in replaced.items():
        last = {read.key: read.value for read in read_topic(servers, topic)}
        if any(last.get(key) is not None and _version(last[key])[0] != epoch for key in records):
            return False
    return True


def _version(value: bytes | None) -> tuple[int, int]:
    row = {"epoch": 0} if value is None else json.loads(value)
    return row["epoch"], row.get("batch", 0)


def _last_is_newest(servers: str, topics: Topics) -> bool:
    """Return whether the last record of every key is a deletion, or the newest that an aggregator wrote."""
    for topic in (topics.agg, topics.table):
        newest: dict[bytes | None, tuple[int, int]] = {}
        last: dict[bytes | None, tuple[int, int]] = {}
        for read in read_topic(servers, topic):
            last[read.key] = _version(read.value)
            if last[read.key][0] != FORGED:
                newest[read.key] = max(newest.get(read.key, (0, 0)), last[read.key])
        if any(last[key] not in ((0, 0), newest[key]) for key in last):
            return False
    return True
