"""Stores that are unavailable for ten minutes, or take five seconds for a write, at full length: `make faults`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from support import carbon as carbons
from support.influxd import InfluxServer, find_or_build
from support.slow_proxy import SlowProxy
from support.store_faults import broker_away, influx_store, long_outage, slow_store
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))
pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


@pytest.fixture
def own_influxdb(tmp_path: Path) -> Iterator[InfluxServer]:
    """An InfluxDB that only this test has and may kill."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    with InfluxServer(tmp_path / "influxdb", binary=found.path) as server:
        yield server


def test_both_stores_are_down_for_ten_minutes(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, own_influxdb: InfluxServer
) -> None:
    """Sums on Kafka go on, what waited is drained in two minutes, and every point is there."""
    if why := carbons.missing():
        pytest.skip(why)
    with carbons.Carbon(tmp_path / "carbon") as carbon:
        long_outage(broker, topics, tmp_path, influxdb=own_influxdb, carbon=carbon, outage_s=600 * SHARE)


def test_a_write_takes_five_seconds(
    broker: KafkaBroker, topics: Topics, tmp_path: Path, own_influxdb: InfluxServer
) -> None:
    """A hundred thousand rows wait on Kafka, not in memory; every one arrives."""
    with SlowProxy(own_influxdb.url, 5.0) as proxy:
        rows = max(20_000, round(100_000 * SHARE))
        slow_store(broker, topics, tmp_path, store=influx_store(own_influxdb, proxy.url), proxy=proxy, rows=rows)


def test_the_broker_is_away_from_who_shows_the_latest(tmp_path: Path) -> None:
    """No old sum for a new one: 503 while the broker can't be asked, and the newest sums when it is back."""
    with KafkaBroker(tmp_path / "broker") as broker:
        topics = Topics("latest-")
        create_topics(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), topics)
        broker_away(broker, topics, tmp_path, max(1000, round(1_000_000 * SHARE)))
