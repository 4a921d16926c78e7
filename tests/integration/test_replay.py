"""`tallystream replay` on a real broker and a real store: the points of a past period, no others."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from support.commands import run
from support.kafka import read_topic
from tallystream_aggregator import sums
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration


def utc(ms: int) -> str:
    """Return epoch milliseconds as the command line takes them."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def test_a_period_is_written_again_point_by_point(
    broker: KafkaBroker, admin: AdminClient, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """After the replay an empty store holds exactly the points of the period's batches; `metrics-agg` is unchanged.

    A second replay changes nothing. A period whose sums may have been removed by compaction is refused.
    """
    now = int(time.time() * 1000)
    rows = [
        sums.Sum(app="shop", name=f"n{n % 3}", type="counter", count=n, ts=now + n, epoch=1 + n // 250, batch=n // 50)
        for n in range(500)
    ]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for row in rows:
        producer.produce(topics.agg, key=row.name, value=sums.encode(row))
    assert producer.flush(60) == 0
    batches = sorted({(row.epoch, row.batch) for row in rows})
    started_ms = {writer: now + 1000 * number for number, writer in enumerate(batches)}
    writer = ledger.LedgerWriter(topics.ledger, {"bootstrap.servers": broker.bootstrap_servers})
    writer.write(
        ledger.LedgerRow(kind="batch", query=ledger.QUERY, epoch=epoch, batch=batch, ts=started_ms[epoch, batch])
        for epoch, batch in batches
    )
    first, last = batches[3], batches[7]
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix, "--store", store.spec)
    period = ("--from", utc(started_ms[first]), "--to", utc(started_ms[last] + 1))
    wanted = {}
    for row in rows:
        if first <= (row.epoch, row.batch) <= last:
            one = point(row)
            wanted[one.measurement, tuple(sorted(one.tags.items())), one.ts_ms] = dict(one.fields)
    for _ in range(2):
        done = run("replay", *options, *period)
        assert done.returncode == 0, done.stderr
        assert "250 points of 5 batches" in done.stdout
        found: dict[object, dict[str, object]] = {}
        reader = open_reader(store)
        for name in reader.measurements():
            fields = sorted({field for fields in wanted.values() for field in fields})
            for series in reader.read(name, fields, start_ms=0, end_ms=2**62):
                for at, value in zip(series.times_ms, series.values, strict=True):
                    found.setdefault((name, tuple(sorted(series.tags.items())), at), {})[series.field] = value
        reader.close()
        assert found == wanted
    assert len(read_topic(broker.bootstrap_servers, topics.agg)) == len(rows)

    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.agg, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    early = ("--from", utc(started_ms[first] - 3_600_000), "--to", utc(started_ms[last]))
    refused = run("replay", *options, *early)
    assert refused.returncode == 2
    assert "min.compaction.lag.ms" in refused.stderr
