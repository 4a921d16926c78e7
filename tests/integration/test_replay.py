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
    """After the replay an empty store holds exactly the points whose time is in the period; `metrics-agg` is unchanged.

    A second replay changes nothing. A period without sums, or whose sums compaction may have removed, is refused.
    """
    now = int(time.time() * 1000)
    rows = [sums.Sum(app="shop", name=f"n{n % 3}", type="counter", count=n, ts=now + n) for n in range(500)]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for row in rows:
        producer.produce(topics.agg, key=row.name, value=row.value())
    assert producer.flush(60) == 0
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", env={})
    options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix, "--store", store.spec)
    wanted = {}
    for row in rows[100:350]:
        one = point(row)
        wanted[one.measurement, tuple(sorted(one.tags.items())), one.ts_ms] = dict(one.fields)
    for _ in range(2):
        done = run("replay", *options, "--from", utc(now + 100), "--to", utc(now + 350))
        assert done.returncode == 0, done.stderr
        assert "250 points are in the store" in done.stdout
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

    empty = run("replay", *options, "--from", utc(now + 1000), "--to", utc(now + 2000))
    assert (empty.returncode, "has no sum" in empty.stderr) == (2, True)
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topics.agg, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    refused = run("replay", *options, "--from", utc(now - 3_600_000), "--to", utc(now + 350))
    assert refused.returncode == 2
    assert "min.compaction.lag.ms" in refused.stderr
