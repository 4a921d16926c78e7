"""The shipper on a real broker and a real OpenTelemetry Collector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.collector import Collector, find_or_build
from support.kafka import read_topic
from support.levels import Contents, data_points
from support.processes import kill_tree
from support.shipping import Sums, shipper
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.broker import KafkaBroker

LIMIT_S = 300.0

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_every_sum_arrives_through_a_kill_of_the_shipper_with_one_start(
    broker: KafkaBroker, topics: Topics, topic_prefix: str, tmp_path: Path
) -> None:
    """After SIGKILL during the work, the shipper continues to the same data points, all with the same start.

    A data point that is sent again is equal to the first one. A sum that no receiver accepts is a dead letter.
    """
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    wanted = Sums(broker.bootstrap_servers, topics.agg, padding=20_000)
    wanted.publish(2_000)
    wanted.publish_rejected()
    with Collector(tmp_path / "otelcol", found.path) as collector:
        store = StoreSettings.parse(f"otlp:{collector.url}", env={})
        sent: Contents = {}

        def arrived() -> int:
            """Return how many points have arrived. Each data point has the start (`data_points`) and its value."""
            for (name, tags, ts_ms), fields in data_points(collector.destination.received):
                point = sent.setdefault((name, tags), {}).setdefault(ts_ms, {})
                assert {**point, **fields} == {**fields, **point}
                point.update(fields)
            return sum(map(len, sent.values()))

        with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store) as process:
            wait_until(lambda: arrived() >= 200, LIMIT_S, "some points have arrived", poll=0.02)
            kill_tree(process)
        wanted.publish(500)
        with shipper(broker.bootstrap_servers, topic_prefix, tmp_path, store):
            wait_until(lambda: arrived() >= 2_500, LIMIT_S, "all points have arrived")
        assert sent == {(name, tags): points for name, all_ in wanted.points.items() for tags, points in all_.items()}
    letters = [json.loads(record.value or b"") for record in read_topic(broker.bootstrap_servers, topics.dead)]
    assert {letter["store"] for letter in letters} == {store.spec}
    assert {json.loads(letter["point"])["measurement"] for letter in letters} == {"too.large"}
