"""The catch-up source on a real broker, called as Spark calls it: the ends of batches, their splits and records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from support.compaction import compact
from support.kafka import read_topic
from tallystream.testing import ManualClock
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.spark.catch_up.encoding import records_of
from tallystream_aggregator.spark.catch_up.reader import LostRecordsError
from tallystream_aggregator.spark.catch_up.source import CatchUpOptions, CatchUpReader
from tallystream_aggregator.spark.catch_up.splits import BATCH_S
from tallystream_aggregator.spark.checkpoint import store_first
from tallystream_aggregator.spark.kafka_options import Fetch
from tallystream_aggregator.table import Record, TableSettings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def options(
    broker: KafkaBroker, topics: Topics, checkpoint: Path = Path(), *, skip_lost: bool = False
) -> CatchUpOptions:
    return CatchUpOptions(
        kafka={"bootstrap.servers": broker.bootstrap_servers},
        group="tests-backlog",
        selection=Selection(topics.metrics),
        fetch=Fetch(),
        table=TableSettings(),
        checkpoint=str(checkpoint),
        max_records=100,
        full=20,
        delay_s=2.0,
        tasks=2,
        shards=1,
        skip_lost=skip_lost,
    )


def publish(broker: KafkaBroker, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for n in range(records):
        value = b'{"name":"requests","value":%d}' % n
        producer.produce(topic, key=b"app-%d" % (n % 7), value=value)
    assert producer.flush(60) == 0


def read(reader: CatchUpReader, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[list[Record]]:
    """Return the records of each task of a batch in offset order, with the topic named `metrics`."""
    tasks = [reader.read(one) for one in reader.partitions(start, end)]
    read = [[record for part in parts for record in records_of(part.to_pandas())] for parts in tasks]
    return [sorted((one._replace(topic="metrics") for one in task), key=lambda one: one.offset) for task in read]


def test_batches_and_tasks_have_all_records(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """The size of each batch follows the speed of the one before; each task compacts its split."""
    publish(broker, topics.metrics, 1000)
    store_first(tmp_path, {topics.metrics: {"0": 0}})
    clock = ManualClock()
    reader = CatchUpReader(options(broker, topics, tmp_path), clock)
    records = [
        Record("metrics", 0, one.offset, one.timestamp_ms, one.key, one.value)
        for one in read_topic(broker.bootstrap_servers, topics.metrics)
    ]
    reached, sizes = reader.initialOffset(), []
    while True:
        start, reached = reached, reader.latestOffset(reached, reader.getDefaultReadLimit())
        first, end = start[topics.metrics]["0"], reached[topics.metrics]["0"]
        if first == end:
            break
        sizes.append(end - first)
        middle = (first + end) // 2
        tasks = read(reader, start, reached)
        wanted = [compact(records[first:middle], TableSettings()), compact(records[middle:end], TableSettings())]
        assert tasks == wanted
        clock.advance(BATCH_S / 2)
    assert sizes == [100, 200, 400, 300]
    assert reader.reportLatestOffset() == reached == {topics.metrics: {"0": 1000}}
    assert reader.latestOffset({topics.metrics: {"0": 5}}, ReadAllAvailable()) == reached


def test_a_few_records_wait_and_a_full_batch_does_not(broker: KafkaBroker, topics: Topics, tmp_path: Path) -> None:
    """After a pause the first records start a batch; later ones wait for the delay, or until they fill a batch."""
    clock, limit = ManualClock(), ReadMaxRows(100)
    reader = CatchUpReader(options(broker, topics, tmp_path), clock)

    def reach(start: int, published: int) -> int:
        publish(broker, topics.metrics, published)
        return reader.latestOffset({topics.metrics: {"0": start}}, limit)[topics.metrics]["0"]

    assert reach(0, 5) == 5
    assert reach(5, 10) == 5
    clock.advance(1.9)
    assert reach(5, 0) == 5
    clock.advance(0.2)
    assert reach(5, 0) == 15
    assert reach(15, 19) == 15
    assert reach(15, 1) == 35


def test_deleted_records_are_an_error_or_are_skipped(broker: KafkaBroker, topics: Topics, admin: AdminClient) -> None:
    """`skip_lost` decides, whether they are deleted before a batch is planned or while it is read."""
    publish(broker, topics.metrics, 100)
    before, end = {topics.metrics: {"0": 10}}, {topics.metrics: {"0": 100}}
    for future in admin.delete_records([TopicPartition(topics.metrics, 0, 50)]).values():
        future.result()
    strict, lenient = CatchUpReader(options(broker, topics)), CatchUpReader(options(broker, topics, skip_lost=True))
    with pytest.raises(LostRecordsError, match="it has offsets 50 to 100, and 10 is the next"):
        strict.latestOffset(before, ReadMaxRows(1000))
    with pytest.raises(LostRecordsError, match="has no offset 10 any more"):
        read(strict, before, end)
    assert lenient.latestOffset(before, ReadMaxRows(1000)) == end
    found = [record.offset for task in read(lenient, before, end) for record in task]
    assert min(found) == 50
    assert max(found) == 99
    with pytest.raises(LostRecordsError, match="ends at 100, before 120"):
        read(strict, {topics.metrics: {"0": 60}}, {topics.metrics: {"0": 120}})
