"""What replaced writers leave on the output topics, on a real broker without Spark: repaired, and rebuilt exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from support.kafka import read_topic
from support.wait import wait_until
from tallystream.aggregator import ledger, rebuild
from tallystream.aggregator.seed import read_seed, seed_path
from tallystream.aggregator.spark import writing
from tallystream.aggregator.spark.aggregate import AggregateSettings
from tallystream.aggregator.table.state import unpack

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream.aggregator.topics import Topics
    from tallystream.compose.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SHORT_FORM = ["life", "default", "script", "", 0]


class Written:
    """What aggregators have written: of one counter of the short form on `metrics-table`, and of its sum."""

    def __init__(self, servers: str, topics: Topics) -> None:
        self.topics = topics
        self._producer = Producer({"bootstrap.servers": servers})

    def metrics(self, number: int) -> None:
        """Append so many records to `metrics`."""
        for _ in range(number):
            self._append(self.topics.metrics, b"script", {"name": "n", "value": 1})

    def row(self, count: int, *, epoch: int, batch: int, instance: str = "script") -> None:
        """Append the row of a counter that has counted so far."""
        key = json.dumps([*SHORT_FORM[:2], instance, *SHORT_FORM[3:]], separators=(",", ":")).encode()
        value: dict[str, Any] = {"v": 1, "app": "default", "instance": instance, "life": "", "part": 0}
        value |= {"topic": self.topics.metrics, "partition": 0, "offset": batch, "heard_ms": 1, "every_ms": 1000}
        value |= {"keep_ms": 1, "metrics": [{"name": "n", "type": "counter", "count": count, "last": count}]}
        self._append(self.topics.table, key, value | {"epoch": epoch, "batch": batch})

    def deletion(self, writer: tuple[int, int] | None, instance: str = "script") -> None:
        """Append the deletion of the counter's row; `writer` is in its header."""
        key = json.dumps([*SHORT_FORM[:2], instance, *SHORT_FORM[3:]], separators=(",", ":")).encode()
        headers = None if writer is None else [("writer", json.dumps(writer, separators=(",", ":")).encode())]
        self._producer.produce(self.topics.table, key=key, value=None, headers=headers)
        assert self._producer.flush(30) == 0

    def sum(self, count: int, *, epoch: int, batch: int) -> None:
        """Append the counter's sum."""
        value = {"v": 1, "app": "default", "name": "n", "type": "counter", "count": count, "ts": 1}
        self._append(self.topics.agg, b'["default","counter","n",[]]', value | {"epoch": epoch, "batch": batch})

    def shard(self, *, epoch: int, batch: int) -> None:
        """Append the record that says how far the table's one shard is."""
        value = {"v": 1, "shard": 0, "shards": 1, "clocks": {f"{self.topics.metrics}:0": 1}}
        value |= {"offsets": {f"{self.topics.metrics}:0": batch}, "out_ms": 1, "fold": 0, "stale": 0}
        self._append(self.topics.table, b'["shard",0]', value | {"epoch": epoch, "batch": batch})

    def _append(self, topic: str, key: bytes, value: dict[str, Any]) -> None:
        self._producer.produce(topic, key=key, value=json.dumps(value, separators=(",", ":")).encode())
        assert self._producer.flush(30) == 0


@pytest.fixture
def written(broker: KafkaBroker, topics: Topics) -> Written:
    """The topics of a table that has begun."""
    made = Written(broker.bootstrap_servers, topics)
    made.metrics(10)
    return made


def test_a_stale_writer_s_rows_and_deletions_change_nothing_that_is_rebuilt(
    broker: KafkaBroker, topics: Topics, written: Written, tmp_path: Path
) -> None:
    """A row that came after its key's deletion counts, whatever deletion comes late, with an older writer or without.

    A row that its writer appends once more after the deletion is not back.
    """
    written.row(7, epoch=1, batch=3, instance="gone")
    written.deletion((1, 4), instance="gone")
    written.row(7, epoch=1, batch=3, instance="gone")
    written.row(7, epoch=1, batch=3)
    written.deletion((1, 4))
    for instance in ("script", "other"):
        written.row(107, epoch=2, batch=5, instance=instance)
    written.shard(epoch=2, batch=5)
    written.deletion((1, 4))
    written.deletion(None, instance="other")
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    opened = ledger.LedgerRow(kind="opened", query=ledger.QUERY, epoch=2, ts=1, start={topics.metrics: {"0": 0}})
    ledger.LedgerWriter(topics.ledger, kafka).write([opened])
    checkpoint = tmp_path / "checkpoint"
    asked = rebuild.RebuildSettings(broker.bootstrap_servers, checkpoint, topics.prefix)
    assert rebuild.run(asked, lambda _: None) == 0
    (state,) = map(unpack, read_seed(seed_path(checkpoint)).shards)
    counts = {instance: [row.values[0] for row in life.rows.values()] for instance, (life,) in state.lives.items()}
    assert counts == {"script": [107], "other": [107]}


class Checkpoint:
    """The logs of Spark's checkpoint, as far as batches have finished."""

    def __init__(self, path: Path, topic: str) -> None:
        self.path, self._topic = path, topic
        for log in ("offsets", "commits"):
            (path / log).mkdir(parents=True)

    def finish(self, batch: int) -> None:
        """Have a batch finished; each takes one record."""
        told = {"batchTimestampMs": batch + 1}, {self._topic: {"0": batch + 1}}
        (self.path / "offsets" / str(batch)).write_text("\n".join(["v1", *map(json.dumps, told)]))
        (self.path / "commits" / str(batch)).write_text("v1\n{}")


class Lease:
    """A lease that is ours."""

    def take(self, epoch: int) -> None:
        """Take no note of the epoch."""

    def check(self) -> None:
        """Have it still."""


def test_a_restarted_successor_repairs_what_the_first_writer_appends_last(
    broker: KafkaBroker, topics: Topics, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is stopped, B takes over and is restarted: what A writes while B is restarted, and after that, is repaired.

    The last record of each key, which compaction keeps, has the newest value.
    """
    monkeypatch.setattr(writing, "LOOK_S", 0.0)
    settings = AggregateSettings(broker.bootstrap_servers, tmp_path / "checkpoint", topic_prefix=topics.prefix)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    finished: list[int] = []
    checkpoint = Checkpoint(settings.checkpoint, topics.metrics)

    def open_next() -> writing.Writing:
        return writing.Writing(settings, topics, kafka, Lease())  # type: ignore[arg-type]

    def batch(writer: writing.Writing, count: int) -> None:
        number = len(finished)
        finished.append(number)
        written.row(count, epoch=writer.epoch, batch=number)
        written.sum(count, epoch=writer.epoch, batch=number)
        checkpoint.finish(number)
        writer.after_batch()
        writer.after_batch()

    def stale() -> None:
        written.row(12, epoch=1, batch=1)
        written.sum(12, epoch=1, batch=1)

    def last() -> list[int]:
        found = [json.loads(read_topic(broker.bootstrap_servers, topic)[-1].value or b"{}") for topic in outputs]
        return [row.get("count") or row["metrics"][0]["count"] for row in found]

    outputs = (topics.agg, topics.table)
    first = open_next()
    batch(first, 10)
    second = open_next()
    batch(second, 12)
    batch(second, 20)
    second.close()
    stale()
    third = open_next()

    def repaired() -> bool:
        third.after_batch()
        return last() == [20, 20]

    wait_until(repaired, 30, "what was appended before the restart is repaired")
    stale()
    wait_until(repaired, 30, "what was appended after the restart is repaired")
    for writer in (first, third):
        writer.close()
