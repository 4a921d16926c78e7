"""Records of replaced writers on the output topics, on a real broker without Spark: a rebuild is exact."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql.streaming.tws_tester import TwsTester

from support.kafka import TopicRecord, read_topic
from support.wait import wait_until
from tallystream_aggregator.initial_state import initial_state_path, read_initial_state
from tallystream_aggregator.jobs import rebuild
from tallystream_aggregator.jobs.aggregate import writer as writing
from tallystream_aggregator.jobs.aggregate.job import AggregateSettings
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.repair_request import request_path
from tallystream_aggregator.sharding import Sharding
from tallystream_aggregator.spark.catch_up.encoding import INPUT_COLUMNS
from tallystream_aggregator.spark.query.processor import TableProcessor
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.state import unpack
from tallystream_aggregator.versions import HEADER

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SHORT_FORM = ["life", "default", "script", "", 0]


class TableTopic:
    """Writes records of several aggregators to `metrics-table`, all of one counter of the short form."""

    def __init__(self, servers: str, topics: Topics) -> None:
        self.topics = topics
        self._producer = Producer({"bootstrap.servers": servers})

    def metrics(self, number: int) -> None:
        """Append records to `metrics`."""
        for _ in range(number):
            self._append(self.topics.metrics, b"script", {"name": "n", "value": 1})

    def row(self, count: int, *, epoch: int, batch: int, instance: str = "script") -> None:
        """Append the row of the counter with its count."""
        key = json.dumps([*SHORT_FORM[:2], instance, *SHORT_FORM[3:]], separators=(",", ":")).encode()
        value: dict[str, Any] = {"v": 1, "app": "default", "instance": instance, "life": "", "part": 0}
        value |= {"topic": self.topics.metrics, "partition": 0, "offset": batch, "last_seen_ms": 1, "every_ms": 1000}
        value |= {"keep_ms": 1, "metrics": [{"name": "n", "type": "counter", "count": count, "last": count}]}
        self._append(self.topics.table, key, value | {"epoch": epoch, "batch": batch})

    def deletion(self, writer: tuple[int, int] | None, instance: str = "script") -> None:
        """Append the deletion of the counter's row, with `writer` in its header."""
        key = json.dumps([*SHORT_FORM[:2], instance, *SHORT_FORM[3:]], separators=(",", ":")).encode()
        headers = None if writer is None else [("writer", json.dumps(writer, separators=(",", ":")).encode())]
        self._producer.produce(self.topics.table, key=key, value=None, headers=headers)
        assert self._producer.flush(30) == 0

    def shard(self, *, epoch: int, batch: int) -> None:
        """Append the shard record, which has the offsets that the table includes."""
        value = {"v": 1, "shard": 0, "shards": 1, "clocks": {f"{self.topics.metrics}:0": 1}}
        value |= {"offsets": {f"{self.topics.metrics}:0": batch}, "stale": 0}
        self._append(self.topics.table, b'["shard",0]', value | {"epoch": epoch, "batch": batch})

    def _append(self, topic: str, key: bytes, value: dict[str, Any]) -> None:
        self._producer.produce(topic, key=key, value=json.dumps(value, separators=(",", ":")).encode())
        assert self._producer.flush(30) == 0


@pytest.fixture
def table(broker: KafkaBroker, topics: Topics) -> TableTopic:
    """The topic of the table, and ten records on `metrics`."""
    table = TableTopic(broker.bootstrap_servers, topics)
    table.metrics(10)
    return table


def test_a_stale_writer_s_rows_and_deletions_change_nothing_that_is_rebuilt(
    broker: KafkaBroker, topics: Topics, table: TableTopic, tmp_path: Path
) -> None:
    """A row after its key's deletion counts, also if a deletion of an older writer, or without one, is appended later.

    A row that its writer appends again after the deletion stays deleted.
    """
    table.row(7, epoch=1, batch=3, instance="gone")
    table.deletion((1, 4), instance="gone")
    table.row(7, epoch=1, batch=3, instance="gone")
    table.row(7, epoch=1, batch=3)
    table.deletion((1, 4))
    for instance in ("script", "other"):
        table.row(107, epoch=2, batch=5, instance=instance)
    table.shard(epoch=2, batch=5)
    table.deletion((1, 4))
    table.deletion(None, instance="other")
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    opened = ledger.LedgerRow(kind="opened", query=ledger.QUERY, epoch=2, ts=1, start={topics.metrics: {"0": 0}})
    ledger.LedgerWriter(topics.ledger, kafka).write([opened])
    checkpoint = tmp_path / "checkpoint"
    asked = rebuild.RebuildSettings(broker.bootstrap_servers, checkpoint, topics.prefix)
    assert rebuild.run(asked, lambda _: None) == 0
    (state,) = map(unpack, read_initial_state(initial_state_path(checkpoint)).shards)
    counts = {
        instance: [row.values[0] for row in life.rows.values()]  # noqa: PD011  (no column)
        for instance, (life,) in state.lives.items()
    }
    assert counts == {"script": [107], "other": [107]}


class Query:
    """The aggregator's query and its checkpoint, without Spark: a batch takes the new records and writes its rows."""

    def __init__(self, servers: str, topics: Topics, checkpoint: Path) -> None:
        self._servers, self._topics, self._checkpoint = servers, topics, checkpoint
        self._producer = Producer({"bootstrap.servers": servers})
        self._processor = TableProcessor(
            topics,
            TableSettings(),
            epoch=0,
            repair=request_path(checkpoint),
            batch_id=lambda: self._batch,
        )
        self._tester = TwsTester(self._processor, outputMode="Update")
        self._batch, self._end = 0, 0
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True)

    def start(self, epoch: int) -> None:
        """Continue under another writer."""
        self._processor._epoch = epoch

    def batch(self) -> None:
        """Run a batch if there are new records."""
        records = read_topic(self._servers, self._topics.metrics)[self._end :]
        if not records:
            return
        rows = [(self._topics.metrics, read.partition, read.offset, 900, read.key, read.value) for read in records]
        out = self._tester.testInPandas(0, pd.DataFrame(rows, columns=list(INPUT_COLUMNS)))
        for topic, key, value, partition, writer in out.itertuples(index=False, name=None):
            headers = None if writer is None else [(HEADER, writer)]
            self._producer.produce(topic, key=key, value=value, partition=partition, headers=headers)
        assert self._producer.flush(30) == 0
        self._end += len(records)
        plan = {"batchTimestampMs": self._batch + 1}, {self._topics.metrics: {"0": self._end}}
        (self._checkpoint / "offsets" / str(self._batch)).write_text("\n".join(["v1", *map(json.dumps, plan)]))
        (self._checkpoint / "commits" / str(self._batch)).write_text("v1\n{}")
        self._batch += 1


class Lease:
    """A lease that is always held."""

    def set_epoch(self, epoch: int) -> None:
        """Accept every epoch."""

    def check(self) -> None:
        """Raise nothing: the lease is held."""


class Outputs:
    """The counter's records on `metrics-agg` and `metrics-table`."""

    def __init__(self, servers: str, topics: Topics, admin: AdminClient) -> None:
        self._servers, self._topics, self._admin = servers, (topics.agg, topics.table), admin
        self._producer = Producer({"bootstrap.servers": servers})

    def last(self) -> dict[str, TopicRecord]:
        """Return the last record on each of the topics."""
        found = ((topic, read) for topic in self._topics for read in read_topic(self._servers, topic))
        return {topic: read for topic, read in found if b'"n"' in (read.value or b"")}

    def counts(self) -> list[int]:
        """Return the counts in the last records."""
        found = [json.loads(read.value or b"{}") for read in self.last().values()]
        return [row.get("count") or row["metrics"][0]["count"] for row in found]

    def overwrite(self, stale: dict[str, TopicRecord]) -> None:
        """Append these records again, and delete all records before them, as compaction does."""
        for topic, read in stale.items():
            self._producer.produce(topic, key=read.key, value=read.value)
        assert self._producer.flush(30) == 0
        for topic, read in self.last().items():
            entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
            self._admin.incremental_alter_configs([resource])[resource].result()
            # The controller answers before the broker knows the change.
            wait_until(lambda of=resource: self._policy(of) == "delete", 30, "the broker knows the policy")
            for deleted in self._admin.delete_records([TopicPartition(topic, 0, read.offset)]).values():
                deleted.result()

    def _policy(self, topic: ConfigResource) -> str:
        config = self._admin.describe_configs([topic])[topic].result()
        return str(config["cleanup.policy"].value)


def test_a_restarted_successor_repairs_what_the_first_writer_appends_last(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is stopped, B takes over and restarts. Keys that A writes during and after the restart are published again.

    This holds also if compaction has kept only A's records. A rebuild has the newest values.
    """
    monkeypatch.setattr(writing, "CHECK_INTERVAL_S", 0.0)
    servers = broker.bootstrap_servers
    settings = AggregateSettings(servers, tmp_path / "checkpoint", topic_prefix=topics.prefix)
    kafka = {"bootstrap.servers": servers}
    producer = Producer(kafka)
    query, outputs = Query(servers, topics, settings.checkpoint), Outputs(servers, topics, admin)

    def open_next() -> writing.Writer:
        writer = writing.Writer(settings, topics, kafka, Lease(), sharding=Sharding(), has_living=lambda: True)  # type: ignore[arg-type]
        query.start(writer.epoch)
        return writer

    def count(writer: writing.Writer, value: int) -> None:
        producer.produce(topics.metrics, key=b"script", value=b'{"name":"n","value":%d}' % value)
        assert producer.flush(30) == 0
        query.batch()
        for _ in range(2):
            writer.after_batch()

    first = open_next()
    count(first, 10)
    count(first, 12)
    stale = outputs.last()
    second = open_next()
    count(second, 20)
    assert outputs.counts() == [20, 20]
    second.close()
    outputs.overwrite(stale)
    assert outputs.counts() == [12, 12]
    third = open_next()

    def repaired() -> bool:
        third.after_batch()
        query.batch()
        return outputs.counts() == [20, 20]

    wait_until(repaired, 30, "records from before the restart are repaired")
    outputs.overwrite(stale)
    wait_until(repaired, 30, "records from after the restart are repaired")
    wait_until(lambda: repaired() and not request_path(settings.checkpoint).exists(), 30, "the repair is done")
    for writer in (first, third):
        writer.close()
    again = rebuild.RebuildSettings(servers, tmp_path / "again", topics.prefix)
    assert rebuild.run(again, lambda _: None) == 0
    (state,) = map(unpack, read_initial_state(initial_state_path(again.checkpoint)).shards)
    (life,) = state.lives["script"]
    assert [row.values[0] for row in life.rows.values()] == [20]  # noqa: PD011  (no column)
